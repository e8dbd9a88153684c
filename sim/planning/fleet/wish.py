"""Asks and answers ``infersim plan``: which fleets to look for, as a person says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import UsageError
from sim.planning.fleet import plan_document, split_document
from sim.planning.fleet.choose import Tell, choose, read_rate
from sim.planning.fleet.constraints import read_constraints
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.fleet.split import choose_split
from sim.planning.fleet.split_sizing import together
from sim.planning.load.advance import Progress
from sim.planning.load.loads import Scale, axis_of, traffic_of
from sim.scenario import Scenario


@dataclass(frozen=True)
class FleetWish:
    """The options of ``infersim plan``, and of ``sim.plan``, which explains them.

    An empty choice stands for all that are usual, or for the scenario's own (``layouts``).
    """

    gpus: Sequence[str]
    tensor_parallel: Sequence[int] = ()
    pipeline_parallel: Sequence[int] = ()
    data_parallel: Sequence[int] = ()
    expert_parallel: Sequence[bool] = ()
    precision: Sequence[str] = ()
    rate: str = "1x"
    scale: Scale = "compress"
    headroom: float = 0.2
    top: int = 5
    constraint: str | None = None
    survive: int = 0
    disaggregate: bool = False

    def question(self, scenario: Scenario) -> FleetQuestion:
        """The question in figures; UsageError for what is empty or contradicts itself."""
        if self.disaggregate:
            scenario = together(scenario)
        if not 0 <= self.headroom <= 10:
            raise UsageError(
                f"--headroom {self.headroom:g}: expected a share from 0 to 10, such as 0.2"
            )
        if self.top < 1:
            raise UsageError(f"--top {self.top}: expected 1 or more")
        made = layouts(
            scenario,
            self.gpus,
            self.tensor_parallel,
            self.precision,
            self.data_parallel,
            self.expert_parallel,
            self.pipeline_parallel,
        )
        if self.disaggregate:
            made = [layout for layout in made if not layout.whole_experts]
        limits = read_constraints(self.constraint, self.survive)
        own = axis_of(scenario, "rate", traffic_of(scenario), self.scale).own
        assert own is not None
        rate = read_rate(self.rate, own)
        return FleetQuestion(tuple(made), rate, self.headroom, self.top, limits, self.scale)

    def answer(
        self,
        scenario: Scenario,
        question: FleetQuestion,
        *,
        jobs: int,
        file: str,
        given: Sequence[str] = (),
        tell: Tell | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """The answer as plain data; ``file`` and ``given`` are the scenario and its overrides as
        written, for commands to copy. The others as for ``choose``."""
        if self.disaggregate:
            split = choose_split(scenario, question, jobs=jobs, tell=tell, progress=progress)
            return split_document.document(split, file=file, given=given)
        plan = choose(scenario, question, jobs=jobs, tell=tell, progress=progress)
        return plan_document.document(plan, file=file, given=given)
