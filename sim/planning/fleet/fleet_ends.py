"""Sizes a fleet again for iterations that are faster or slower than predicted.

A capacity within an SLO reacts more strongly than in proportion to the speed of iterations, so that
the ends of the error band are simulated, not scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.band_runs import at_factor, end_factors
from sim.metrics.bands.bands import half_of
from sim.metrics.slo.objectives import Objective
from sim.planning.fleet.sizing import FAR, Sized, smallest_fleet
from sim.planning.load.advance import Advance
from sim.planning.load.finder import Finder
from sim.planning.load.lasting import lasting
from sim.planning.load.loads import Scale
from sim.planning.points.simulated import Simulated
from sim.planning.points.wording import LoadOutcome
from sim.scenario import Scenario

ENDS = 0.125
"""How close together two numbers of replicas are, as a share, between which strain says how many
those at the ends of the band are: of fewer than sixteen, the very number."""


@dataclass(frozen=True)
class FleetEnds:
    """Replicas for the target load if iterations are faster (``fewest``) and slower (``most``) by
    the share ``error``; None if ``FAR`` times as many do not hold it either.

    ``holds_if_slower``: whether the fleet of the predicted size still holds the wanted load,
    without headroom, if iterations are slower, and ``sure_if_slower`` whether chance leaves no
    doubt of that; ``holds_at_half``: whether it surely does if they are slower by the 50 % band
    alone.
    """

    error: float
    fewest: int
    most: int | None
    holds_if_slower: bool
    holds_at_half: bool = True
    sure_if_slower: bool = True


def fewest_if_faster(
    scenario: Scenario,
    sized: Sized,
    target: float,
    rate: float,
    objectives: Sequence[Objective],
    scale: Scale = "compress",
    simulated: Simulated | None = None,
) -> int:
    """The replicas that hold ``target`` requests per second if iterations are faster by the error
    band."""
    error, mine, spare = sized.at_target.error, sized.replicas, sized.survive
    least, fewer = spare + 1, mine - 1
    if not error or fewer < least:
        return mine
    factor = end_factors(error)[0]
    faster = _at(scenario, sized, objectives, scale, factor, simulated)
    guess = min(fewer, max(least, math.ceil(mine * factor ** _power(sized))))
    return smallest_fleet(faster, target, rate, spare, least, guess, fewer, ENDS) or mine


def if_slower(
    scenario: Scenario,
    sized: Sized,
    target: float,
    rate: float,
    objectives: Sequence[Objective],
    scale: Scale = "compress",
    simulated: Simulated | None = None,
) -> FleetEnds:
    """The effect of slower iterations on the size of a fleet, whose ``fewest`` are its own.

    ``target`` is the load that the fleet must hold, ``rate`` that without headroom; requests per
    second. ``scale`` says how a trace gets them.
    """
    error, mine, spare = sized.at_target.error, sized.replicas, sized.survive
    if not error:
        return FleetEnds(0.0, mine, mine, True)
    factor = end_factors(error)[1]
    slower = _at(scenario, sized, objectives, scale, factor, simulated)
    at_end = lasting(slower, rate, mine - spare)
    at_half = at_end.holds and at_end.sure
    if not at_half:
        half = _at(scenario, sized, objectives, scale, 1 + half_of(error), simulated)
        at_half = lasting(half, rate, mine - spare).outcome == LoadOutcome.HOLDS
    guess = int(mine * factor ** _power(sized))
    most = smallest_fleet(slower, target, rate, spare, mine, guess, FAR * mine, ENDS)
    return FleetEnds(error, mine, most, at_end.holds, at_half, at_end.sure)


def _power(sized: Sized) -> float:
    """By what power of the times a fleet within its limits grows: the load of each replica must
    fall until latencies, which are as many times as long, are within their limits again."""
    return 1 + 1 / sized.slope


def _at(
    scenario: Scenario,
    sized: Sized,
    objectives: Sequence[Objective],
    scale: Scale,
    factor: float,
    simulated: Simulated | None,
) -> Finder:
    """The finder for the same fleet with all times multiplied by ``factor``."""
    own = scenario.override(sized.layout.settings(scenario))
    return Finder(at_factor(own, factor), "rate", objectives, scale, Advance(None, simulated))
