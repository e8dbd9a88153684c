"""Is a run long enough for its p99? How far that may lie from the one of an endless run.

The 95 % interval of a percentile is one between two of the values, whatever their distribution:
the number of values above the true p99 is binomial. But neighbouring requests share a queue, so
that n of them tell less than n independent ones would: batch means of the indicator "above p99"
say how many. This is the chance in the traffic of one run, not the error of the cost model.
Seconds in, milliseconds out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.units import show_time

if TYPE_CHECKING:
    from sim.metrics.run_record import RunRecord

Floats = NDArray[np.float64]

SHARE = 0.99
TAIL = 0.025
"""Chance that the truth lies beyond one end of a 95 % interval."""

Z95 = NormalDist().inv_cdf(1 - TAIL)

BATCHES = 30
LEAST = math.ceil(math.log(TAIL) / math.log(SHARE))
"""Independent values from which on the largest of them is a bound for p99: 368."""

WIDE = 0.25
"""A run is too short for its p99 if the interval is wider than this share of the value."""

NO_PERCENTILE = {
    "offline": "with all requests there from the start, latencies depend on their number",
    "overloaded": "in an overload latencies depend on how long it goes on",
    "no traffic served": "no request was completed",
}
"""States in which the p99 is no property of the system, and why."""


class Interval(NamedTuple):
    """A 95 % interval of the p99 of ``samples`` values that tell as much as ``effective``
    independent ones; ``low`` is None without values, ``high`` if they are too few for a bound."""

    low: float | None
    high: float | None
    samples: int
    effective: int


def p99_interval(values: Floats) -> Interval:
    """The interval of the p99 of ``values``, in the order in which they came."""
    n = len(values)
    if not n:
        return Interval(None, None, 0, 0)
    effective = max(1, int(n / inflation(values > np.percentile(values, 100 * SHARE))))
    few, many = _exceedances(effective)
    scale = n / effective
    # so many values lie above each bound
    above_low = min(n, math.ceil(many * scale)) - 1
    low = float(np.partition(values, n - 1 - above_low)[n - 1 - above_low])
    if few is None:
        return Interval(low, None, n, effective)
    above_high = math.floor(few * scale)
    high = float(np.partition(values, n - 1 - above_high)[n - 1 - above_high])
    return Interval(low, high, n, effective)


def inflation(indicator: NDArray[np.bool_]) -> float:
    """By how much correlation widens the variance of the mean of ``indicator``; at least 1."""
    size = len(indicator) // BATCHES
    share = float(indicator.mean())
    if not size or share in (0.0, 1.0):
        return 1.0
    means = indicator[: size * BATCHES].reshape(BATCHES, size).mean(axis=1)
    return max(1.0, float(means.var(ddof=1)) * size / (share * (1 - share)))


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share that was seen in ``count`` independent trials (Wilson, 1927).

    >>> tuple(round(bound, 4) for bound in wilson(0.99, 1000))
    (0.9817, 0.9946)
    >>> wilson(0.5, 0)
    (0.0, 1.0)
    """
    if count <= 0:
        return 0.0, 1.0
    z2 = Z95 * Z95
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    low = max(0.0, middle - half) if share > 0 else 0.0  # not what rounding makes of it
    high = min(1.0, middle + half) if share < 1 else 1.0
    return low, high


def enough_to_decide(share: float, target: float) -> float:
    """Independent trials from which on the interval (``wilson``) of a ``share`` leaves ``target``
    out; infinite where both are equal.

    >>> round(enough_to_decide(0.985, 0.99))
    1521
    >>> wilson(0.985, 1522)[1] < 0.99 <= wilson(0.985, 1521)[1]
    True
    >>> enough_to_decide(0.0, 1e-200) > 1e200  # the square of their distance is 0
    True
    """
    apart = share - target
    return Z95 * Z95 * (target / apart) * ((1 - target) / apart) if apart else math.inf


def share_interval(held: NDArray[np.bool_]) -> tuple[float, float]:
    """The 95 % interval (Wilson) of the share of requests of which something ``held``.

    They are given in the order in which they came: neighbours share a queue, so that they count as
    fewer independent ones (``inflation``).

    >>> share_interval(np.ones(100, dtype=bool))[1]
    1.0
    """
    if not len(held):
        return 0.0, 1.0
    return wilson(float(held.mean()), len(held) / inflation(held))


def _exceedances(n: int) -> tuple[int | None, int]:
    """Of ``n`` independent values, how many lie above their true p99?

    The largest number that is too few to be likely (None: no number is) and the smallest that is
    too many: each is exceeded towards its side with a chance of at most ``TAIL``.
    """
    mean = n * (1 - SHARE)
    top = min(n, int(mean + 12 * math.sqrt(mean) + 30))
    k = np.arange(top)
    steps = np.log((n - k) / (k + 1) * (1 - SHARE) / SHARE)
    logarithm = n * math.log(SHARE) + np.concatenate([[0.0], np.cumsum(steps)])
    chance = np.cumsum(np.exp(logarithm))  # of at most so many
    few = int(np.searchsorted(chance, TAIL, side="right")) - 1
    return (None if few < 0 else few), int(np.searchsorted(chance, 1 - TAIL)) + 1


def precision(run: RunRecord, state: str) -> dict[str, Any]:
    """The ``precision`` entry of the summary: an interval (ms) for each p99, and what it says.

    ``sufficient`` is None where the p99 of the run is no property of the system (``state`` is that
    of the verdict), ``requests_needed`` a number where the run is too short.
    """
    counted = run.completed & ~run.warmup
    latencies = {
        "p99_ttft_ms": run.ttft[counted],
        "p99_tpot_ms": run.tpot[counted & (run.requests["output_tokens"] > 1)],
        "p99_e2el_ms": run.e2el[counted],
    }
    arrivals = run.scenario.workload.arrivals
    why = NO_PERCENTILE.get(state)
    if arrivals is not None and arrivals.kind in ("ramp", "diurnal"):
        why = "the rate of arrivals changes"
    if why is None and not counted.any():
        why = "no request counts beside the warm-up"
    if why is not None:
        empty = {"low": None, "high": None, "effective_samples": None}
        entries: dict[str, Any] = {
            key: {**empty, "samples": len(values)} for key, values in latencies.items()
        }
        text = f"Not stated for p99: {why}."
        return entries | {"sufficient": None, "requests_needed": None, "text": text}
    entries, p99 = {}, {}
    for key, values in latencies.items():
        found = p99_interval(values)
        entries[key] = {
            "low": None if found.low is None else found.low * 1e3,
            "high": None if found.high is None else found.high * 1e3,
            "samples": found.samples,
            "effective_samples": found.effective,
        }
        if found.samples:
            p99[key] = float(np.percentile(values, 100 * SHARE)) * 1e3
    return entries | conclusion(entries, p99, len(run.requests))


def conclusion(
    entries: Mapping[str, Mapping[str, Any]],
    p99: Mapping[str, float],
    requests: int,
    repetitions: int = 1,
) -> dict[str, Any]:
    """``sufficient``, ``requests_needed`` and ``text`` for intervals of the values ``p99`` (ms).

    They come of ``requests`` requests, sent in so many ``repetitions``.
    """
    found, factor, bounded = [], 1.0, True
    for key, value in p99.items():
        low, high = entries[key]["low"], entries[key]["high"]
        name = key.split("_")[1].upper()
        if high is None:
            more = LEAST / entries[key]["effective_samples"]
            found.append((True, f"{name} above {_ms(low)}"))
        else:
            more = ((high - low) / (WIDE * value)) ** 2 if value else 1.0
            found.append((more > 1, f"{name} {_ms(low)} to {_ms(high)}"))
        if more > factor:
            factor, bounded = more, high is not None
    if not any(short for short, _ in found):
        listed = ", ".join(text for _, text in found)
        text = f"Long enough for its p99: {listed} (95 % confidence)."
        return {"sufficient": True, "requests_needed": None, "text": text}
    listed = ", ".join(text for short, text in found if short)
    if repetitions > 1:
        enough = f"About {rounded_up(repetitions * factor):,} repetitions"
    else:
        about = "About" if bounded else "At least"
        enough = f"{about} {rounded_up(requests * factor):,} requests"
    return {
        "sufficient": False,
        "requests_needed": rounded_up(requests * factor),
        "text": f"Too short for its p99: all that is sure (95 %) is {listed}. {enough} "
        f"{'would do' if bounded else 'are needed'}.",
    }


def _ms(milliseconds: float) -> str:
    return show_time(milliseconds / 1e3)


def rounded_up(number: float) -> int:
    """Two significant digits.

    >>> rounded_up(1234.5), rounded_up(7.2), rounded_up(90)
    (1300, 8, 90)
    """
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return math.ceil(number / unit) * unit
