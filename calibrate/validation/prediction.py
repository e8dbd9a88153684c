"""Predicts the requests that were observed.

``question`` is the scenario that is predicted with, ``predict`` runs the observed requests under
it: at the times at which they came, with the lengths that they had; the clients of a closed loop
wait for the simulator's answers, as they waited for the engine's. A ``Variant`` is a prediction
with something corrected: blocks of the KV cache, host times of the engine, speeds of kernels.
Seconds; factors multiply a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from calibrate.validation.front_end import without_front_end
from calibrate.validation.observed import REFERENCE, ObservedRun
from sim.errors import UsageError
from sim.loop.clock import Stop
from sim.pools import PreparedPool
from sim.request import TrafficClass
from sim.results.run_result import RunResult
from sim.scenario import Scenario, load_scenario
from sim.scenario.sections.deployment import PrecisionName
from sim.setup import Setup, prepare
from sim.simulation import play
from sim.specs.engine import NO_FACTORS, EngineSpec, Factors
from sim.units import show_share
from sim.workload import (
    ClosedTraffic,
    LengthChunk,
    OpenTraffic,
    SessionTraffic,
    TrafficChunk,
    build,
)

REFERENCE_ENGINE = "reference"
"""The catalogue's name of the engine whose runs say ``REFERENCE``."""


@dataclass(frozen=True)
class ValidationQuestion:
    """With what a run is predicted, and what was done to the scenario for that."""

    scenario: Scenario
    setup: Setup
    notes: Sequence[str]


@dataclass(frozen=True)
class Prediction:
    """One run of the simulator; ``result`` has its rows, figures and tables."""

    question: ValidationQuestion
    variant: Variant
    result: RunResult

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures, under the keys of ``summary.json``."""
        return self.result.summary


def question(
    run: ObservedRun, scenario: Path | None, overrides: Sequence[str], gpu: str | None
) -> ValidationQuestion:
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
        changes[asked.only_pool.key("gpu")] = (
            str(Path(gpu).absolute()) if Path(gpu).exists() else gpu
        )
    asked = asked.override(changes).override(overrides)
    if run.precision not in (None, asked.precision.weights):
        notes.append(
            f"The engine computed in {run.precision}, but {asked.precision.weights} is predicted."
        )
    return of_scenario(run, asked, notes)


def of_scenario(run: ObservedRun, asked: Scenario, notes: Sequence[str]) -> ValidationQuestion:
    """``run`` predicted with ``asked`` as it stands; ``notes`` say what was done to it."""
    setup = prepare(asked)
    if run.front_end != "none":
        return ValidationQuestion(asked, setup, notes)
    setup, told = without_front_end(setup)
    return ValidationQuestion(asked, setup, [*notes, told] if told else notes)


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
    given_drafts, recorded = scenario.speculative, run.iterations
    if given_drafts is not None and recorded is not None and "speculative" not in given:
        rates = recorded.acceptance(given_drafts.num_tokens)
        if rates is not None:
            made = recorded.match_rate(given_drafts.num_tokens)
            searched = given_drafts.method == "ngram" and made is not None and rates[0] > 0
            match = max(made or 1.0, rates[0]) if searched else 1.0
            changes["speculative.acceptance_rate"] = None
            changes["speculative.acceptance"] = {"rates": [min(1.0, r / match) for r in rates]}
            if searched:
                changes["speculative.match_rate"] = match
            notes.append(
                f"{1 + sum(rates):.2f} tokens came of a decode and iteration, and are predicted "
                f"with; the scenario says {1 + sum(given_drafts.rates):.2f}."
            )
            if searched:
                notes.append(
                    f"Of the drafts that an iteration may have, {show_share(match)} were made: "
                    "where the text did not repeat, none were checked."
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
    asked: ValidationQuestion,
    variant: Variant | None = None,
    *,
    leap: bool = True,
) -> Prediction:
    """The observed requests, simulated under ``asked`` with the changes of ``variant``.

    ``leap=False`` gives one row for each iteration.
    """
    variant = variant or Variant()
    setup = variant.of(asked.setup)
    record = play(setup, observed_traffic(run, asked.scenario), leap=leap, stop=Stop())
    return Prediction(asked, variant, RunResult(record))


_PRIORITY = re.compile(r"priority (\d+)")
"""The name of a class that only the column of a trace has made."""


def observed_traffic(run: ObservedRun, scenario: Scenario) -> OpenTraffic | ClosedTraffic:
    """The requests of ``run``, ready to be simulated; ``scenario`` says how their classes rank.

    UsageError for a class that neither the scenario nor a trace could have named.
    """
    if run.summary_only:
        traffic = build(scenario, scenario.seed)
        if isinstance(traffic, SessionTraffic):
            raise UsageError("workload.sessions: observed runs have none yet; leave them out")
        return traffic
    prompts = _lengths(run, "prompt_tokens")
    outputs = _lengths(run, "output_tokens")
    classes, members = _classes(run, scenario)
    arrivals = run.scenario.workload.arrivals
    if arrivals is not None and arrivals.kind == "closed":
        column = LengthChunk(prompts, outputs, members)
        return ClosedTraffic(
            len(prompts), arrivals.concurrency, arrivals.think_time, iter([column]), classes
        )
    times = run.requests["arrival_s"].tolist()
    return OpenTraffic(
        len(times), iter([TrafficChunk(times, prompts, outputs, members)]), classes=classes
    )


def _lengths(run: ObservedRun, name: str) -> list[int]:
    """A request that failed may have got no token; sent again it wants one at least."""
    found: list[int] = run.requests[name].clip(lower=1).astype(int).tolist()
    return found


def _classes(
    run: ObservedRun, scenario: Scenario
) -> tuple[Sequence[TrafficClass], list[TrafficClass] | None]:
    """All classes, and that of each request; None where the traffic has none."""
    if "class" not in run.requests or run.requests["class"].isna().any():
        return (), None
    names: list[str] = run.requests["class"].astype(str).tolist()
    known = {name: _class(scenario, index, name) for index, name in enumerate(dict.fromkeys(names))}
    return tuple(known.values()), [known[name] for name in names]


def _class(scenario: Scenario, index: int, name: str) -> TrafficClass:
    common = math.inf if scenario.slo.ttft is None else scenario.slo.ttft
    for item in scenario.workload.classes or ():
        if item.name == name:
            deadline = common if item.deadline is None else item.deadline
            return TrafficClass(index, name, item.priority, deadline)
    if found := _PRIORITY.fullmatch(name):
        return TrafficClass(index, name, int(found[1]), common)
    raise UsageError(f"the observed requests are of class {name!r}, which the scenario lacks")


@dataclass(frozen=True, slots=True)
class Variant:
    """Changes to a prediction; the times are added to those of the engine preset, its factors
    multiplied by these."""

    num_gpu_blocks: int | None = None
    per_iteration: float = 0.0
    per_sequence: float = 0.0
    per_new_request: float = 0.0
    front_end: float = 0.0
    factors: Factors = NO_FACTORS

    def of(self, setup: Setup) -> Setup:
        """``setup`` with the changes made."""
        return setup.each(self._changed)

    def _changed(self, pool: PreparedPool) -> PreparedPool:
        memory = pool.capacity
        if self.num_gpu_blocks is not None:
            memory = replace(memory, num_gpu_blocks=self.num_gpu_blocks, given=True)
        engine = changed_engine(pool.deployment.engine, self)
        return replace(pool.with_engine(engine), capacity=memory)


def changed_engine(engine: EngineSpec, variant: Variant) -> EngineSpec:
    """``engine`` with its times changed; none becomes negative."""
    return replace(
        engine,
        per_iteration=max(0.0, engine.per_iteration + variant.per_iteration),
        per_sequence=max(0.0, engine.per_sequence + variant.per_sequence),
        per_new_request=max(0.0, engine.per_new_request + variant.per_new_request),
        front_end=max(0.0, engine.front_end + variant.front_end),
        factors=engine.factors.times(variant.factors),
    )
