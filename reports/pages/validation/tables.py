"""Builds the tables of a validation's page; errors and shares in percent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from reports.frame.formats import MISSING, Kind, show
from sim.findings import Cell, Column, Table
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.validated import ErrorRow, LevelRow, RegimeRow, ValidatedRows

_BAND = {True: "yes", False: "no ✗", None: MISSING}


def figures(errors: Sequence[ErrorRow]) -> Table:
    """Every metric that both sides have; the noise only where a run was repeated."""
    noise = any(row.noise is not None for row in errors)
    rows = []
    for row in errors:
        name, definition = figure_title(row.figure)
        rows.append(
            (
                Cell(name, name, definition),
                *(Cell(*show(v, _kind(row.figure))) for v in (row.observed, row.predicted)),
                percent(row.error, signed=True),
                *((percent(row.noise),) if noise else ()),
                Cell(_BAND[row.within_band], _BAND[row.within_band]),
            )
        )
    columns = (
        Column("Metric", False),
        Column("Observed"),
        Column("Predicted"),
        Column("Error (%)", definition="error"),
        *((Column("Noise (± %)", definition="noise"),) if noise else ()),
        Column("In band", False, "band"),
    )
    return Table("figures", "Observed and predicted", columns, tuple(rows))


def figure_title(key: str, *, unit: bool = True) -> tuple[str, str | None]:
    """A figure's name with its ``unit``, where the values do not have it, and its definition.

    >>> figure_title("p99_itl_ms"), figure_title("duration"), figure_title("output_throughput")
    (('ITL p99', 'itl'), ('Duration', None), ('Output tokens per second', None))
    """
    known = METRIC[key]
    if known.kind == "ms":
        return known.title, known.definition
    if _kind(key) == "s":
        return known.title, None
    each = known.unit.endswith("/s")
    if each:
        return f"{known.title} per second", None
    return f"{known.title} ({known.unit})" if unit else known.title, None


def _kind(key: str) -> Kind:
    """How a metric is written: latencies and durations with their unit."""
    known = METRIC[key]
    return "ms" if known.kind == "ms" else "s" if known.unit == "s" else "number"


def regimes(found: ValidatedRows) -> Table | None:
    """Observed iterations by regime, and all of them; None where they were not recorded."""
    if found.whole is None:
        return None
    rows = map(_regime, (*found.regimes, found.whole))
    columns = (
        Column("Regime", False, "regime"),
        Column("Iterations"),
        Column("Time (%)"),
        Column("Observed median (ms)"),
        Column("Predicted median (ms)"),
        Column("Error of the sum (%)", definition="error"),
        Column("Typical error (%)", definition="typical"),
    )
    return Table("iterations", "Iterations, predicted as composed", columns, tuple(rows))


def _regime(row: RegimeRow) -> tuple[Cell, ...]:
    return (
        Cell(row.name, row.name),
        Cell(*show(row.iterations, "count")),
        percent(row.share),
        *(Cell(*show(1e3 * seconds, "number")) for seconds in (row.observed, row.predicted)),
        percent(row.error, signed=True),
        percent(row.typical),
    )


def levels(found: Sequence[LevelRow]) -> Table | None:
    """Batches and memory of both runs; None where the record says nothing of them."""
    if not found:
        return None
    rows = []
    for level in found:
        kind = cast("Kind", level.kind)
        name = level.name + (" (%)" if kind == "share" else "")
        observed, predicted = show(level.observed, kind), show(level.predicted, kind)
        rows.append((Cell(name, name), Cell(*observed), Cell(*predicted)))
    columns = (Column("Metric", False), Column("Observed"), Column("Predicted"))
    return Table("levels", "Batches and memory", columns, tuple(rows))


def percent(share: float | None, *, signed: bool = False) -> Cell:
    """Percent with one decimal: more is not known of an error."""
    if share is None:
        return Cell(MISSING, None)
    value = 100 * share
    return Cell(f"{value:+,.1f}" if signed else f"{value:,.1f}", round(value, 4))
