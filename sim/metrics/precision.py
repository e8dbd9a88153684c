"""Decides whether a run is long enough for its p99, by the distance to that of an endless run.

The 95 % interval of a percentile is one between two of the values, whatever their distribution:
the number of values above the true p99 is binomial. But neighbouring requests share a queue, so
that n of them say less than n independent ones would: batch means of the indicator "above p99"
say how much (Law and Kelton, Simulation Modeling and Analysis, 9.5.3). Near saturation batches are
as long as the fleet's memory, so that they are few, and their variance is uncertain too: Student's
t. This is the chance in the traffic of one run, not the error of the cost model.
Seconds in, milliseconds out.
"""

from __future__ import annotations

import math
import re
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

POWER = 0.9
"""Chance with which that many requests as are said to decide are meant to decide."""

MOST_TIMES = 1e3
"""More than that many times the trials are never needed: 244 times where a share is the target."""

BATCHES = 30
FEW = 5
"""Batches that there are at least, however long the memory: fewer say nothing of their variance."""

MANY = 20
"""Batches as long as the fleet's memory from which on a percentile is bounded from above: of runs
of the chat scenario at 22 and 23 requests/s that had 5 to 10, half of the bounds on a p99 of the
TPOT were too low, since a run without a crowd does not show how late requests are in one."""

LEAST = math.ceil(math.log(TAIL) / math.log(SHARE))
"""Independent values from which on the largest of them is a bound for p99: 368."""

ENOUGH = re.compile(
    r"(About|At least|Simulate) ([\d,]+) requests (would do|are needed|or more)\.(?= |$)"
)
"""The sentence of ``precision`` that says how many requests are enough."""

METRICS = ("ttft", "tpot", "e2el")

WIDE = 0.25
"""A run is too short for a percentile if the interval is wider than this share of the value."""

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
    return percentile_interval(values, SHARE)


def percentile_interval(values: Floats, share: float, memory: float | None = None) -> Interval:
    """The interval of the latency that ``share`` of ``values`` keep, in the order in which they
    came; ``memory`` as in ``inflation``."""
    n = len(values)
    if not n:
        return Interval(None, None, 0, 0)
    above = values > np.percentile(values, 100 * share)
    effective = max(1, int(n / inflation(above, memory)))
    few, many = _exceedances(effective, share)
    scale = n / effective
    # that many values lie above each bound
    above_low = min(n, math.ceil(many * scale)) - 1
    low = float(np.partition(values, n - 1 - above_low)[n - 1 - above_low])
    if few is None or (memory is not None and n < MANY * memory):
        return Interval(low, None, n, effective)
    above_high = math.floor(few * scale) if memory is None else math.ceil((few + 1) * scale) - 1
    high = float(np.partition(values, n - 1 - above_high)[n - 1 - above_high])
    return Interval(low, high, n, effective)


def inflation(indicator: NDArray[np.bool_], memory: float | None = None) -> float:
    """By how much correlation widens the variance of the mean of ``indicator``; at least 1.

    Batch means. With a ``memory`` (``long_enough.relaxation``) batches are at least that many
    requests long, as far as there are ``FEW`` of them (of 5 to 30 batches, see Schmeiser, Batch
    Size Effects in the Analysis of Simulation Output, Operations Research 30, 1982), and the
    inflation is the one with which a normal interval is as wide as that of Student's t.
    """
    count = BATCHES
    if memory is not None:
        count = max(FEW, min(BATCHES, int(len(indicator) / max(1.0, memory))))
    size = len(indicator) // count
    share = float(indicator.mean())
    if not size or share in (0.0, 1.0):
        return 1.0
    means = indicator[: size * count].reshape(count, size).mean(axis=1)
    widened = float(means.var(ddof=1)) * size / (share * (1 - share))
    return max(1.0, widened if memory is None else widened * (student95(count - 1) / Z95) ** 2)


def student95(freedom: int) -> float:
    """How many standard errors a 95 % interval reaches by Student's t, with 4 degrees of freedom or
    more (Abramowitz and Stegun, 26.7.5; SciPy takes longer to import than many runs take).

    >>> student95(4), student95(29)  # 2.776 and 2.045 in tables
    (2.769, 2.045)
    """
    z = Z95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return round(z + sum(term * (1 / freedom) ** power for power, term in enumerate(terms, 1)), 3)


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


def enough_to_decide(share: float, target: float, trials: float) -> float:
    """Independent trials with which the interval (``wilson``) will probably (``POWER``) leave
    ``target`` out, after a ``share`` seen in fewer of them; infinite where no number would do.

    >>> few = enough_to_decide(0.985, 0.99, 1000)
    >>> wilson(0.985, few)[1] < 0.99, 2000 < few < 50_000
    (True, True)
    >>> enough_to_decide(0.5, 0.5, 100) < 30_000  # the next trials will show a side
    True
    >>> enough_to_decide(0.0, 1e-200, 10) > 1e200  # as many as prove it if none is ever seen
    True
    """
    spread = target * (1 - target)
    if not spread or not trials:
        return math.inf
    apart = abs(share - target) / math.sqrt(spread / trials)
    wanted = trials * times_to_decide(apart)
    if share in (0.0, 1.0):
        wanted = max(
            wanted, Z95 * Z95 * (target / (share - target)) * ((1 - target) / (share - target))
        )
    return wanted


def times_to_decide(apart: float) -> float:
    """How many times as many trials will probably (``POWER``) leave a target out of their 95 %
    interval, after some whose mean lies ``apart`` standard errors from it.

    With r times the trials, those known among them, the mean is normal around what was seen, with
    the variance 1 - 1/r, and the interval sqrt(r) times narrower. At least 1.

    >>> times_to_decide(1.9) < times_to_decide(1.0) < times_to_decide(0.0) < 300
    True
    """
    if apart > Z95:
        return 1.0
    low, high = 0.0, math.log(MOST_TIMES)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _decided(apart, math.exp(middle)) > POWER else (middle, high)
    return math.exp(high)


def _decided(apart: float, times: float) -> float:
    """The chance that this many times the trials leave the target out, on either side."""
    spread, half = math.sqrt(1 - 1 / times), Z95 / math.sqrt(times)
    normal = NormalDist()
    return normal.cdf((apart - half) / spread) + normal.cdf((-apart - half) / spread)


def share_interval(held: NDArray[np.bool_], memory: float | None = None) -> tuple[float, float]:
    """The 95 % interval (Wilson) of the share of requests of which something ``held``.

    They are given in the order in which they came: neighbours share a queue, so that they count as
    fewer independent ones (``inflation``, as is ``memory``).

    >>> share_interval(np.ones(100, dtype=bool))[1]
    1.0
    """
    if not len(held):
        return 0.0, 1.0
    return wilson(float(held.mean()), len(held) / inflation(held, memory))


def _exceedances(n: int, share: float) -> tuple[int | None, int]:
    """How many of ``n`` independent values lie above the one that ``share`` of all stay within.

    The largest number that is too few to be likely (None: no number is) and the smallest that is
    too many: each is exceeded towards its side with a chance of at most ``TAIL``.
    """
    mean = n * (1 - share)
    top = min(n, int(mean + 12 * math.sqrt(mean) + 30))
    k = np.arange(top)
    steps = np.log((n - k) / (k + 1) * (1 - share) / share)
    logarithm = n * math.log(share) + np.concatenate([[0.0], np.cumsum(steps)])
    chance = np.cumsum(np.exp(logarithm))  # of at most that many
    few = int(np.searchsorted(chance, TAIL, side="right")) - 1
    return (None if few < 0 else few), int(np.searchsorted(chance, 1 - TAIL)) + 1


def precision(run: RunRecord, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The ``precision`` entry of the summary: an interval (ms) for each p99 and for the percentile
    that the SLO asks for, and what they say.

    ``sufficient`` is about that percentile, ``percentile`` its name (p99 without an SLO). It is
    None where the percentile of the run is no property of the system, by its ``verdict``,
    ``requests_needed`` a number where the run is too short. The text names the most requests that
    anything asks for: one number, of the verdict or of the percentile. The empty start of a run
    that has not settled lowers every latency: it bounds them from below only. Where more may arrive
    than is served there is nothing to bound, and the entries are of these requests alone.
    """
    share = _asked(run)
    rank = rank_of(share)
    counted = run.completed & ~run.warmup
    several = counted & (run.requests["output_tokens"] > 1)
    latencies = {
        name: run.latency(name)[several if name == "tpot" else counted] for name in METRICS
    }
    asked = dict.fromkeys([("p99", SHARE), (rank, share)])
    why = _unstated(run, verdict["state"], counted)
    if why is not None:
        empty = {"low": None, "high": None, "effective_samples": None}
        entries: dict[str, Any] = {
            f"{each}_{name}_ms": {**empty, "samples": len(values)}
            for each, _ in asked
            for name, values in latencies.items()
        }
        told = {"sufficient": None, "requests_needed": None}
        return entries | told | {"percentile": rank, "text": f"Not stated for {rank}: {why}."}
    entries, values_at = {}, {}
    settled = verdict["settled"] is not False
    memory = verdict["relaxation_requests"] if settled else None
    bounded = settled or verdict["utilisation"] + 2 * verdict["utilisation_error"] >= 1
    for each, wanted in asked:
        for name, values in latencies.items():
            key = f"{each}_{name}_ms"
            found = percentile_interval(values, wanted, memory)
            entries[key] = {
                "low": None if found.low is None else found.low * 1e3,
                "high": found.high * 1e3 if found.high is not None and bounded else None,
                "samples": found.samples,
                "effective_samples": found.effective,
            }
            if found.samples and each == rank:
                values_at[key] = float(np.percentile(values, 100 * wanted)) * 1e3
    return (
        entries
        | {"percentile": rank}
        | _of_a_trace(conclusion(entries, values_at, len(run.requests), verdict=verdict), run)
    )


def _of_a_trace(found: dict[str, Any], run: RunRecord) -> dict[str, Any]:
    """``found`` with a word on a trace that was played to its end: it has no more requests."""
    workload, played = run.scenario.workload, len(run.requests)
    if found["sufficient"] or workload.trace is None or played == run.scenario.run.requests:
        return found
    if played < run.offered:
        text = f"{found['text']} The trace has {run.offered:,} in all."
        return {**found, "text": text}
    return {**found, "text": f"{found['text']} The trace has no more than these {played:,}."}


def _asked(run: RunRecord) -> float:
    """The share of requests for which the SLO sets limits; of several percentiles the highest."""
    slo = run.scenario.slo
    shares = [slo.attainment] if slo.together else []
    shares += [each.percentile / 100 for each in slo.apart]
    return max((share for share in shares if share < 1), default=SHARE)


def rank_of(share: float) -> str:
    """What the percentile of a share is called.

    >>> rank_of(0.95), rank_of(0.999)
    ('p95', 'p99.9')
    """
    return f"p{100 * share:.9g}"


def _unstated(run: RunRecord, state: str, counted: NDArray[np.bool_]) -> str | None:
    """Why a percentile of the run is no property of the system; None if it is."""
    arrivals = run.scenario.workload.arrivals
    if arrivals is not None and arrivals.kind in ("ramp", "diurnal"):
        return "the rate of arrivals changes"
    why = NO_PERCENTILE.get(state)
    return "every request belongs to the warm-up" if why is None and not counted.any() else why


def conclusion(
    entries: Mapping[str, Mapping[str, Any]],
    values: Mapping[str, float],
    requests: int,
    repetitions: int = 1,
    verdict: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """``sufficient``, ``requests_needed`` and ``text`` for intervals of ``values`` (ms), all of one
    percentile: ``p99_ttft_ms`` and so on.

    They come of ``requests`` requests, sent in that many ``repetitions``. The text of a single run
    asks for at least as many as its ``verdict`` does.
    """
    rank = next((key.split("_")[0] for key in values), "p99")
    least = math.ceil(math.log(TAIL) / math.log(float(rank[1:]) / 100))
    decides, settles = (0, None) if verdict is None else _asked_for(verdict)
    memory = 0.0 if verdict is None else verdict["relaxation_requests"] or 0.0
    least_times = max(1.0, MANY * memory / requests)
    found, factor, bounded = [], 1.0, True
    for key, value in values.items():
        low, high = entries[key]["low"], entries[key]["high"]
        name = key.split("_")[1].upper()
        if high is None:
            more = max(least_times, least / entries[key]["effective_samples"])
        else:
            more = ((high - low) / (WIDE * value)) ** 2 if value else 1.0
        if high is None or settles is not None:
            found.append((True, f"{name} above {_ms(low)}"))
        else:
            found.append((more > 1, f"{name} {_ms(low)} to {_ms(high)}"))
        if more > factor:
            factor, bounded = more, high is not None
    if not any(short for short, _ in found):
        listed = ", ".join(text for _, text in found)
        text = f"Enough requests for a {rank}: {listed} (95 % confidence)."
        return {"sufficient": True, "requests_needed": None, "text": text}
    listed = ", ".join(text for short, text in found if short)
    needed = rounded_up(requests * factor)
    if settles is not None and factor <= 1:
        needed = settles
    if repetitions > 1:
        enough = f"About {rounded_up(repetitions * factor):,} repetitions would do."
    elif settles is not None:
        enough = f"Simulate {settles:,} requests or more."
    elif bounded or decides >= needed:
        enough = f"About {max(needed, decides):,} requests would do."
    else:
        enough = f"At least {needed:,} requests are needed."
    return {
        "sufficient": False,
        "requests_needed": needed,
        "text": f"Too few requests for a {rank}; with 95 % confidence it is {listed}. {enough}",
    }


def asking(text: str, number: int) -> str:
    """The text of ``precision`` with another ``number`` of requests to ask for.

    >>> asking("Too few requests for a p99. About 2,000 requests would do.", 5000)
    'Too few requests for a p99. Simulate 5,000 requests or more.'
    """
    return ENOUGH.sub(f"Simulate {number:,} requests or more.", text)


def asked_in(text: str) -> int | None:
    """The number of requests that the text of ``precision`` asks for; None if it asks for none."""
    found = ENOUGH.search(text)
    return None if found is None else int(found[2].replace(",", ""))


def _asked_for(verdict: Mapping[str, Any]) -> tuple[int, int | None]:
    """The requests that a verdict asks for to decide the SLO, 0 if none, and all in all where the
    run has not settled, None if it has."""
    decides, settles = verdict["requests_to_decide"] or 0, verdict["requests_to_settle"]
    return decides, None if settles is None else max(settles, decides)


def _ms(milliseconds: float) -> str:
    return show_time(milliseconds / 1e3)


def rounded_up(number: float) -> int:
    """Two significant digits.

    >>> rounded_up(1234.5), rounded_up(7.2), rounded_up(90)
    (1300, 8, 90)
    """
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return math.ceil(number / unit) * unit
