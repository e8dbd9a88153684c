"""Evaluates one point: a pure function of scenario and point, for any process to call.

What a process has read of the catalogue, the profiles above all, it keeps for its next points.
"""

from __future__ import annotations

from typing import Any

from sim.band_runs import run_ends
from sim.errors import InfeasibleError, InfersimError
from sim.loop.clock import Stop
from sim.metrics.bands.figure_bands import figure_bands
from sim.metrics.engine.decode_pace import decode_pace
from sim.planning.points.points import Outcome, Point
from sim.scenario import Scenario
from sim.simulation import simulate


def evaluate(scenario: Scenario, point: Point) -> Outcome:
    """Simulate ``scenario`` with the settings of ``point``.

    Never raises for what is wrong with the point: that is in the outcome, be it a mistake, a model
    that does not fit, or a user's own policy that fails. Points share the scenario's seed, and so
    its random traffic, unless they set another. Ctrl-C interrupts at once: half a run is no
    outcome.
    """
    try:
        changed = scenario.override(point.settings)
        result = simulate(changed, stop=Stop())
        summary = result.summary
        check_served(summary)
        ends = run_ends(changed, summary, stop=Stop()) if point.at_ends else None
        if ends is not None:
            result.add_ends(ends)
        if point.banded:
            summary["infersim"]["bands"] = figure_bands(result.record, summary, ends)
        pace = decode_pace(result.record) if point.banded else None
        if point.keep is not None:
            point.keep(result)
    except InfersimError as error:
        return Outcome(point, None, str(error), error.exit_code)
    except Exception as error:
        return Outcome(point, None, f"{type(error).__name__}: {error}", InfersimError.exit_code)
    return Outcome(point, summary, None, 0, pace)


def check_served(summary: dict[str, Any]) -> None:
    """Raise InfeasibleError, with the reasons, for a run of which no request was completed."""
    if summary["completed"]:
        return
    reasons = summary["infersim"]["requests"]["rejected_reasons"]
    told = "; ".join(f"{count:,} {reason}" for reason, count in reasons.items())
    raise InfeasibleError("nothing could be served", told)
