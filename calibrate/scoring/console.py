"""Shows scored rows in a terminal. Errors in %.

A table of few rows shows every one of them: the figure that is predicted, or those under each
plausible way of measuring where the publisher does not say which it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill

from rich.console import Group as View
from rich.text import Text

from calibrate.scoring.errors import (
    QUANTITIES,
    ErrorGroup,
    Errors,
    client,
    groups,
    held,
    kind,
    left_open,
    source,
)
from calibrate.scoring.evidence import conditions_of
from calibrate.scoring.predict import Scored
from calibrate.scoring.report import TITLES, median_p90
from sim.units import show_time

WIDTH = 88
"""Columns of a line, as of all tables in a terminal."""

TIMES = ("ttft", "tpot", "itl", "e2el")
"""Quantities in seconds."""

FEW = 12
"""Rows that are shown one by one."""

MOST = 12
"""Assumptions and reasons that are listed."""

LEGEND = (
    "bias, median, p90: the median of the error (predicted over measured, less one), and median "
    "and 90th percentile of its size, in %. rank: Spearman's correlation. in 50, in 90: the share "
    "of measurements in the 50 % and the 90 % band of their predictions, and ± 90 half the median "
    "width of the latter in % of the prediction; bands were learnt without the source (engine, GPU "
    "and model) that they are judged on."
)

COLUMNS = ("n", "bias", "median", "p90", "rank", "in 50", "in 90", "± 90")


def view(rows: Sequence[Scored]) -> View:
    """Errors by kind of measurement and by source, what was assumed, and what was not predicted and
    why; of few rows each."""
    count = sum(row.error is not None for row in rows)
    parts = [Text(f"{count:,} of {len(rows):,} rows predicted")]
    if len(rows) <= FEW and count:
        parts.append(_each([row for row in rows if row.error is not None]))
    if count:
        parts += [
            Text(f"\n{LEGEND}"),
            _errors("Errors by kind of measurement", groups(rows, kind)),
            _errors("Errors by source, engine, GPU and model", groups(rows, source)),
        ]
        if any(row.inferred is not None for row in rows):
            parts.append(_inferred(rows))
        if (by_client := _by_client(rows)) is not None:
            parts.append(by_client)
    if any(row.ways for row in rows):
        parts.append(_open(rows))
    assumed = [remark for row in rows if row.known for remark in row.known.assumed]
    if assumed:
        parts.append(_counted("What was assumed, in how many rows", assumed))
    if reasons := [row.reason for row in rows if row.error is None]:
        parts.append(_counted("Not predicted, and why", reasons))
    return View(*parts)


def _each(rows: Sequence[Scored]) -> Text:
    """Every row: under which conditions, what was measured and predicted, and the 90 % band."""
    text = Text()
    for row in rows:
        published = row.row
        place = f"{published.file}:{published.line}" if published.line else published.file
        text.append(f"\n{place}, {TITLES[str(row.quantity)]}", style="bold")
        text.append(f"  {conditions_of(row)}\n")
        low, high = min(row.ways.values(), default=0.0), max(row.ways.values(), default=0.0)
        shown = _amount(row, row.predicted) if not row.ways else _between(row, low, high)
        text.append(f"  measured {_amount(row, row.measured)}, predicted {shown}")
        text.append("" if row.ways else f" ({100 * (row.error or 0.0):+.0f} %)")
        if (bands := row.bands) is not None:
            text.append(f", 90 % band {_between(row, *bands[1])}")
        for name, value in row.ways.items():
            counted = "  (counted in the errors below)" if value == row.predicted else ""
            text.append(f"\n    {_amount(row, value):>10}  {name}{counted}")
    return text


def _amount(row: Scored, value: float | None) -> str:
    """A value of the row's quantity."""
    if value is None:
        return "-"
    if row.quantity in TIMES:
        return show_time(value)
    scale, unit = (1e9, " GB/s") if row.quantity == "bandwidth" else (1.0, "")
    return f"{value / scale:,.4g}{unit}" if value < 1e4 * scale else f"{value / scale:,.0f}{unit}"


def _between(row: Scored, low: float, high: float) -> str:
    return f"{_amount(row, low)} to {_amount(row, high)}"


def _errors(title: str, found: Sequence[ErrorGroup]) -> Text:
    """A line for each quantity of each group, below its name."""
    text = Text()
    text.append(f"\n{title}, in %\n", style="bold")
    text.append(_line("", COLUMNS))
    for group in found:
        if group.errors:
            text.append("\n" + _hanging(", ".join(part for part in group.name if part), 4))
        for quantity in QUANTITIES:
            if quantity in group.errors:
                text.append("\n" + _line(f"  {TITLES[quantity]}", _cells(group.errors[quantity])))
    return text


def _hanging(text: str, indent: int) -> str:
    """``text`` in lines of a terminal, all but the first indented."""
    return fill(text, WIDTH, subsequent_indent=indent * " ", break_on_hyphens=False)


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<14}" + "".join(f"{cell:>9}" for cell in cells)


def _by_client(rows: Sequence[Scored]) -> Text | None:
    """Errors where clients are described and where not, if there are rows of both."""
    found = groups([row for row in rows if row.error is not None], client)
    return _errors("Errors by what is published of the clients", found) if len(found) > 1 else None


def _inferred(rows: Sequence[Scored]) -> Text:
    """Errors as stated and as inferred, of kinds that facts read off measured results change."""
    text = Text()
    title = "With facts that were read off the measured results, which no error above counts"
    text.append(f"\n{title}, in %\n", style="bold")
    text.append(f"{'':<44}{'changed':>9}{'median / p90':>16}{'as inferred':>16}")
    for group in groups(rows, kind):
        for quantity, found in group.errors.items():
            if found.inferred is not None:
                name = f"{', '.join(group.name)}: {TITLES[quantity]}"
                changed = f"{found.inferred.count:,}"
                cells = [median_p90(asdict(each)) for each in (found, found.inferred)]
                text.append(f"\n{name:<44}{changed:>9}{cells[0]:>16}{cells[1]:>16}")
    return text


def _open(rows: Sequence[Scored]) -> Text:
    """Errors under each plausible way, of rows that leave it open."""
    title = "Where it is not published how requests were sent: errors under each way, in %"
    text = Text()
    text.append(f"\n{title}\n", style="bold")
    text.append(f"{'':<70}{'bias':>9}{'median':>9}")
    for name, quantity, found in left_open(rows):
        text.append(
            f"\n{name}\n  {TITLES[quantity]}: {found.between:.0f} % of {found.rows:,} rows lie "
            "between the least and the largest"
        )
        for way in found.ways:
            text.append(f"\n    {way.name:<66}{way.bias:>+9.1f}{way.median:>9.1f}")
    return text


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


def _counted(title: str, texts: Sequence[str]) -> Text:
    """Texts and how often each comes, the most frequent first."""
    counts: dict[str, int] = {}
    for each in texts:
        counts[each] = counts.get(each, 0) + 1
    order = sorted(counts.items(), key=lambda item: -item[1])
    text = Text()
    text.append(f"\n{title}", style="bold")
    for each, count in order[:MOST]:
        text.append("\n" + _hanging(f"{count:6,}  {each}", 8))
    if len(order) > MOST:
        text.append(f"\n{len(order) - MOST} more are in the evidence (--output FILE.json).")
    return text
