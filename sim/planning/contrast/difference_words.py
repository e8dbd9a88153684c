"""Words one figure of a comparison: its values, how far variants differ, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.bands.trust import Trust
from sim.planning.contrast.variant_words import Document, Entry, metric_of, name
from sim.planning.points.wording import share
from sim.units import TWICE, milliseconds, number


def unit(entry: Entry) -> str:
    """The unit of a metric, as people write it.

    >>> unit({"key": "output_throughput", "unit": "1/s"}), unit({"key": "x", "unit": "share"})
    ('tokens/s', '%')
    """
    metric = metric_of(entry)
    if entry["unit"] == "1/s" and metric is not None:
        return metric.unit
    return "%" if entry["unit"] == "share" else str(entry["unit"])


def written(value: float | None, kind: str) -> str:
    """A value with the unit that its column does not have."""
    if kind == "ms":
        return milliseconds(value)
    return share(value) if kind == "share" else number(value)


def head(entry: Entry) -> str:
    """The title of a column or an axis, with its unit; latencies have theirs in the cells.

    >>> head({"key": "output_throughput", "title": "Output tokens", "unit": "1/s"})
    'Output tokens/s'
    """
    title, metric = str(entry["title"]), metric_of(entry)
    if entry["unit"] == "1/s" and metric is not None:
        return metric.head + title.removeprefix(metric.title)
    return f"{title} (%)" if entry["unit"] == "share" else title


def with_unit(entry: Entry, value: float | None) -> str:
    """A value of a metric in a sentence."""
    text = written(value, entry["unit"])
    if entry["unit"] in ("ms", "share") or value is None:
        return text
    return f"${text}" if entry["unit"] == "USD" else f"{text} {unit(entry)}".strip()


def change(apart: Mapping[str, Any]) -> str:
    """A difference to the base with half its interval: a multiple from twice on, below it percent.

    >>> change({"mean": -3.0, "relative": -0.123, "relative_half_width": 0.0214})
    '-12 ±2.1%'
    >>> change({"mean": 9.0, "relative": 8.84, "relative_half_width": 0.42})
    '9.84 ±0.42x'
    >>> change({"mean": 0.0, "relative": 0.0, "relative_half_width": 0.0})
    '0%'
    """
    part, half = apart["relative"], apart["relative_half_width"]
    if part is None:
        return "" if apart["mean"] is None else "0%" if apart["mean"] == 0 else "-"
    if apart["mean"] == 0 and not half:
        return "0%"
    if 1 + part >= TWICE:
        text = f"{1 + part:,.0f}" if part >= 99 else f"{1 + part:.3g}"
        return f"{text}x" if half is None else f"{text} ±{half:.2g}x"
    text = percent(part, signed=True)
    return f"{text}%" if half is None else f"{text} ±{percent(half)}%"


def percent(part: float, *, signed: bool = False) -> str:
    """Two or three digits: never all of it unless it is all, nor nothing unless it is nothing.

    >>> percent(-0.9999, signed=True), percent(0.0004), percent(0.00001), percent(1.234)
    ('-99.9', '0.04', '0.01', '123')
    """
    value = 100 * part
    size = abs(value)
    digits = 0 if size >= 10 else 1 if size >= 1 or size == 0 else 2
    if 99 <= size < 100:
        size, digits = math.floor(size * 10) / 10, 1
    if 0 < size < 0.01:
        size = 0.01
    value = math.copysign(size, value)
    return f"{value:+,.{digits}f}" if signed else f"{value:,.{digits}f}"


def mark(entry: Entry, index: int) -> str:
    """``best``, ``tied`` with the best one, or nothing, as where one variant alone has a value."""
    if index not in entry["best"] or sum(mean is not None for mean in entry["means"]) < 2:
        return ""
    return "best" if index == entry["first"] else "tied"


def reason(document: Document, entry: Entry, index: int) -> str:
    """How a variant differs from the best one, in words; empty where that is not known."""
    first, apart = entry["first"], entry["to_first"][index]
    if apart is None or first is None or apart["relative"] is None:
        return ""
    against = name(document, first)
    half = apart["relative_half_width"]
    text = f"{percent(apart['relative'], signed=True)}%"
    text += "" if half is None else f" ±{percent(half)}%"
    word = "differs from" if apart["certain"] else "cannot be distinguished from"
    return f"{word} {against} ({text})" + (f"; {sure}" if (sure := in_reality(apart)) else "")


def in_reality(apart: Mapping[str, Any]) -> str:
    """How sure it is which of two variants is larger, and what measurements would find; empty where
    that is not known.

    >>> in_reality({"trust": "likely", "band90": [0.7, 1.02]})
    'likely: 0.7 to 1.02 times, expected in nine of ten measurements'
    >>> in_reality({"trust": "a guess", "band90": [0.0, None]})
    'a guess: too few runs, or too large an error, to say how many times'
    """
    if not apart.get("trust"):
        return ""
    if _says_nothing(apart["band90"]):
        return f"{apart['trust']}: {NO_RANGE}"
    times = _range(apart["band90"])
    return f"{apart['trust']}: {times} times, expected in nine of ten measurements"


NO_RANGE = "too few runs, or too large an error, to say how many times"
"""What is said in place of a range that says nothing."""


def _says_nothing(band: Sequence[float | None]) -> bool:
    """Whether a range is open at both ends.

    >>> _says_nothing([0.001, None]), _says_nothing([0.2, None]), _says_nothing([0.7, 1.02])
    (True, False, False)
    """
    low, high = band
    return (low or 0.0) < 0.01 and (high is None or high > 100)


def _range(band: Sequence[float | None]) -> str:
    low, high = band
    low = low or 0.0
    return f"{number(low)} or more" if high is None else f"{number(low)} to {number(high)}"


ORDER = (Trust.SURE, Trust.LIKELY, Trust.GUESS)

TRUST_WORDS = (
    "sure, likely, a guess: one is the larger throughout the 90 % band of the ratio, throughout "
    "the 50 % band, or not even there."
)
"""The meaning of the words for a difference."""


def how_sure(document: Document, entry: Entry, first: int, index: int) -> str:
    """How sure it is that the ``first`` variant is better than that of this index, in a sentence;
    empty where that is not known."""
    apart = entry["to_first"][index]
    if apart is None or not apart.get("trust"):
        return ""
    band = apart["band90"]
    if entry["better"] == "higher":
        low, high = band
        band = [None if high is None else 1 / high, 1 / low if low else None]
    whose = f" against {name(document, index)}" if len(entry["means"]) > 2 else ""
    half = apart["relative_half_width"]
    here = ""
    if half is not None:
        beyond = "more than" if apart["certain"] else "no more than"
        part = f"{percent(abs(apart['relative']))} ±{percent(half)}%, "
        part = part if abs(apart["relative"]) < 1 / TWICE else ""  # else it is a multiple
        here = f" These runs differ by {part}{beyond} chance does."
    if _says_nothing(band):
        return f"That real runs differ so{whose} is {apart['trust']}, by how much is open.{here}"
    runs = f"of ten pairs of real runs{whose}, nine should show {_range(band)} times"
    return f"That is {apart['trust']}: {runs}.{here}"
