"""Shows scored rows in a terminal. Errors in %."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group as View
from rich.table import Table
from rich.text import Text

from calibrate.scoring.clients import LeftOpen
from calibrate.scoring.errors import (
    QUANTITIES,
    ErrorGroup,
    Errors,
    groups,
    held,
    kind,
    left_open,
    source,
)
from calibrate.scoring.predict import Scored
from calibrate.scoring.report import TITLES

SHORT = TITLES | {"throughput": "tput"}


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
    if open_rows := left_open(rows):
        parts.append(_open_table(open_rows))
    if lines := _reasons(rows):
        parts += [Text("Not predicted", style="bold"), Text("\n".join(lines))]
    return View(*parts)


def _table(title: str, found: Sequence[ErrorGroup], label: Any) -> Table:
    table = Table(title=title, title_justify="left", expand=True, box=None, pad_edge=False)
    table.add_column("rows")
    table.add_column("of", justify="right")
    for name in ("n", "bias", "median", "p90", "rank", "in 50", "in 90", "± 90"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in found:
        if group.errors:
            table.add_row(Text(label(group.name), style="bold"))
        for quantity in QUANTITIES:
            if quantity in group.errors:
                table.add_row("", SHORT[quantity], *_cells(group.errors[quantity]))
    return table


def _open_table(found: Sequence[tuple[str, str, LeftOpen]]) -> Table:
    title = "Where it is not published how requests were sent: errors under each way, in %"
    table = Table(title=title, title_justify="left", expand=True, box=None, pad_edge=False)
    table.add_column("rows")
    for name in ("n", "bias", "median"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, quantity, of_it in found:
        head = f"{name}, {SHORT[quantity]} ({of_it.between:.0f} % of the rows lie between)"
        table.add_row(Text(head, style="bold"), f"{of_it.rows:,}")
        for way in of_it.ways:
            table.add_row(Text(f"  {way.name}"), "", f"{way.bias:+.1f}", f"{way.median:.1f}")
    return table


def _cells(found: Errors) -> tuple[str, ...]:
    rank = "" if found.rank_correlation is None else f"{found.rank_correlation:.3f}"
    return (
        f"{found.count:,}",
        f"{found.signed_median:+.1f}",
        f"{found.median:.1f}",
        f"{found.p90:.1f}",
        rank,
        *held(found.bands),
    )


def _reasons(rows: Sequence[Scored]) -> list[str]:
    found: dict[str, int] = {}
    for row in rows:
        if row.error is None:
            found[row.reason] = found.get(row.reason, 0) + 1
    return [f"{count:6,}  {reason}" for reason, count in sorted(found.items(), key=lambda i: -i[1])]
