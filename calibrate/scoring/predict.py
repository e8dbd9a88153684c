"""Predicts each published row. Rows of equal conditions share a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from calibrate.scoring.conditions import Conditions, conditions
from calibrate.scoring.drivers import document, preset
from calibrate.scoring.figures import Quantity, ScoredFigure, figure, measured, predicted
from calibrate.scoring.names import Unrepresentable
from calibrate.scoring.table import Row
from sim.errors import InfersimError
from sim.results.result import Result
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


@dataclass(frozen=True, slots=True)
class Scored:
    """A row with both figures, in seconds or per second; ``reason`` if there is no prediction."""

    row: Row
    known: Conditions | None
    engine: str
    quantity: Quantity | None
    measured: float | None
    predicted: float | None
    reason: str

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None without a prediction."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted / self.measured - 1


def case(row: Row) -> Case:
    """Whether ``row`` can be predicted, and from what."""
    known = None
    try:
        known = conditions(row)
        return Case(row, known, figure(row, known), preset(known), "")
    except Unrepresentable as reason:
        return Case(row, known, None, "", str(reason))


def run(known: Conditions) -> dict[str, Any] | str:
    """The summary of the run that repeats ``known``, or why there is none."""
    return outcome(lambda: simulate(load_scenario(document(known))))


def outcome(simulated: Callable[[], Result]) -> dict[str, Any] | str:
    """The figures of a run, or why there are none: an error, or requests that were not served."""
    try:
        summary = simulated().summary
    except InfersimError as error:
        return str(error).splitlines()[0]
    if summary["completed"] < summary["infersim"]["requests"]["submitted"]:
        reasons = summary["infersim"]["requests"]["rejected_reasons"]
        return "; ".join(f"{count} requests {reason}" for reason, count in reasons.items())
    decode = summary["mean_tpot_ms"]
    return {key: value for key, value in summary.items() if isinstance(value, int | float)} | {
        "decode_rate": 1e3 / decode if decode else None
    }


Progress = Callable[[int, int], None]
"""Called with (conditions that are done, conditions in all)."""


def score(rows: Iterable[Row], *, jobs: int, progress: Progress | None = None) -> list[Scored]:
    """Every row with its prediction, in order. ``jobs`` processes work side by side; -1 is one
    for each core."""
    cases = [case(row) for row in rows]
    needed = list(dict.fromkeys(c.known for c in cases if c.known and c.figure))
    runs = dict(zip(needed, _all(needed, jobs, progress), strict=True))
    return [_scored(c, runs) for c in cases]


def _all(
    needed: list[Conditions], jobs: int, progress: Progress | None
) -> list[dict[str, Any] | str]:
    from joblib import Parallel, delayed  # noqa: PLC0415 - slow to import

    results = []
    parallel = Parallel(n_jobs=jobs, return_as="generator", batch_size=1)
    for done, result in enumerate(parallel(delayed(run)(known) for known in needed), 1):
        results.append(result)
        if progress is not None:
            progress(done, len(needed))
    return results


def _scored(c: Case, runs: dict[Conditions, dict[str, Any] | str]) -> Scored:
    if c.known is None or c.figure is None:
        return Scored(c.row, c.known, c.engine, None, None, None, c.reason)
    result, quantity = runs[c.known], c.figure.quantity
    value = measured(c.row)
    if isinstance(result, str):
        return Scored(c.row, c.known, c.engine, quantity, value, None, result)
    found = predicted(c.figure, result)
    reason = "" if found is not None else f"the run has no {c.figure.key}"
    return Scored(c.row, c.known, c.engine, quantity, value, found, reason)
