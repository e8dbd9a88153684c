"""Judges how far a plan can be trusted: its ranking, and the runs that decided.

The error band of the cost model says how much faster or slower iterations may really be. A fleet
whose replicas are slower needs more of them: so each has a range of costs, and a rank survives if
no fleet behind it could be cheaper, even if one errs in its favour and the other against it.

Lengths of runs are in requests, ``fleets`` in the order of their ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.planning.fleet.choose import FleetPlan, usd
from sim.planning.fleet.fleet_ends import FleetEnds
from sim.planning.fleet.sizing import Confirmed, Sized
from sim.planning.load.probe import STABILITY, Probe
from sim.planning.points.wording import counted, fleet_text, share
from sim.units import show_load


@dataclass(frozen=True)
class Band:
    """The ends of a fleet whose replica costs ``price`` (USD per hour), and the ``rivals`` that
    could be cheaper than it; ``decided``: chance leaves no doubt that it holds the wanted load at
    the predicted times."""

    ends: FleetEnds
    price: float
    rivals: tuple[str, ...] = ()
    decided: bool = True

    @property
    def error(self) -> float:
        """How far iterations may be off."""
        return self.ends.slower.error

    @property
    def replicas(self) -> tuple[int, int | None]:
        """Replicas if iterations are faster and slower; None where no number that was tried
        holds."""
        return self.ends.fewest, self.ends.most

    @property
    def cost(self) -> tuple[float, float | None]:
        """USD per hour of these."""
        most = self.ends.most
        return self.ends.fewest * self.price, None if most is None else most * self.price

    @property
    def trust(self) -> str:
        """How sure it is that the fleet holds the wanted load."""
        return self.ends.slower.trust(decided=self.decided)

    @property
    def survives(self) -> bool:
        """Whether the rank does not depend on the error."""
        return not self.rivals


def bands(plan: FleetPlan) -> list[Band]:
    """The band of each of the best fleets, in their order."""
    found = []
    for index, (each, ends) in enumerate(zip(plan.best, plan.ends, strict=False)):
        price = each.sized.price
        most = math.inf if ends.most is None else ends.most * price
        behind = zip(plan.sized[index + 1 :], plan.ends[index + 1 :], strict=True)
        rivals = [
            _rival(number if number <= len(plan.best) else None, other, each.sized.cost)
            for number, (other, theirs) in enumerate(behind, start=index + 2)
            if usd(theirs.fewest * other.price) < usd(most)
        ]
        rivals += _unsimulated(plan, most, ends.slower.error)
        found.append(Band(ends, price, tuple(rivals), each.at_rate.sure))
    return found


def _rival(rank: int | None, fleet: Sized, cost: float) -> str:
    """The name of a ``fleet`` that could be cheaper than one of that ``cost``."""
    name = fleet_text(fleet.replicas, fleet.layout.text)
    name = name if rank is None else f"#{rank} {name}"
    return f"{name} (costs as much now)" if usd(fleet.cost) == usd(cost) else name


def _unsimulated(plan: FleetPlan, most: float, error: float) -> list[str]:
    """Layouts that were found too expensive without simulating, by a bound that is proportional to
    the time of an iteration, and that could cost less than ``most`` if theirs were shorter."""
    return [
        f"fleets of {each.layout.text} (not simulated)"
        for each in plan.rejected
        if each.unsimulated and each.cost is not None and each.cost / (1 + error) < most
    ]


def front(fleets: Sequence[Sized], figure: str) -> list[bool]:
    """The fleets that are on the Pareto front of cost and a latency (``p99_ttft_ms``, say): none is
    cheaper and faster, or one of both and equal in the other."""
    points = [(each.cost, each.at_target.figures[figure]) for each in fleets]
    known = [(cost, value if value is not None else math.inf) for cost, value in points]
    return [
        not any((other[0] <= mine[0] and other[1] <= mine[1] and other != mine) for other in known)
        for mine in known
    ]


def run_lengths(
    fleets: Sequence[tuple[int, Probe]], *, lasts: bool, first: int | None = None
) -> dict[str, Any]:
    """Requests of the ``usual`` runs and of those that decided (``answer``), the fleets in order,
    and the sentences on them (``text``). Each of ``fleets`` is how many requests a usual run of it
    has, and what decided that it holds.

    ``lasts`` is whether there are longer runs of the same traffic, ``first`` how many requests of a
    trace the scenario takes, None where it takes all.
    """
    usual = [requests for requests, _ in fleets]
    answer = [probe.per_run for _, probe in fleets]
    return {
        "lasts": lasts,
        "usual": usual,
        "answer": answer,
        "text": _checked(usual, answer) if lasts else _as_simulated(fleets, answer, first),
    }


def _as_simulated(
    fleets: Sequence[tuple[int, Probe]], answer: Sequence[int], first: int | None
) -> list[str]:
    if not fleets[0][1].attained:
        return [
            f"In runs of {_span(answer)} requests: the mean load of the runs decides; chance in it "
            "is not bounded."
        ]
    if first is not None:
        return [
            f"Only {first:,} requests of the trace were taken (run.requests): a fleet may hold "
            "less of all of it."
        ]
    return [
        f"This is about the traffic as it was simulated, {_span(answer)} requests: of more "
        "requests a fleet may hold less."
    ]


def _checked(usual: Sequence[int], answer: Sequence[int]) -> list[str]:
    """The fleets that were checked in longer runs, and why the others were not."""
    ranks = range(len(usual))
    longer = [index for index in ranks if answer[index] > usual[index]]
    short = [index for index in ranks if index not in longer]
    told = []
    if longer:
        decided = "is decided" if len(longer) == 1 else "are decided"
        told.append(
            f"{_ranks(longer)} {decided} by runs of {_span([answer[i] for i in longer])} requests."
        )
    if short:
        meets = "meets" if len(short) == 1 else "meet"
        told.append(
            f"{_ranks(short)} {meets} the SLO in runs of {_span([answer[i] for i in short])} "
            "requests, far enough from the limits for longer ones to agree."
        )
    return [
        " ".join(told),
        f"Short runs, of {_span(usual)} requests, begin with an empty system, so that the load "
        "that they hold is flattered: `infersim find` says which load lasts.",
    ]


def flattered_note(fleet: Confirmed) -> str | None:
    """Note on a fleet with one replica less in longer runs, where it holds in short ones."""
    sized = fleet.sized
    if not sized.flattered or sized.smaller is None:
        return None
    smaller = sized.smaller
    return (
        f"a run of {sized.usual:,} requests at {show_load(smaller.load)} requests/s holds with "
        f"{counted(sized.replicas - 1, 'replica')}, but in runs of {smaller.per_run:,} "
        f"{_why(smaller)}"
    )


def _why(probe: Probe) -> str:
    if probe.breaks == STABILITY:
        return "no capacity is left, so that the queue grows for ever"
    worst = min(probe.attained, key=lambda each: each.share - each.objective.share)
    return f"only {share(worst.share)} are within the SLO"


def _ranks(indices: Sequence[int]) -> str:
    return ", ".join(f"#{index + 1}" for index in indices)


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
