"""Runs the variants of a scenario and collects what came of them: the engine of every study.

A study says which variants there are, and what follows from their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import InfeasibleError
from sim.metrics.question.fleet_words import fleet_text
from sim.metrics.question.question_text import asked, changed
from sim.planning.points.executors import Executor
from sim.planning.points.footnote_words import notes_of, sure_of_all
from sim.planning.points.points import Outcome, Point, Settings
from sim.scenario import Scenario
from sim.version import version

Tell = Callable[[int, int], None]
"""Called with (runs that are done, runs in all)."""

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A scenario, where its variants are simulated, and who hears how far that is."""

    scenario: Scenario
    executor: Executor
    tell: Tell | None = None

    def each(self, points: Sequence[Point], before: int = 0) -> Iterator[Outcome]:
        """The outcomes of ``points`` as they come, after ``before`` that are known."""
        if not points:
            return
        for done, outcome in enumerate(self.executor.run(self.scenario, points), before + 1):
            yield outcome
            if self.tell is not None:
                self.tell(done, before + len(points))

    def run(self, points: Sequence[Point]) -> list[Outcome]:
        """The outcomes of ``points``, in their order."""
        found = {outcome.point.index: outcome for outcome in self.each(points)}
        return [found[point.index] for point in points]

    def variants(
        self, labelled: Iterable[tuple[str, Settings]], *, at_ends: bool = False
    ) -> list[Outcome]:
        """The outcomes of settings by their labels, in order; ``at_ends`` as in ``Point``."""
        named = enumerate(labelled)
        return self.run([Point(i, each, name, at_ends=at_ends) for i, (name, each) in named])

    def one(self, label: str, settings: Settings, *, at_ends: bool = False) -> Outcome:
        """The outcome of one variant, which is not counted."""
        alone = Study(self.scenario, self.executor)
        return alone.variants([(label, settings)], at_ends=at_ends)[0]


def head(kind: str, scenario: Scenario) -> dict[str, Any]:
    """How the answer to a question of this ``kind`` begins: what it is about."""
    return {
        "kind": kind,
        "infersim": version(),
        "scenario": scenario.name,
        "description": scenario.description,
        "asked": asked(scenario) | changed(scenario),
    }


def setup_text(summary: Summary) -> str:
    """Model, GPUs and engine of a run."""
    own = summary["infersim"]
    return f"{own['model']} on {fleet_text(own)}, {own['engine']}"


def running(outcome: Outcome) -> Summary:
    """The summary of the scenario itself; InfeasibleError if it does not run."""
    if outcome.summary is None:
        raise InfeasibleError("the scenario itself does not run", outcome.error or "")
    return outcome.summary


def told_of(named: Iterable[tuple[str, Outcome]]) -> list[tuple[str, Summary]]:
    """The summaries of what ran, by its label."""
    return [(label, each.summary) for label, each in named if each.summary is not None]


def notes_on(told: Sequence[tuple[str, Summary]]) -> list[str]:
    """The notes of several runs, given by label and summary, and how sure their figures are."""
    return [*notes_of(told), *sure_of_all([summary for _, summary in told])]
