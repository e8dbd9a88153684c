"""Tries fleets that hold the load: what they hold at most, and at both ends of the error band.

All trials of all fleets are one list, so that no process waits for another; those that take longest
begin first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.metrics.objectives import Objective
from sim.planning.fleet.sizing import (
    Confirmed,
    FleetEnds,
    Sized,
    confirm,
    fewest_if_faster,
    if_slower,
)
from sim.planning.load.advance import PlanSteps
from sim.planning.points.executors import calls
from sim.planning.points.simulated import Simulated
from sim.scenario import Scenario

if TYPE_CHECKING:
    from sim.planning.fleet.choose import FleetQuestion

TOLERANCE = 0.02


def tried(
    scenario: Scenario,
    question: FleetQuestion,
    objectives: Sequence[Objective],
    fleets: Sequence[Sized],
    confirmed: Sequence[bool],
    jobs: int,
    steps: PlanSteps,
) -> list[tuple[Confirmed | None, FleetEnds]]:
    """What comes of each fleet: the highest load that it holds, None unless it is to be
    ``confirmed``, and its ends; each is one of ``steps``."""
    target, rate, scale = question.target, question.rate, question.scale
    asked: dict[tuple[int, Callable[..., Any]], tuple[Any, ...]] = {}
    for number, (fleet, wanted) in enumerate(zip(fleets, confirmed, strict=True)):
        if wanted:
            asked[number, confirm] = (scenario, fleet, rate, objectives, TOLERANCE, scale)
        for end in (if_slower, fewest_if_faster):
            asked[number, end] = (scenario, fleet, target, rate, objectives, scale)
    longest_first = sorted(asked, key=lambda each: -fleets[each[0]].replicas)
    arguments = [(trial, *asked[number, trial]) for number, trial in longest_first]
    tries = calls(partial(_made, steps.simulated), arguments, jobs, steps.show)
    found: dict[tuple[int, Callable[..., Any]], Any] = {}
    for each, result in zip(longest_first, tries, strict=True):
        found[each] = result
        if each[1] is not fewest_if_faster:
            steps.did()
    return [
        (
            found.get((number, confirm)),
            replace(found[number, if_slower], fewest=found[number, fewest_if_faster]),
        )
        for number in range(len(fleets))
    ]


def _made(simulated: Simulated | None, trial: Callable[..., Any], *arguments: Any) -> Any:
    return trial(*arguments, simulated)
