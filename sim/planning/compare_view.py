"""What does a comparison look like in a terminal of 88 columns? Best in bold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.console import WIDTH
from sim.metrics.own import PREFIX
from sim.planning.axis_columns import axis_columns
from sim.planning.points import show
from sim.planning.wording import milliseconds, number, share

SHOWN = ("request_goodput", "output_throughput", "mean_ttft_ms", "p99_ttft_ms", "p99_tpot_ms")
WITHOUT_SLO = (*SHOWN[1:], "p99_e2el_ms")
"""Figures that a terminal is shown; all of them are on the page and in the result."""

MOST_OWN = 4
"""Metrics of one's own beside each other; more go into a table below."""

OVERLOADED = "overloaded"


def compare_view(document: Mapping[str, Any]) -> Group:
    """The variants of ``sim.planning.compare`` or ``sim.planning.runs``, one below the other."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    variants = document["variants"]
    yield Text.assemble((document["name"], "bold"), f"  {len(variants)} compared")
    if document["base"] is not None:
        by_key = {figure["key"]: figure for figure in document["figures"]}
        attained = by_key.get("verdict.attainment")
        limited = attained and any(mean is not None for mean in attained["means"])
        yield _table(document, SHOWN if limited else WITHOUT_SLO)
        own = [key for key in by_key if key.startswith(PREFIX)]
        for at in range(0, len(own), MOST_OWN):
            yield Text("Metrics of your own", style="bold")
            yield _table(document, own[at : at + MOST_OWN])
        base = variants[document["base"]]["label"]
        yield Text(f"Differences to {base}: {document['pairing']}.", style="dim")
        yield Text(
            "Bold: the best of a column, and what cannot be told from it. Dim: perhaps no "
            "difference.",
            style="dim",
        )
    for variant in variants:
        if variant["error"] is not None:
            first = variant["error"].splitlines()[0]
            yield Text(f"failed: {variant['label']}: {first}", style="red")
    for note in document["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _table(document: Mapping[str, Any], wanted: Sequence[str]) -> Table:
    """The variants, and the figures of these keys."""
    by_key = {figure["key"]: figure for figure in document["figures"]}
    figures = [by_key[key] for key in wanted if key in by_key]
    table = Table(expand=True, box=box.SIMPLE, padding=(0, 1, 0, 0))
    names = [_names(variant) for variant in document["variants"]]
    heads = [axis["name"] for axis in document["axes"]] or [""]
    titles = [_title(figure) for figure in figures]
    cells = [[_cell(figure, index) for figure in figures] for index in range(len(names))]
    wide = [
        max(_longest(title), *(_longest(row[at].plain) for row in cells))
        for at, title in enumerate(titles)
    ]
    values = [
        [line for name in column for line in name.plain.splitlines()]
        for column in zip(*names, strict=True)
    ]
    blank, columns = axis_columns(heads, values, wide, WIDTH)
    table = Table(expand=True, box=box.SIMPLE, padding=(0, blank, 0, 0))
    for width, head in columns:
        table.add_column(head, overflow="fold", width=width)
    for title in titles:
        table.add_column(title, justify="right")
    for row, shown in zip(names, cells, strict=True):
        table.add_row(*row, *shown)
    return table


def _title(figure: Mapping[str, Any]) -> str:
    unit = "/s" if figure["unit"] == "1/s" else ""
    return f"{figure['title']}{unit}".replace(" ", "\n", 1)


def _longest(text: str) -> int:
    """Characters of the longest of its lines."""
    return max(map(len, text.splitlines()), default=0)


def _names(variant: Mapping[str, Any]) -> list[Text]:
    """What tells a variant from the others, and below it that it is overloaded."""
    names = [Text(show(value)) for value in variant["settings"].values()]
    names = names or [Text(variant["label"])]
    if variant["state"] == OVERLOADED:
        names[0].append(f"\n{OVERLOADED}", style="red")
    return names


def _cell(figure: Mapping[str, Any], index: int) -> Text:
    """The mean, and below it the difference to the base."""
    mean = figure["means"][index]
    text = Text(written(mean, figure["unit"]), style="bold" if index in figure["best"] else "")
    apart = figure["differences"][index]
    if apart is not None:
        text.append(
            f"\n{relative(apart)}", style="not bold" if apart["certain"] else "not bold dim"
        )
    return text


def written(value: float | None, unit: str) -> str:
    """A figure with the unit that its column does not have."""
    if unit == "ms":
        return milliseconds(value)
    return share(value) if unit == "share" else number(value)


def relative(apart: Mapping[str, Any]) -> str:
    """A difference in percent of the base, with half its interval.

    >>> relative({"mean": -3.0, "relative": -0.123, "relative_half_width": 0.0214})
    '-12 ±2.1%'
    >>> relative({"mean": 0.0, "relative": 0.0, "relative_half_width": 0.0})
    '0%'
    """
    if apart["relative"] is None:
        return "" if apart["mean"] is None else "0%" if apart["mean"] == 0 else "-"
    if apart["mean"] == 0 and not apart["relative_half_width"]:
        return "0%"
    half = apart["relative_half_width"]
    told = _percent(apart["relative"], signed=True)
    return f"{told}%" if half is None else f"{told} ±{_percent(half)}%"


def _percent(part: float, *, signed: bool = False) -> str:
    """Two or three digits: never all of it unless it is all, nor nothing unless it is nothing.

    >>> _percent(-0.9999, signed=True), _percent(0.0004), _percent(0.00001), _percent(1.234)
    ('-99.9', '0.04', '0.01', '123')
    """
    value = 100 * part
    size = abs(value)
    digits = 0 if size >= 10 else 1 if size >= 1 or size == 0 else 2
    if 99 <= size < 100:
        size, digits = math.floor(size * 10) / 10, 1
    if 0 < size < 0.01:
        size = 0.01
    value = math.copysign(size, value)
    return f"{value:+,.{digits}f}" if signed else f"{value:,.{digits}f}"
