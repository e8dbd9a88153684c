"""Sizes a fleet again for iterations that are faster or slower than predicted.

A capacity within an SLO reacts more strongly than in proportion to the speed of iterations, so that
the ends of the error band are simulated, not scaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.band_runs import end_factors
from sim.metrics.bands.bands import half_of
from sim.planning.fleet.sizing import FAR, FleetSearch, Sized, smallest_fleet
from sim.planning.load.lasting import lasting
from sim.planning.points.wording import LoadOutcome

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


def fewest_if_faster(search: FleetSearch, sized: Sized) -> int:
    """The replicas that hold the target load if iterations are faster by the error band."""
    error, mine, spare = sized.at_target.error, sized.replicas, sized.survive
    least, fewer = spare + 1, mine - 1
    if not error or fewer < least:
        return mine
    factor = end_factors(error)[0]
    faster = search.of_layout(sized.layout, factor)
    guess = min(fewer, max(least, math.ceil(mine * factor ** _power(sized))))
    return smallest_fleet(faster, search.question, least, guess, fewer, ENDS) or mine


def if_slower(search: FleetSearch, sized: Sized) -> FleetEnds:
    """The effect of slower iterations on the size of a fleet, whose ``fewest`` are its own."""
    error, mine, left = sized.at_target.error, sized.replicas, sized.replicas - sized.survive
    if not error:
        return FleetEnds(0.0, mine, mine, True)
    factor = end_factors(error)[1]
    slower, rate = search.of_layout(sized.layout, factor), search.question.rate
    at_end = lasting(slower, rate, left)
    at_half = at_end.holds and at_end.sure
    if not at_half:
        half = search.of_layout(sized.layout, 1 + half_of(error))
        at_half = lasting(half, rate, left).outcome == LoadOutcome.HOLDS
    guess = int(mine * factor ** _power(sized))
    most = smallest_fleet(slower, search.question, mine, guess, FAR * mine, ENDS)
    return FleetEnds(error, mine, most, at_end.holds, at_half, at_end.sure)


def _power(sized: Sized) -> float:
    """By what power of the times a fleet within its limits grows: the load of each replica must
    fall until latencies, which are as many times as long, are within their limits again."""
    return 1 + 1 / sized.slope
