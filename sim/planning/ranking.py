"""How far can the ranking of fleets be trusted, and which of them are worth a look?

The error band of the cost model says how much faster or slower iterations may really be. A fleet
whose replicas are slower needs more of them: so each has a range of costs, and a rank survives if
no fleet behind it could be cheaper, even if one errs in its favour and the other against it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.planning.choose import Plan
from sim.planning.sizing import Confirmed, Sized


@dataclass(frozen=True)
class Band:
    """Replicas and USD per hour of a fleet if iterations are faster or slower by ``error``.

    ``rivals`` are the fleets behind it that could be cheaper, ``holds_if_slower`` whether the fleet
    as it is would still hold the wanted load, without headroom.
    """

    error: float
    replicas: tuple[int, int]
    cost: tuple[float, float]
    holds_if_slower: bool
    rivals: tuple[str, ...]

    @property
    def survives(self) -> bool:
        """Whether the rank does not depend on the error."""
        return not self.rivals


def bands(plan: Plan) -> list[Band]:
    """The band of each of the best fleets, in their order."""
    target, rate = plan.question.target, plan.question.rate
    found = []
    for index, each in enumerate(plan.best):
        error = each.at_rate.error or 0.0
        replicas = _needed(each, target, error)
        costs = (replicas[0] * each.sized.price, replicas[1] * each.sized.price)
        rivals = tuple(
            f"#{number} {other.layout.text}"
            for number, other in enumerate(plan.sized[index + 1 :], start=index + 2)
            if _least_cost(plan, other, target) < costs[1]
        )
        slower = each.best.load * (1 - error) >= rate
        found.append(Band(error, replicas, costs, slower, rivals))
    return found


def _needed(fleet: Confirmed, target: float, error: float) -> tuple[int, int]:
    """Replicas at speeds that are higher and lower by ``error``."""
    mine = fleet.sized.replicas
    each = fleet.best.load / mine
    fewest = math.ceil(target / (each * (1 + error)))
    most = math.ceil(target / (each * (1 - error))) if error < 1 else mine
    return min(mine, fewest), max(mine, most)


def _least_cost(plan: Plan, other: Sized, target: float) -> float:
    confirmed = next((each for each in plan.best if each.sized == other), None)
    error = other.at_target.error or 0.0
    if confirmed is not None:
        return _needed(confirmed, target, error)[0] * other.price
    return math.ceil(other.replicas / (1 + error)) * other.price


def front(fleets: Sequence[Sized], figure: str) -> list[bool]:
    """Which fleets are on the Pareto front of cost and a latency (``p99_ttft_ms``, say): none is
    cheaper and faster, or one of both and equal in the other."""
    points = [(each.cost, each.at_target.figures[figure]) for each in fleets]
    known = [(cost, value if value is not None else math.inf) for cost, value in points]
    return [
        not any((other[0] <= mine[0] and other[1] <= mine[1] and other != mine) for other in known)
        for mine in known
    ]
