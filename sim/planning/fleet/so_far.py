"""Keeps what a plan has found so far, for its progress and in case that it is interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.metrics.slo.objectives import Objective
from sim.planning.fleet.layouts import FleetQuestion, Rejected, Screened
from sim.planning.fleet.sizing import Sized
from sim.planning.points.wording import counted
from sim.scenario import Scenario


@dataclass
class PlanSoFar:
    """What a plan has found, in the order in which it was found; ``screened`` are the layouts to
    size."""

    screened: list[Screened] = field(default_factory=list)
    sized: list[Sized] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    cards: list[str] = field(default_factory=list)

    def told(self, found: Sized | Rejected) -> str:
        """Note what was ``found`` of a layout; the line on it, with the place of its card among
        those that were begun."""
        gpu = found.layout.gpu
        if gpu not in self.cards:
            self.cards.append(gpu)
        if isinstance(found, Sized):
            self.sized.append(found)
            text = f"{counted(found.replicas, 'replica')}, ${found.cost:,.2f}/h"
        else:
            self.rejected.append(found)
            text = found.reason
        among = len({each.layout.gpu for each in self.screened})
        return f"card {self.cards.index(gpu) + 1} of {among}: {found.layout.text}, {text}"


class PlanInterrupted(KeyboardInterrupt):
    """A plan was interrupted with ``found``; ``question`` was to be answered by ``objectives``."""

    def __init__(
        self,
        scenario: Scenario,
        question: FleetQuestion,
        objectives: Sequence[Objective],
        found: PlanSoFar,
    ) -> None:
        self.scenario, self.question = scenario, question
        self.objectives, self.found = objectives, found
