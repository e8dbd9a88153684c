"""Tries fleets that hold the load: what they hold at most, and at both ends of the error band.

The ends of a fleet are asked for as soon as it is sized, while others still are, and those that
take longest begin first, so that no process waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sim.planning.fleet.fleet_ends import FleetEnds, fewest_if_faster, if_slower
from sim.planning.fleet.sizing import Confirmed, FleetSearch, Sized, confirm
from sim.planning.load.advance import PlanSteps
from sim.planning.points.crew import Crew, CrewCall
from sim.planning.points.simulated import Simulated

EndCalls = tuple[CrewCall[FleetEnds], CrewCall[int]]
"""The calls that say what a fleet is at the slower and at the faster end of its band."""


def begin_ends(crew: Crew, search: FleetSearch, fleet: Sized) -> EndCalls:
    """Ask what ``fleet`` is at both ends of its band."""
    asked, later = (search, fleet), 1 / fleet.replicas
    return (
        crew.begin(counted_in, if_slower, *asked, later=later),
        crew.begin(counted_in, fewest_if_faster, *asked, later=later),
    )


def tried(
    crew: Crew,
    search: FleetSearch,
    fleets: Sequence[Sized],
    confirmed: Sequence[bool],
    ends: Sequence[EndCalls],
    steps: PlanSteps,
) -> list[tuple[Confirmed | None, FleetEnds]]:
    """The outcome of each fleet: the highest load that it holds, None unless it is to be
    ``confirmed``, and its ``ends``, which were asked for; each is one of ``steps``."""
    best = [
        crew.begin(counted_in, confirm, search, fleet, later=1 / fleet.replicas) if wanted else None
        for fleet, wanted in zip(fleets, confirmed, strict=True)
    ]
    asked: list[CrewCall[Any]] = [call for call in best if call is not None]
    asked += [slower for slower, _ in ends]
    for _ in crew.as_done(asked):
        steps.did()
    crew.finish([faster for _, faster in ends])
    return [
        (None if call is None else call.result, replace(slower.result, fewest=faster.result))
        for call, (slower, faster) in zip(best, ends, strict=True)
    ]


def counted_in(
    simulated: Simulated | None, trial: Callable[..., Any], search: FleetSearch, what: Any
) -> Any:
    """The outcome of a trial, whose requests are counted."""
    return trial(replace(search, simulated=simulated), what)
