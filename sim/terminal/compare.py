"""Renders a comparison in a terminal of 88 columns: the best bold, ties with it marked ~."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.metrics.own import PREFIX
from sim.metrics.states import State
from sim.planning.contrast.compare_words import (
    TRUST_WORDS,
    change,
    head,
    headlines,
    limited,
    mark,
    shared_errors,
    written,
)
from sim.planning.contrast.variant_words import values_of, varied
from sim.planning.points.figures import DOLLARS, HELD, KWH
from sim.terminal.console import WIDTH, axis_columns

SHOWN = ("request_goodput", "output_throughput", "mean_ttft_ms", "p99_ttft_ms", "p99_tpot_ms")
WITHOUT_SLO = (*SHOWN[1:], "p99_e2el_ms")
"""Figures that a terminal is shown; all of them are on the page and in the result."""

ROUTED = ("prefix_cache.hit_rate", "routing.tokens_over_mean")
"""Figures that it is shown in addition where routers are compared."""

COSTS = (
    "verdict.attainment", "cost.usd_per_million_output_tokens", "energy.joules_per_output_token",
)  # fmt: skip
"""Figures in addition where variants do not cost the same: what they serve for it."""

FLEETS = (
    "verdict.attainment", DOLLARS.key, KWH.key, HELD.key, "energy.joules_per_output_token",
)  # fmt: skip
"""Those where fleets differ in number or autoscaling: dollars and energy are of the whole run."""

MOST_OWN = 4
"""A user's own metrics side by side; more go into a table below."""


def compare_view(document: Mapping[str, Any]) -> Group:
    """The variants of ``sim.planning.contrast.compare`` or ``.runs``, one below the other."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    variants = document["variants"]
    yield Text.assemble((document["name"], "bold"), f"  {len(variants)} compared")
    yield from map(Text, headlines(document))
    if document["base"] is not None:
        by_key = {figure["key"]: figure for figure in document["figures"]}
        yield _table(document, SHOWN if limited(document) else WITHOUT_SLO)
        if any(axis["key"] == "router" for axis in varied(document)):
            yield _table(document, ROUTED)
        if _other_fleets(document):
            yield _table(document, FLEETS)
        elif limited(document) and _cost_differs(by_key):
            yield _table(document, COSTS)
        own = [key for key in by_key if key.startswith(PREFIX)]
        for at in range(0, len(own), MOST_OWN):
            yield Text("Metrics of your own", style="bold")
            yield _table(document, own[at : at + MOST_OWN])
        base = variants[document["base"]]["label"]
        yield Text(f"Differences to {base}: {document['pairing']}.", style="dim")
        yield Text(
            "Bold: the best of a column; ~: tied with it. 2x: twice that of the base. Dim: perhaps "
            "no difference.",
            style="dim",
        )
        if errors := shared_errors(document):
            yield Text(f"{TRUST_WORDS} {errors}", style="dim")
    for variant in variants:
        if variant["error"] is not None:
            first = variant["error"].splitlines()[0]
            yield Text(f"failed: {variant['label']}: {first}", style="red")
    for note in document["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _other_fleets(document: Mapping[str, Any]) -> bool:
    """Whether variants differ in how many replicas they have, or in what scales them."""
    return any(figure["key"] == HELD.key for figure in document["figures"])


def _cost_differs(by_key: Mapping[str, Any]) -> bool:
    """Whether one variant costs a tenth more than another one."""
    known = [cost for cost in by_key.get(COSTS[1], {"means": []})["means"] if cost is not None]
    return bool(known) and max(known) > 1.1 * min(known)


def _table(document: Mapping[str, Any], wanted: Sequence[str]) -> Table:
    """The variants, and the figures of these keys."""
    by_key = {figure["key"]: figure for figure in document["figures"]}
    figures = [by_key[key] for key in wanted if key in by_key]
    names = [_names(document, index) for index in range(len(document["variants"]))]
    heads = [axis["name"] for axis in varied(document)] or [""]
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
    for width, axis in columns:
        table.add_column(axis, overflow="fold", width=width)
    for title in titles:
        table.add_column(title, justify="right")
    for row, shown in zip(names, cells, strict=True):
        table.add_row(*row, *shown)
    return table


def _title(figure: Mapping[str, Any]) -> str:
    title = figure["title"] if figure["unit"] == "share" else head(figure)
    return title.replace(" ", "\n", 1)


def _longest(text: str) -> int:
    """Characters of the longest of its lines."""
    return max(map(len, text.splitlines()), default=0)


def _names(document: Mapping[str, Any], index: int) -> list[Text]:
    """What distinguishes a variant from the others, and below it that it is overloaded."""
    names = [Text(value) for value in values_of(document, index)]
    if document["variants"][index]["state"] == State.OVERLOADED:
        names[0].append(f"\n{State.OVERLOADED}", style="red")
    return names


def _cell(figure: Mapping[str, Any], index: int) -> Text:
    """The mean, and below it the difference to the base."""
    found = mark(figure, index)
    tied = "~" if found == "tied" else ""
    shown = written(figure["means"][index], figure["unit"])
    text = Text(f"{tied}{shown}", style="bold" if found == "best" else "")
    apart = figure["differences"][index]
    if apart is not None:
        text.append(f"\n{change(apart)}", style="not bold" if apart["certain"] else "not bold dim")
        if apart["certain"] and apart.get("trust"):
            text.append(f"\n{apart['trust']}", style="not bold dim")
    return text
