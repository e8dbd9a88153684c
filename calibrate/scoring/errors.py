"""Computes how far off predictions are, by group: relative errors in percent, rank correlation.

Groups have a source file, an engine and its release, a GPU and a model; classes are the kinds of
measurement that a user would tell apart (``kind``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from calibrate.dense import dense_layer
from calibrate.scoring.clients import LeftOpen, compared
from calibrate.scoring.predict import Scored
from sim import catalog
from sim.catalog.spreads import related

QUANTITIES = (
    *("throughput", "ttft", "tpot", "itl", "e2el", "running", "bandwidth"),
    *("power", "energy"),
)

APART = {
    "running": "running requests",
    "bandwidth": "bandwidth of the weights, batch 1",
    "power": "power of the GPUs",
    "energy": "energy by the output token",
}
"""Quantities that are kinds of their own: they say little of times and rates."""

FEWEST_TO_RANK = 3
"""Predictions needed for a rank correlation."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many measurements lay in the 50 % and in the 90 % band of their predictions (``covered``,
    in %), and half of the median width of each, in % of the prediction."""

    covered50: float
    covered90: float
    half_width50: float
    half_width90: float


@dataclass(frozen=True, slots=True)
class InferredErrors:
    """Errors where facts that were read off measured results count, too: they change ``count`` of
    the predictions. Medians and 90th percentile as of ``Errors``."""

    count: int
    signed_median: float
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class Errors:
    """Of ``count`` predictions of one quantity: the median of the signed error, median and 90th
    percentile of the absolute one, all in %, and Spearman's rank correlation (None for too few);
    how far ``bands`` held (None without any); the errors with facts that were ``inferred`` from
    results (None where there are none)."""

    count: int
    signed_median: float
    median: float
    p90: float
    rank_correlation: float | None
    bands: Coverage | None
    inferred: InferredErrors | None = None


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Rows that belong together, by ``name``: errors by quantity, and how many rows were not
    predicted, by reason; how far ``bands`` held, of all quantities together (None without any)."""

    name: tuple[str, ...]
    scored: int
    skipped: dict[str, int]
    errors: dict[str, Errors]
    bands: Coverage | None


def errors_of(rows: Sequence[Scored]) -> Errors:
    """The errors of ``rows``, at least one, all of them predicted."""
    signed = 100 * np.array([row.error for row in rows], dtype=float)
    size = np.abs(signed)
    return Errors(
        count=len(rows),
        signed_median=float(np.median(signed)),
        median=float(np.median(size)),
        p90=float(np.percentile(size, 90)),
        rank_correlation=_rank_correlation(rows),
        bands=coverage(rows),
        inferred=_inferred(rows),
    )


def _inferred(rows: Sequence[Scored]) -> InferredErrors | None:
    count = sum(row.inferred is not None for row in rows)
    if not count:
        return None
    signed = 100 * np.array([row.inferred_error for row in rows], dtype=float)
    median, size = float(np.median(signed)), np.abs(signed)
    return InferredErrors(count, median, float(np.median(size)), float(np.percentile(size, 90)))


def coverage(rows: Sequence[Scored]) -> Coverage | None:
    """How far the bands of ``rows`` held; None where none has any."""
    banded = [(row, bands) for row in rows if (bands := row.bands) is not None]
    if not banded:
        return None
    measured = np.array([row.measured for row, _ in banded], dtype=float)
    predicted = np.array([row.predicted for row, _ in banded], dtype=float)
    low, high = np.array([bands for _, bands in banded]).transpose(2, 1, 0)
    held = 100 * ((low <= measured) & (measured <= high)).mean(axis=1)
    half_width = 100 * np.median((high - low) / 2 / predicted, axis=1)
    return Coverage(*map(float, (*held, *half_width)))


def held(bands: Coverage | None) -> tuple[str, ...]:
    """Cells: the shares of measurements in both bands, and half the width of the wider one."""
    if bands is None:
        return ("", "", "")
    shares = (bands.covered50, bands.covered90, bands.half_width90)
    return tuple(f"{share:.0f}" for share in shares)


def _rank_correlation(rows: Sequence[Scored]) -> float | None:
    from scipy.stats import spearmanr  # noqa: PLC0415 - slow to import

    measured = [row.measured for row in rows]
    predicted = [row.predicted for row in rows]
    if len(rows) < FEWEST_TO_RANK or len(set(measured)) == 1 or len(set(predicted)) == 1:
        return None
    return float(spearmanr(measured, predicted).statistic)


def groups(rows: Iterable[Scored], key: Callable[[Scored], tuple[str, ...]]) -> list[ErrorGroup]:
    """``rows`` by ``key``, in the order in which keys first appear."""
    return [_group(name, members) for name, members in grouped(rows, key).items()]


def _group(name: tuple[str, ...], rows: Sequence[Scored]) -> ErrorGroup:
    skipped: dict[str, int] = {}
    for row in rows:
        if row.error is None:
            skipped[row.reason] = skipped.get(row.reason, 0) + 1
    known = [row for row in rows if row.error is not None]
    by_quantity = grouped(known, lambda row: str(row.quantity))
    return ErrorGroup(
        name=name,
        scored=len(known),
        skipped=skipped,
        errors={q: errors_of(by_quantity[q]) for q in QUANTITIES if q in by_quantity},
        bands=coverage(known),
    )


Key = TypeVar("Key", bound=Hashable)


def grouped(rows: Iterable[Scored], key: Callable[[Scored], Key]) -> dict[Key, list[Scored]]:
    """``rows`` by ``key``, in the order in which keys first come."""
    found: dict[Key, list[Scored]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def left_open(rows: Iterable[Scored]) -> list[tuple[str, str, LeftOpen]]:
    """Of rows whose publishers leave open how they were measured, by source and quantity: how
    predictions under each plausible way compare."""
    kept = [row for row in rows if row.ways and row.measured is not None]
    by = grouped(kept, lambda row: (" ".join(source(row)), str(row.quantity), tuple(row.ways)))
    return [
        (name, quantity, compared([(row.measured or 0.0, row.ways) for row in members]))
        for (name, quantity, _), members in by.items()
    ]


def source(row: Scored) -> tuple[str, ...]:
    """Source, engine, release, GPU and model, as published."""
    r = row.row
    return (r.file, r["engine"], r["engine_version"], r["gpu"], r["model"])


def client(row: Scored) -> tuple[str, ...]:
    """The published facts of the clients: how requests were sent moves the time to first token more
    than any kernel."""
    known = row.known
    if known is None or known.driver != "closed":
        return ("requests sent at a rate, at once or one by one",)
    return ("clients that are described" if known.described else "clients that are not described",)


def kind(row: Scored) -> tuple[str, ...]:
    """The usual name of the measurement, such as ``static batch, grouped queries``."""
    known = row.known
    if known is None:
        return ("not represented",)
    if row.quantity in APART:
        return (APART[row.quantity],)
    model = catalog.model(known.model)
    if model.has_experts:
        where = {"single": "batch 1", "static": "static batch", "closed": "closed loop"}
        if not known.warmed and row.quantity == "ttft":
            where["closed"] = "closed loop without a warm-up"
        if known.apart is not None:
            where["closed"] = "prefill and decode apart"
        return (f"{where.get(known.driver, known.driver)}, {related(row.engine)}, experts",)
    if known.driver == "static":
        heads = dense_layer(model).attention
        grouped = heads.num_kv_heads < heads.num_heads
        return (f"static batch, {'grouped queries' if grouped else 'multi-head'}",)
    if known.driver == "single":
        return (f"batch 1, {'16 bits' if known.weights in ('bf16', 'fp16') else 'quantised'}",)
    driver = "closed loop" if known.driver == "closed" else known.driver
    return (f"{driver}, {related(row.engine)}",)
