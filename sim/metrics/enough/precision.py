"""Decides whether a run is long enough for its p99, by the distance to that of an endless run.

The 95 % intervals are those of ``intervals``: the chance in the traffic of one run, not the error
of the cost model. Seconds in, milliseconds out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.enough.needed_requests import come_with
from sim.metrics.latency.intervals import MANY, SHARE, TAIL, percentile_interval, rounded_up
from sim.metrics.load.usual_sessions import usual
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import State
from sim.metrics.texts import Composed
from sim.units import show_time

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
        return (
            entries | told | {"percentile": rank, "text": _text(f"Not stated for {rank}: {why}.")}
        )
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
    told = _of_a_trace(conclusion(entries, values_at, len(run.requests), verdict=verdict), run)
    return entries | {"percentile": rank} | _of_sessions(told, run, verdict["reach"])


def _of_a_trace(found: dict[str, Any], run: RunRecord) -> dict[str, Any]:
    """``found`` with a word on a trace that was played to its end: it has no more requests."""
    workload, played = run.scenario.workload, len(run.requests)
    if found["sufficient"] or workload.trace is None or played == run.scenario.run.requests:
        return found
    if played < run.offered:
        more = f" The trace has {run.offered:,} in all."
    else:
        more = f" The trace has no more than these {played:,}."
    return {**found, "text": found["text"].saying(trace=more)}


def _of_sessions(
    found: dict[str, Any], run: RunRecord, reach: Mapping[str, Any] | None
) -> dict[str, Any]:
    """``found``, which asks for as many requests as the sessions of a run need: what is missing of
    their later turns is in no interval."""
    expected = usual(run)
    if expected is None or not expected.outlasts(run.duration):
        return found
    if expected.enough <= (found["requests_needed"] or 0):
        return found
    text = found["text"]
    if found["sufficient"]:
        text = text.saying(found=f"{text} Of its sessions later turns are missing. ")
    return {
        "sufficient": False,
        "requests_needed": expected.enough,
        "text": asking(text, expected.enough, reach),
    }


def _asked(run: RunRecord) -> float:
    """The share of requests for which the SLO sets limits; of several percentiles the highest."""
    slo = run.scenario.slo
    shares = [slo.attainment] if slo.together else []
    shares += [each.percentile / 100 for each in slo.apart]
    return max((share for share in shares if share < 1), default=SHARE)


def rank_of(share: float) -> str:
    """The percentile name of a share.

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
        return {"sufficient": True, "requests_needed": None, "text": _text(text)}
    listed = ", ".join(text for short, text in found if short)
    needed = rounded_up(requests * factor)
    if settles is not None and factor <= 1:
        needed = settles
    text = f"Too few requests for a {rank}; with 95 % confidence it is {listed}. "
    if repetitions > 1:
        text += f"About {rounded_up(repetitions * factor):,} repetitions would do."
        return {"sufficient": False, "requests_needed": needed, "text": Composed({"found": text})}
    if settles is not None:
        wanted, asks = settles, f"Simulate {settles:,} requests or more."
    elif bounded or decides >= needed:
        wanted = max(needed, decides)
        asks = f"About {wanted:,} requests would do."
    else:
        wanted, asks = needed, f"At least {needed:,} requests are needed."
    reach = None if verdict is None else verdict["reach"]
    return {
        "sufficient": False,
        "requests_needed": needed,
        "text": _text(text, asks, come_with(reach, wanted)),
    }


def _text(found: str, asks: str = "", reach: str = "") -> Composed:
    """The note on what was ``found``, how many requests it ``asks`` for, and the settings that
    bring them (``reach``); between these stands what the trace has."""
    return Composed({"found": found, "asks": asks, "trace": "", "reach": reach})


def asking(text: Composed, number: int, found: Mapping[str, Any] | None) -> Composed:
    """The text of ``precision`` with another ``number`` of requests to ask for, unless it asks for
    repetitions, and with the settings that bring them where ``run.horizon`` keeps them out
    (``found``, by ``reach``)."""
    reach = come_with(found, number)
    if "asks" not in text.parts:
        return text.saying(reach=reach)
    return text.saying(asks=f"Simulate {number:,} requests or more.", reach=reach)


def _asked_for(verdict: Mapping[str, Any]) -> tuple[int, int | None]:
    """The requests that a verdict asks for to decide the SLO, 0 if none, and all in all where the
    run has not settled, None if it has."""
    decides, settles = verdict["requests_to_decide"] or 0, verdict["requests_to_settle"]
    return decides, None if settles is None else max(settles, decides)


def _ms(milliseconds: float) -> str:
    return show_time(milliseconds / 1e3)
