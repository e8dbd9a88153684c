"""Sizes a fleet again for iterations that are faster or slower than predicted.

Simulated, with the fleet's router and traffic: a capacity within an SLO reacts more strongly than
in proportion to the speed of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.ends import at_factor, end_factors
from sim.metrics.promises import Promise
from sim.planning.find import Finder
from sim.planning.loads import Scale
from sim.planning.sizing import FAR, Sized, smallest
from sim.scenario import Scenario


@dataclass(frozen=True)
class FleetEnds:
    """Replicas for the target load if iterations are faster (``fewest``) and slower (``most``) by
    the share ``error``; None if ``FAR`` times as many do not hold it either.

    ``holds_if_slower``: whether the fleet of the predicted size still holds the wanted load,
    without headroom, if iterations are slower.
    """

    error: float
    fewest: int
    most: int | None
    holds_if_slower: bool


def fleet_ends(
    scenario: Scenario,
    sized: Sized,
    target: float,
    rate: float,
    promises: Sequence[Promise],
    scale: Scale = "compress",
) -> FleetEnds:
    """What the error band of iteration times does to the size of a fleet.

    ``target`` is the load that the fleet must hold, ``rate`` that without headroom; requests per
    second. ``scale`` says how a trace gets them.
    """
    error, mine = sized.at_target.error, sized.replicas
    if not error:
        return FleetEnds(0.0, mine, mine, True)
    own = scenario.override(sized.layout.settings(scenario))
    faster, slower = (
        Finder(at_factor(own, factor), "rate", promises, scale) for factor in end_factors(error)
    )

    def fewer_hold(replicas: int) -> bool:
        return replicas >= mine or faster.probe(target, replicas).holds

    def more_hold(replicas: int) -> bool:
        return slower.probe(target, replicas).holds

    fewest = smallest(fewer_hold, 1, max(1, mine - 1), mine)
    assert fewest is not None
    return FleetEnds(
        error=error,
        fewest=fewest,
        most=smallest(more_hold, mine, mine, FAR * mine),
        holds_if_slower=slower.probe(rate, mine).holds,
    )
