"""Simulates the requests that come after those of a run too short for its load.

Near saturation a fleet takes long to fill, so that a short run shows its empty start. Where the
verdict says that a run has not settled, the same traffic goes on for a while: what becomes of the
requests that come later is measured, not guessed. It costs about ``TIMES`` the run, or ``LEAST``
requests. Seconds in, milliseconds out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.loop.clock import Stop
from sim.metrics.record.recorded import STEADY
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import SloState
from sim.scenario import Scenario
from sim.simulation import simulate
from sim.units import show_share, show_time

TIMES = 3
"""Times as many requests as the run has that are simulated."""

LEAST = 5000
"""Requests that take less time than the start of the program, however short the run is."""

METRICS = ("ttft", "tpot")


def run_later(
    scenario: Scenario, summary: Mapping[str, Any], *, stop: Stop | None = None
) -> dict[str, Any] | None:
    """The entry ``infersim.later`` of a run: how the requests after its own fare.

    None where the run has settled, where the traffic does not go on as it is (a trace, a rate that
    changes, a horizon), with repetitions, or after an interrupt.
    """
    wanted = summary["infersim"]["verdict"].get("requests_to_settle")
    if wanted is None or not goes_on(scenario):
        return None
    first = int(summary["infersim"]["requests"]["submitted"])
    requests = min(int(wanted), most_later(first))
    if requests <= first:
        return None
    result = simulate(scenario.override({"run.requests": requests}), stop=stop)
    if result.interrupted:
        return None
    run, verdict = result.record, result.summary["infersim"]["verdict"]
    late = np.arange(len(run.requests)) >= first
    found = {
        "requests": requests,
        "after": first,
        "attainment": _attainment(run, late),
        **{f"p99_{metric}_ms": _p99_ms(run, metric, late) for metric in METRICS},
        "state": verdict["state"],
        "slo_state": verdict["slo_state"],
    }
    return found | {"text": _text(found, summary)}


def most_later(requests: int) -> int:
    """The most requests that are worth simulating for a run of so many ``requests``."""
    return max(TIMES * requests, LEAST)


def goes_on(scenario: Scenario) -> bool:
    """Whether a longer run of a scenario is one of the same traffic."""
    arrivals, run = scenario.workload.arrivals, scenario.run
    steady = arrivals is not None and arrivals.kind in STEADY
    return steady and run.horizon is None and run.repetitions == 1


def _attainment(run: RunRecord, late: Any) -> float | None:
    """The share of the ``late`` requests within the limits that hold together; None without."""
    limits = run.scenario.slo.together
    counted = late & ~run.set_aside(limits)
    return float(run.within_slo[counted].mean()) if limits and counted.any() else None


def _p99_ms(run: RunRecord, metric: str, late: Any) -> float | None:
    values = run.latency(metric)[late & run.completed]
    values = values[~np.isnan(values)]
    return float(np.percentile(values, 99)) * 1e3 if len(values) else None


def _text(found: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The fate of the later requests, next to the results of this run."""
    verdict, share = summary["infersim"]["verdict"], found["attainment"]
    parts = []
    if share is not None:
        target = verdict["target"]
        here = "" if verdict["attainment"] is None else show_share(verdict["attainment"], target)
        parts.append(f"{show_share(share, target)} are within the SLO ({here} of these)")
    for metric in METRICS:
        then, now = found[f"p99_{metric}_ms"], summary[f"p99_{metric}_ms"]
        if then is not None and now is not None:
            parts.append(
                f"{metric.upper()} p99 is {show_time(then / 1e3)} ({show_time(now / 1e3)})"
            )
    word = {SloState.MET: "meets", SloState.MISSED: "misses"}.get(found["slo_state"])
    ending = "" if word is None else f" That run {word} the SLO at the predicted times."
    return (
        f"Requests that come later, {found['after'] + 1:,} to {found['requests']:,} of the same "
        f"traffic: {', '.join(parts)}.{ending}"
    )
