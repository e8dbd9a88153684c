"""Predicts each published row. Rows of equal conditions share a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from calibrate.published_names import Unrepresentable
from calibrate.scoring.bench_limits import benchmarked
from calibrate.scoring.clients import plausible
from calibrate.scoring.conditions import Conditions, conditions
from calibrate.scoring.facts import corrected, facts_of
from calibrate.scoring.figures import (
    DECODE_RATE,
    STEADY_ENERGY,
    STEADY_POWER,
    STEADY_RATE,
    STEADY_RUNNING,
    WHOLE_ENERGY,
    Quantity,
    ScoredFigure,
    figure,
    measured,
    predicted,
)
from calibrate.scoring.presets import engine_name, uncovered
from calibrate.scoring.table import Row
from calibrate.scoring.twins import marked
from sim.errors import InfersimError
from sim.metrics.bands.bands import LEVELS, Question, band, kind, question, reach
from sim.metrics.fleet.energy import mean_power
from sim.results.run_result import RunResult
from sim.scenario import load_scenario
from sim.simulation import simulate


@dataclass(frozen=True, slots=True)
class Case:
    """A published row, and what is needed to predict it, or the ``reason`` why it is not."""

    row: Row
    known: Conditions | None
    figure: ScoredFigure | None
    engine: str
    reason: str


NOT_DESCRIBED = "closed loop, client not described"
"""How requests come where the publisher leaves open how the clients sent them: a kind of its own,
which no run of a user is of."""

NOT_WARMED = "closed loop, not warmed up"
"""How requests come to a server that has compiled no more kernels than it starts with: another one
that no run of a user is of."""

BANDED = frozenset({"throughput", "ttft", "tpot", "itl", "e2el", "bandwidth"})
"""Quantities that have bands."""

Band = tuple[float, float]
"""The least and the largest value that a band holds."""


class Predicted(NamedTuple):
    """The prediction of a run: its figures by key of the summary, and the question it answers."""

    figures: Mapping[str, float | None]
    at: Question


@dataclass(frozen=True, slots=True)
class Scored:
    """A row with both figures, in seconds or per second; ``reason`` if there is no prediction.

    ``key`` is that of the figure in a summary, ``at`` the question that its run answers
    (``sim.metrics.bands.bands``); both empty where it has no bands. ``ways`` has the
    predictions under each plausible way of measuring where the publisher leaves it open
    (``clients``). ``inferred`` is the prediction with facts that were read off measured results
    (``facts``), where there are any: no error or band counts it.
    """

    row: Row
    known: Conditions | None
    engine: str
    quantity: Quantity | None
    measured: float | None
    predicted: float | None
    reason: str
    key: str = ""
    at: Question | None = None
    ways: Mapping[str, float] = field(default_factory=dict)
    inferred: float | None = None

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None without a prediction."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted / self.measured - 1

    @property
    def inferred_error(self) -> float | None:
        """Relative error of ``inferred``, or of the usual prediction where there is none."""
        if self.inferred is None or self.measured is None:
            return self.error
        return self.inferred / self.measured - 1

    @property
    def kind(self) -> str:
        """The kind of figure, as ``sim.catalog.spreads`` names it; empty where it has no bands."""
        return kind(self.key, self.at) if self.at is not None else ""

    @property
    def layout(self) -> tuple[str, ...]:
        """Release, formats and layout: figures that share these err together."""
        return tuple(
            self.row[name] for name in ("engine_version", "weight_dtype", "kv_dtype", "tp")
        )

    @property
    def bands(self) -> tuple[Band, Band] | None:
        """The 50 % and the 90 % band of the prediction, by what is known without its own place;
        None without a prediction."""
        if self.predicted is None or self.at is None:
            return None
        found = reach(self.key, self.at, without=self.at.place)
        half, ninety = (band(self.predicted, *found.ends(level)) for level in LEVELS)
        return half, ninety


def case(row: Row, *, outcomes: bool = False) -> Case:
    """Whether ``row`` can be predicted, and from what; with ``outcomes`` by facts read off measured
    results, too."""
    known = None
    try:
        known = benchmarked(conditions(row, outcomes=outcomes))
        apart = known.apart is not None
        if (note := uncovered(known.engine, known.version, apart=apart)) is not None:
            known = replace(known, assumed=(*known.assumed, note))
        read = corrected(row, facts_of(row, outcomes=outcomes))
        return Case(row, known, figure(read, known), engine_name(known.engine), "")
    except Unrepresentable as reason:
        return Case(row, known, None, "", str(reason))


def run(known: Conditions) -> Predicted | str:
    """The prediction of the run that repeats ``known``, or why there is none."""
    return outcome(lambda: simulate(load_scenario(known.document)), known)


def outcome(simulated: Callable[[], RunResult], known: Conditions) -> Predicted | str:
    """The figures of a run under ``known`` conditions, or why there are none: an error, or requests
    that were not served."""
    try:
        result = simulated()
        summary = result.summary
    except InfersimError as error:
        return str(error).splitlines()[0]
    if summary["completed"] < summary["infersim"]["requests"]["submitted"]:
        reasons = summary["infersim"]["requests"]["rejected_reasons"]
        return "; ".join(f"{count} requests {reason}" for reason, count in reasons.items())
    numbers = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    if known.streamed > 1:
        numbers |= together(numbers, known.streamed)
    at = question(result.record, str(summary["infersim"]["verdict"]["state"]))
    if known.driver == "closed" and not (known.described and known.warmed):
        at = at._replace(driven=NOT_DESCRIBED if known.warmed else NOT_WARMED)
    return Predicted(numbers | _derived(result, known), at)


def together(numbers: Mapping[str, float], tokens: int) -> dict[str, float]:
    """The times that a client measures to whom the first token comes with so many ``tokens``: the
    end is the same, so that the times of the others are shorter by as much."""
    wait = (tokens - 1) * numbers["mean_tpot_ms"]
    others = numbers["total_output_tokens"] / numbers["completed"] - 1
    return {
        "mean_ttft_ms": numbers["mean_ttft_ms"] + wait,
        "mean_tpot_ms": numbers["mean_tpot_ms"] - wait / others,
    }


def _derived(result: RunResult, known: Conditions) -> dict[str, float | None]:
    """The figures that a summary lacks. What is true while all clients are busy follows from
    Little's law: they have that many requests with the engine, each for as long as it takes."""
    summary: Mapping[str, Any] = result.summary
    decode = summary["mean_tpot_ms"]
    found: dict[str, float | None] = {DECODE_RATE: 1e3 / decode if decode else None}
    energy = summary["infersim"]["energy"] or {}
    found[WHOLE_ENERGY] = energy.get(WHOLE_ENERGY)
    if known.driver == "closed" and known.size and summary["mean_e2el_ms"]:
        each, queued = summary["mean_e2el_ms"], summary["infersim"]["queue_ms"]["mean"]
        tokens = summary["total_output_tokens"] / summary["completed"]
        found[STEADY_RATE] = known.size * tokens / each * 1e3
        found[STEADY_RUNNING] = known.size * (1 - queued / each)
        found[STEADY_POWER], found[STEADY_ENERGY] = _steady_draw(result)
    return found


def _steady_draw(result: RunResult) -> tuple[float, float | None]:
    """Until the last client sends its last request: mean W of all GPUs, and J for each token that
    was delivered by then."""
    record = result.record
    arrivals, plans = record.requests["arrival"], record.plans
    start, end = float(arrivals.min()), float(arrivals.max())
    if end <= start:  # each client sent one request
        end = record.end
    watts = float(mean_power(record, np.array([start, end]))[0])
    within = np.clip((end - plans["start"]) / (plans["end"] - plans["start"]), 0.0, 1.0)
    tokens = float((plans["decode"] * plans["iterations"] * within).sum())
    tokens += int((record.requests["first_token"] <= end).sum())
    return watts, watts * (end - start) / tokens if tokens else None


Progress = Callable[[int, int], None]
"""Called with (conditions that are done, conditions in all)."""


def score(rows: Iterable[Row], *, jobs: int, progress: Progress | None = None) -> list[Scored]:
    """Every row with its prediction, in order. ``jobs`` processes work side by side; -1 is one
    for each core."""
    every = list(rows)
    cases = [case(row) for row in every]
    inferred = list(map(_inferred_from, marked(every), cases))
    needed = [each for c in cases if c.known and c.figure for each in (c.known, *_ways(c.known))]
    needed = list(dict.fromkeys([*needed, *(found.known for found in inferred if found)]))
    runs = dict(zip(needed, _all(needed, jobs, progress), strict=True))
    return [
        replace(_scored(c, runs), inferred=found and found.value(runs))
        for c, found in zip(cases, inferred, strict=True)
    ]


class InferredFrom(NamedTuple):
    """The basis of a row's prediction by all facts, those read off measured results too."""

    known: Conditions
    figure: ScoredFigure

    def value(self, runs: Mapping[Conditions, Predicted | str]) -> float | None:
        """The prediction; None without one."""
        result = runs[self.known]
        return None if isinstance(result, str) else predicted(self.figure, result.figures)


def _inferred_from(row: Row, usual: Case) -> InferredFrom | None:
    """The basis of the prediction of ``row`` by all facts, where that is another run or figure than
    by the published ones."""
    known, found = (with_all := case(row, outcomes=True)).known, with_all.figure
    if known is None or found is None or usual.known is None:
        return None
    same = (known.scenario, known.streamed, found) == (
        usual.known.scenario,
        usual.known.streamed,
        usual.figure,
    )
    return None if same else InferredFrom(known, found)


def _ways(known: Conditions) -> Iterable[Conditions]:
    return plausible(known).values()


def _all(needed: list[Conditions], jobs: int, progress: Progress | None) -> list[Predicted | str]:
    from joblib import Parallel, delayed  # noqa: PLC0415 - slow to import

    results = []
    parallel = Parallel(n_jobs=jobs, return_as="generator", batch_size=1)
    for done, result in enumerate(parallel(delayed(run)(known) for known in needed), 1):
        results.append(result)
        if progress is not None:
            progress(done, len(needed))
    return results


def _scored(c: Case, runs: Mapping[Conditions, Predicted | str]) -> Scored:
    if c.known is None or c.figure is None:
        return Scored(c.row, c.known, c.engine, None, None, None, c.reason)
    result, quantity = runs[c.known], c.figure.quantity
    value = measured(c.row)
    if isinstance(result, str):
        return Scored(c.row, c.known, c.engine, quantity, value, None, result)
    found = predicted(c.figure, result.figures)
    if found is None:
        why = f"the run has no {c.figure.key}"
        return Scored(c.row, c.known, c.engine, quantity, value, None, why)
    ways = _under_each(c.known, c.figure, runs)
    at = result.at if quantity in BANDED else None
    return Scored(c.row, c.known, c.engine, quantity, value, found, "", c.figure.key, at, ways)


def _under_each(
    known: Conditions, wanted: ScoredFigure, runs: Mapping[Conditions, Predicted | str]
) -> dict[str, float]:
    """The figure under each plausible way; empty if one of them has none."""
    found = {}
    for name, conditions_of_it in plausible(known).items():
        result = runs[conditions_of_it]
        value = None if isinstance(result, str) else predicted(wanted, result.figures)
        if value is None:
            return {}
        found[name] = value
    return found
