"""Predicts the requests that were observed.

``question`` is the scenario that is predicted with, ``predict`` runs the observed requests under
it. Seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from sim.clock import Stop
from sim.cost import CostModel
from sim.errors import UsageError
from sim.results import Result
from sim.scenario import Scenario, load_scenario
from sim.scenario.deployment import PrecisionName
from sim.simulation import Setup, play, prepare
from sim.validation.front_end import without_front_end
from sim.validation.observed import REFERENCE, ObservedRun
from sim.validation.traffic import observed_traffic
from sim.validation.variant import Variant

REFERENCE_ENGINE = "reference"
"""The catalogue's name of the engine whose runs say ``REFERENCE``."""


@dataclass(frozen=True)
class Question:
    """With what a run is predicted, and what was done to the scenario for that."""

    scenario: Scenario
    setup: Setup
    notes: Sequence[str]


@dataclass(frozen=True)
class Prediction:
    """One run of the simulator; ``result`` has its rows, figures and tables."""

    question: Question
    variant: Variant
    result: Result

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures, under the keys of ``summary.json``."""
        return self.result.summary


def question(
    run: ObservedRun, scenario: Path | None, overrides: Sequence[str], gpu: str | None
) -> Question:
    """The scenario that ``run`` is predicted with: its own, or ``scenario``, changed as asked.

    Its traffic is that of the run; UsageError for an override of that, or a scenario that cannot
    be.
    """
    for text in overrides:
        of_traffic = text.partition("=")[0].partition(".")[0].strip() == "workload"
        if of_traffic and not run.summary_only:
            raise UsageError(f"--set {text}: the traffic is that of the observed run")
    asked = run.scenario if scenario is None else load_scenario(scenario)
    changes: dict[str, object] = {
        "workload": run.scenario.resolved()["workload"],
        "seed": run.scenario.seed,
        "run": {
            "requests": run.scenario.run.requests if run.summary_only else len(run.requests),
            "warmup": _warmup(run),
            "horizon": run.scenario.run.horizon,
        },
    }
    notes = []
    keys = {text.partition("=")[0].partition(".")[0].strip() for text in overrides}
    if scenario is None:
        ran, changed = _what_ran(run, keys)
        changes |= ran
        notes += changed
    if gpu is not None:
        changes["fleet.0.gpu"] = str(Path(gpu).absolute()) if Path(gpu).exists() else gpu
    asked = asked.override(changes).override(overrides)
    if run.precision not in (None, asked.precision.weights):
        notes.append(
            f"The engine computed in {run.precision}, but {asked.precision.weights} is predicted."
        )
    setup = prepare(asked)
    if run.front_end == "none":
        setup, told = without_front_end(setup)
        notes += [told] if told else []
    return Question(asked, setup, notes)


def _what_ran(run: ObservedRun, given: set[str]) -> tuple[dict[str, object], list[str]]:
    """Where the engine was not what the run's own scenario says: changes to that, except the keys
    that are ``given``, and a note of each.
    """
    scenario, changes, notes = run.scenario, dict[str, object](), []
    ours = run.engine == REFERENCE and scenario.engine != REFERENCE_ENGINE
    if ours and "engine" not in given:
        changes["engine"] = REFERENCE_ENGINE
        notes.append(
            f"Its scenario says engine: {scenario.engine}, but the reference engine ran, and is "
            "predicted."
        )
    known = run.precision in get_args(PrecisionName) and "precision" not in given
    if known and run.precision != scenario.precision.weights:
        parts = ("weights", "activations", "kv_cache")
        changes["precision"] = dict.fromkeys(parts, run.precision)
        notes.append(
            f"Its scenario says precision: {scenario.precision.weights}, but {run.precision} ran, "
            "and is predicted."
        )
    return changes, notes


def _warmup(run: ObservedRun) -> int:
    """How many requests the statistics of the observed run leave out."""
    count = int(run.requests["warmup"].astype(bool).sum()) if "warmup" in run.requests else 0
    return count if count < len(run.requests) else 0


def predict(
    run: ObservedRun,
    asked: Question,
    variant: Variant | None = None,
    *,
    leap: bool = True,
    stop: Stop | None = None,
) -> Prediction:
    """The observed requests, simulated under ``asked`` with the changes of ``variant``.

    ``leap=False`` gives one row for each iteration. ``stop`` is what ends it early.
    """
    variant = variant or Variant()
    setup = variant.of(asked.setup)
    record = play(
        setup,
        observed_traffic(run, asked.scenario),
        CostModel(setup.deployment),
        leap=leap,
        stop=stop or Stop(),
    )
    return Prediction(asked, variant, Result(record))
