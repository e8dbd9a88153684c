"""Provides scored rows as one JSON object, or as tables for a terminal. Errors in %.

The object: ``rows`` (each with its figures and their unit, seconds or per second, what was assumed,
or the reason why there is none), ``groups`` by source, engine, GPU and model, ``kinds`` by kind of
measurement, ``all``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from rich.console import Group as View
from rich.table import Table
from rich.text import Text

from sim.scoring.errors import QUANTITIES, Errors, Group, groups, kind, source
from sim.scoring.predict import Scored

SOURCE = ("source", "engine", "version", "gpu", "model")

SHORT = {"throughput": "tput", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}


def to_document(rows: Sequence[Scored]) -> dict[str, Any]:
    """The JSON document of ``rows``."""
    everything = groups(rows, lambda row: ("all",))
    return {
        "version": version("infersim"),
        "scored": sum(group.scored for group in everything),
        "skipped": sum(sum(group.skipped.values()) for group in everything),
        "all": [_group(group, ("name",)) for group in everything],
        "kinds": [_group(group, ("kind",)) for group in groups(rows, kind)],
        "groups": [_group(group, SOURCE) for group in groups(rows, source)],
        "rows": [_row(row) for row in rows],
    }


def _group(group: Group, names: tuple[str, ...]) -> dict[str, Any]:
    return dict(zip(names, group.name, strict=True)) | {
        "scored": group.scored,
        "skipped": sum(group.skipped.values()),
        "reasons": group.skipped,
        "errors": {quantity: asdict(found) for quantity, found in group.errors.items()},
    }


def _row(row: Scored) -> dict[str, Any]:
    published = row.row
    return {
        "source": published.file,
        "line": published.line,
        "engine": published["engine"],
        "version": published["engine_version"],
        "gpu": published["gpu"],
        "model": published["model"],
        "metric": published["metric"],
        "quantity": row.quantity,
        "preset": row.engine or None,
        "measured": row.measured,
        "predicted": row.predicted,
        "error": None if row.error is None else 100 * row.error,
        "assumed": list(row.known.assumed) if row.known else [],
        "reason": row.reason or None,
    }


def view(rows: Sequence[Scored]) -> View:
    """Errors by kind of measurement, by source, and what was not predicted and why."""
    parts: list[Any] = [
        Text(f"{sum(row.error is not None for row in rows):,} of {len(rows):,} rows predicted"),
        _table("Errors by kind of measurement, in %", groups(rows, kind), lambda name: name[0]),
        _table(
            "Errors by source, engine, GPU and model, in %",
            groups(rows, source),
            lambda name: " ".join(part for part in name if part),
        ),
    ]
    if lines := _reasons(rows):
        parts += [Text("Not predicted", style="bold"), Text("\n".join(lines))]
    return View(*parts)


def _table(title: str, found: Sequence[Group], label: Any) -> Table:
    table = Table(title=title, title_justify="left", expand=True, box=None, pad_edge=False)
    table.add_column("rows")
    table.add_column("of", justify="right")
    for name in ("n", "bias", "median", "p90", "rank"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in found:
        if group.errors:
            table.add_row(Text(label(group.name), style="bold"))
        for quantity in QUANTITIES:
            if quantity in group.errors:
                table.add_row("", SHORT[quantity], *_cells(group.errors[quantity]))
    return table


def _cells(found: Errors) -> tuple[str, ...]:
    rank = "" if found.rank_correlation is None else f"{found.rank_correlation:.3f}"
    return (
        f"{found.count:,}",
        f"{found.signed_median:+.1f}",
        f"{found.median:.1f}",
        f"{found.p90:.1f}",
        rank,
    )


def _reasons(rows: Sequence[Scored]) -> list[str]:
    found: dict[str, int] = {}
    for row in rows:
        if row.error is None:
            found[row.reason] = found.get(row.reason, 0) + 1
    return [f"{count:6,}  {reason}" for reason, count in sorted(found.items(), key=lambda i: -i[1])]
