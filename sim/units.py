"""Converts quantities at the border: people write ``500ms`` or ``80GiB``, programs hold SI floats.

Inside the program every time is in seconds, every size in bytes, every rate per second; units
exist only in YAML files and on the screen.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

Seconds = float
Bytes = float
Share = float
"""From 0 to 1."""
Count = int
"""Of at least 0."""
# with these a record says what its fields hold, which readers of files go by

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}
_TIME |= {"h": 3600.0, "d": 86400.0}

UNITS: dict[str, dict[str, float]] = {
    "time": _TIME,
    "bytes": {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()},
    "bytes per second": {f"{p}B/s": f for p, f in (_DECIMAL | _BINARY).items()},
    "FLOP/s": {f"{p}{u}": f for p, f in _DECIMAL.items() for u in ("FLOP/s", "FLOPS", "OP/s")},
    "power": {"W": 1.0, "kW": 1e3},
    "energy": {"J": 1.0, "nJ": 1e-9, "pJ": 1e-12},
    "rate": {"": 1.0, "/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600},
}
"""For each dimension, the unit suffixes that are understood and their SI factor."""

MOST_DECIMALS = 9
"""Of a percentage: more would tell apart what rounding in floats made different."""

PER_OUTPUT_TOKENS = "USD per 1M output tokens"
PER_TOKENS = "USD per 1M tokens (prompt + output)"
"""The name of both costs of a token, in every table and on every page."""

_LONGEST = 100  # characters; the pattern would take long to refuse many more
_QUANTITY = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s].*?)?\s*")


def parse(value: object, dimension: str) -> float:
    """``value`` as an SI float of ``dimension`` (a key of ``UNITS``); bare numbers are SI already.

    Raises ValueError, in a user's words, when ``value`` is no finite quantity of that dimension.

    >>> parse("500ms", "time"), parse("80GiB", "bytes"), parse("3.35TB/s", "bytes per second")
    (0.5, 85899345920.0, 3350000000000.0)
    """
    units = UNITS[dimension]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a {dimension}, such as {_example(dimension)}")
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value) if len(value) <= _LONGEST else None
        if match is None:
            given = repr(value if len(value) <= _LONGEST else f"{value[:50]}...")
            raise ValueError(f"{given} is not a {dimension}; write it like {_example(dimension)}")
        number, suffix = float(match[1].replace("_", "")), match[2] or ""
        if suffix and suffix not in units:
            known = ", ".join(u for u in units if u)
            raise ValueError(f"unknown unit {suffix!r} for a {dimension}; known units: {known}")
        result = number * units[suffix] if suffix else number
    else:
        try:
            result = float(value)
        except OverflowError:
            raise ValueError(f"expected a finite {dimension}, got a huge number") from None
    if not math.isfinite(result):
        raise ValueError(f"expected a finite {dimension}, got {value!r}")
    return result


def _example(dimension: str) -> str:
    return {
        "time": "500ms or 2s",
        "bytes": "80GiB",
        "bytes per second": "3.35TB/s",
        "FLOP/s": "989TFLOP/s",
        "power": "700W",
        "energy": "31pJ",
        "rate": "6 or 6/s",
    }[dimension]


def show_time(seconds: float) -> str:
    """Seconds as people read them, three significant digits.

    >>> show_time(0.0123), show_time(75.0), show_time(3e-6), show_time(5400.0)
    ('12.3 ms', '75 s', '3 us', '1.5 h')
    >>> show_time(0.99996), show_time(119.8), show_time(3599.0)
    ('1 s', '2 min', '1 h')
    """
    if not math.isfinite(seconds):
        return "-"
    size = float(f"{abs(seconds):.3g}")  # as it is shown: not 1,000 ms, nor 120 s
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (120.0, 1.0, "s")):
        if size < limit:
            return f"{_digits(seconds * factor)} {unit}"
    if size < 7200 / 2:
        return f"{_digits(seconds / 60)} min"
    return f"{_digits(seconds / 3600)} h"


NEAR = 0.01
"""Distance of a share from none, all or its target below which its digits decide."""

FEW = 0.1
"""A share below which a whole percentage has but one digit."""


def show_share(share: float, target: float | None = None) -> str:
    """A share as a percentage, with as many digits as it takes not to look like none, like all, or
    like a ``target`` that it misses.

    >>> show_share(0.6912, 0.99), show_share(0.9866, 0.99), show_share(0.989996, 0.99)
    ('69%', '98.66%', '98.9996%')
    >>> show_share(0.99, 0.99), show_share(0.99999), show_share(0.0), show_share(0.0249)
    ('99%', '99.999%', '0%', '2.5%')
    """
    if not math.isfinite(share):
        return "-"
    marks = [0.0, 1.0] if target is None else [0.0, 1.0, target]
    if share in marks:
        return f"{100 * share:.9g}%"
    decimals = 2 if any(abs(share - mark) < NEAR for mark in marks) else int(share < FEW)
    while decimals < MOST_DECIMALS and any(
        f"{100 * share:.{decimals}f}" == f"{100 * mark:.{decimals}f}" for mark in marks
    ):
        decimals += 1
    return f"{100 * share:.{decimals}f}%"


def show_utilisation(share: float) -> str:
    """A share of the capacity, which may be more than all of it: a percentage of two digits and
    more, and never 100% where it is not.

    >>> show_utilisation(0.62), show_utilisation(1.0035), show_utilisation(0.0031)
    ('62%', '100.4%', '0.31%')
    """
    if share < NEAR:
        return f"{100 * share:.2g}%"
    whole = f"{share:.0%}"
    return f"{share:.1%}" if whole == "100%" and share != 1 else whole


def show_bytes(size: float) -> str:
    """Bytes in binary units, as GPU memory is counted.

    >>> show_bytes(2147483648), show_bytes(512)
    ('2 GiB', '512 B')
    """
    for exponent, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 2**exponent:
            return f"{_digits(size / 2**exponent)} {unit}"
    return f"{_digits(size)} B"


def show_rate(value: float, unit: str) -> str:
    """A rate with a decimal prefix.

    >>> show_rate(3.35e12, "B/s"), show_rate(989e12, "FLOP/s")
    ('3.35 TB/s', '989 TFLOP/s')
    """
    for factor, prefix in (
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
    ):
        if abs(value) >= factor:
            return f"{_digits(value / factor)} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def milliseconds(value: float | None) -> str:
    """A latency given in ms, in the unit that suits it."""
    return "-" if value is None else show_time(value / 1e3)


def counted(value: int | None) -> str:
    """A number of things; a dash for an unknown one.

    >>> counted(12345), counted(None)
    ('12,345', '-')
    """
    return "-" if value is None else f"{value:,}"


def number(value: float | None) -> str:
    """A number or a ratio: three digits, and all of the whole part.

    >>> number(12345.6), number(1.2345), number(None)
    ('12,346', '1.23', '-')
    """
    return "-" if value is None else _digits(value)


def show_load(load: float, digits: int = 4) -> str:
    """A load, with that many significant digits, and all of the whole part.

    >>> show_load(23.4567), show_load(9999.6), show_load(12345.6), show_load(2617.4, 3)
    ('23.46', '10,000', '12,346', '2,617')
    """
    return f"{load:,.0f}" if abs(load) >= 10**digits - 0.5 else f"{load:.{digits}g}"


def many(error: float) -> str:
    """How many percent, or how many times where a percentage reads badly.

    >>> many(0.25), many(1.34)
    ('25%', '2.3 times')
    """
    return f"{error:.0%}" if error < 0.5 else f"{1 + error:.1f} times"


TWICE = 2.0
"""From this ratio on people say how many times as much, below it percent."""


def show_cost(usd: float) -> str:
    """Dollars: to the cent, below one dollar three significant digits.

    >>> show_cost(0.1823), show_cost(0.5), show_cost(12.345), show_cost(0.0041)
    ('0.182', '0.50', '12.35', '0.0041')
    """
    size = abs(usd)
    if size >= 1 or size == 0:
        return f"{usd:,.2f}"
    if size < 1e-9:
        return f"{usd:.3g}"
    text = f"{usd:.{2 - math.floor(math.log10(size))}f}".rstrip("0")
    return text.ljust(len(text.partition(".")[0]) + 3, "0")


def show_number(value: float) -> str:
    """A number without a unit, three significant digits.

    >>> show_number(0.001234), show_number(1243.4), show_number(16.0)
    ('0.00123', '1,243', '16')
    """
    return _digits(value)


def _digits(value: float) -> str:
    """Three significant digits without a trailing point, nor an exponent at any usual size."""
    if value == 0:
        return "0"
    if not 1e-9 <= abs(value) < 1e15:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


IN_SECONDS, IN_MINUTES, IN_HOURS = 10.0, 120.0, 7200.0
"""Longest latency (s) from which on a figure is in seconds, in minutes, in hours."""


class Scale(NamedTuple):
    """A unit of time, and what seconds are multiplied with to be in it."""

    unit: str
    factor: float


SECONDS, MINUTES, HOURS = Scale("s", 1.0), Scale("min", 1 / 60), Scale("h", 1 / 3600)


def time_scale(longest_s: float) -> Scale:
    """The unit for latencies of up to ``longest_s``.

    >>> time_scale(9.99), time_scale(10.0), time_scale(1_730.0).unit
    (Scale(unit='ms', factor=1000.0), Scale(unit='s', factor=1.0), 'min')
    """
    if longest_s < IN_SECONDS:
        return Scale("ms", 1e3)
    if longest_s < IN_MINUTES:
        return SECONDS
    return MINUTES if longest_s < IN_HOURS else HOURS


HOURS_OF = {"month": 730, "year": 8760}
"""Of a year of 365 days, and a twelfth of it."""


def dollars(price: float) -> str:
    """The price of an hour, to the cent; whole dollars without cents.

    >>> dollars(2.5), dollars(12.0), dollars(1.006)
    ('2.50', '12', '1.01')
    """
    return f"{price:,.2f}".removesuffix(".00")


def between(low: str, high: str | None) -> str:
    """The values between which a latency lies; None is that of an overload.

    >>> between("1 s", "2 s"), between("1 s", None)
    ('1 s to 2 s', '1 s and up (no upper end)')
    """
    return f"{low} and up (no upper end)" if high is None else f"{low} to {high}"
