"""Decides whether a run is long enough for its p99, by the distance to that of an endless run.

The 95 % intervals are those of ``intervals``: the chance in the traffic of one run, not the error
of the cost model. Seconds in, milliseconds out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.intervals import MANY, SHARE, TAIL, percentile_interval, rounded_up
from sim.metrics.run_record import RunRecord
from sim.metrics.states import State
from sim.units import show_time

ENOUGH = re.compile(
    r"(About|At least|Simulate) ([\d,]+) requests (would do|are needed|or more)\.(?= |$)"
)
"""The sentence of ``precision`` that says how many requests are enough."""

METRICS = ("ttft", "tpot", "e2el")

WIDE = 0.25
"""A run is too short for a percentile if the interval is wider than this share of the value."""

NO_PERCENTILE: Mapping[str, str] = {
    State.OFFLINE: "with all requests there from the start, latencies depend on their number",
    State.OVERLOADED: "in an overload latencies depend on how long it goes on",
    State.NOTHING_SERVED: "no request was completed",
}
"""States in which the p99 is no property of the system, and why."""


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
