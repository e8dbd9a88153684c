"""What bounds a run, and what should be changed first? Shown by runs in which it is otherwise.

Each counterfactual meets the same traffic. Its **effect** is the mean of its gains in the figures
of ``planning.gains`` (natural logarithms; each within a factor of ten). A probe with the largest
effect names what binds; actions are ranked by effect per effort.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import InfeasibleError
from sim.planning.counterfactuals import PROBE, Counterfactual, counterfactuals
from sim.planning.evaluate import check_served
from sim.planning.executors import Executor
from sim.planning.gains import figures_of, gains, in_order, mean_gain
from sim.planning.latency import Means, mean_parts
from sim.planning.points import Outcome, Point
from sim.scenario import Scenario
from sim.simulation import simulate

WORTH = math.log(1.02)
"""Effects below 2 % are not worth a word: the order of events alone makes as much."""

Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Trial:
    """A counterfactual, what came of it, its gains by figure (positive: better) and its effect;
    without gains if it does not run."""

    change: Counterfactual
    outcome: Outcome
    figures: Mapping[str, float | None]
    gains: Mapping[str, float | None]
    effect: float | None

    @property
    def rank(self) -> float:
        """Effect per effort."""
        return (self.effect or 0.0) / (self.change.effort.weight or math.inf)


@dataclass(frozen=True)
class Diagnosis:
    """``base`` is the summary of the scenario as it is, ``latency`` where the time of its requests
    went; ``target`` is what commands in advice name, ``given`` the overrides that they repeat."""

    scenario: Scenario
    target: str
    given: Sequence[str]
    base: Mapping[str, Any]
    latency: Mapping[str, Means]
    trials: Sequence[Trial]

    @property
    def probes(self) -> list[Trial]:
        """The probes that ran, the largest effect first."""
        ran = [t for t in self.trials if t.change.effort is PROBE and t.effect is not None]
        return sorted(ran, key=lambda trial: -(trial.effect or 0.0))

    @property
    def advice(self) -> list[Trial]:
        """The actions that are worth it, the largest effect per effort first."""
        worth = [t for t in self.trials if t.change.effort is not PROBE and (t.effect or 0) > WORTH]
        return sorted(worth, key=lambda trial: -trial.rank)


def diagnose(
    scenario: Scenario,
    executor: Executor,
    *,
    target: str,
    given: Sequence[str] = (),
    tell: Tell | None = None,
) -> Diagnosis:
    """Simulate ``scenario``, and each of its counterfactuals.

    Raises InfeasibleError if it does not run as it is, and whatever ``simulate`` raises.
    """
    result = simulate(scenario)
    base = result.summary
    try:
        check_served(base)
    except InfeasibleError as error:
        raise InfeasibleError(f"the scenario does not run as it is: {error}") from None
    changes = counterfactuals(scenario)
    points = [Point(i, change.settings, change.title) for i, change in enumerate(changes)]
    outcomes = []
    for done, outcome in enumerate(executor.run(scenario, points), 1):
        outcomes.append(outcome)
        if tell is not None:
            tell(done, len(points))
    before = figures_of(base)
    ordered = in_order(outcomes, len(points))
    trials = [_trial(change, o, before) for change, o in zip(changes, ordered, strict=True)]
    return Diagnosis(scenario, target, given, base, mean_parts(result.record), trials)


def _trial(change: Counterfactual, outcome: Outcome, before: Mapping[str, float | None]) -> Trial:
    if outcome.summary is None:
        return Trial(change, outcome, {}, {}, None)
    figures = figures_of(outcome.summary)
    found = gains(before, figures)
    return Trial(change, outcome, figures, found, mean_gain(found))
