"""Renders the JSON object of ``infersim score`` as the page "How far to trust this"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

import numpy as np

from reports.figures import score_bands
from reports.figures.score_bands import Held
from reports.frame.content import Plot, to_json
from reports.frame.page import fill, foot
from sim.findings import Cell, Column, Headline, Table
from sim.metrics.terms.metric import Definition

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "advice": "What predictions are good for",
    "coverage": "Do the bands hold?",
    "ratios": "Every measurement",
    "groups": "By source",
    "worst": "Farthest outside",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

DEFINITIONS: Mapping[str, Definition] = {
    "band": Definition(
        "Band",
        "The range in which a measurement is expected with a chance of 50 % or 90 %. Every "
        "measurement is judged by bands that were learnt without its source (engine, GPU and "
        "model).",
    ),
    "width": Definition(
        "±", "Half of the width of the 90 % band in percent of the prediction; the median of rows."
    ),
    "above": Definition(
        "Measured, against predicted",
        "How far the median measurement lies above its prediction, in percent of it.",
    ),
    "error": Definition(
        "Error",
        "How far a prediction was from what was measured, in percent of the measurement: half of "
        "the predictions were nearer than the median, nine of ten nearer than p90.",
    ),
}

QUANTITIES: Mapping[str, str] = {
    "throughput": "Throughput",
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2el": "E2EL",
    "running": "Running requests",
    "bandwidth": "Bandwidth of the weights",
}
"""Measured quantity -> its name on the page."""

MAIN = ("throughput", "tpot", "ttft")
"""Quantities that most readers look for."""

NO_BREAK = "\N{NO-BREAK SPACE}"

FEW = 10
"""Measurements of smaller groups say little of a coverage."""

WORST = 20
"""Rows of the table of those farthest outside their bands."""

Name = TypeVar("Name", str, tuple[str, str])
"""A group of rows."""

Row = Mapping[str, Any]


def render_trust(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    rows = [row for row in document["rows"] if row["band90"] is not None]
    return fill(
        "trust.html.j2",
        SECTIONS,
        DEFINITIONS,
        header={
            "title": "How far to trust this",
            "kind": "trust",
            "name": "How far to trust this",
            "asked": "",
            "changes": "",
            "lead": "Published measurements and the bands that were predicted without them.",
            "setup": [
                ("Measurements", f"{len(rows):,}"),
                ("Not predicted", f"{document['skipped']:,}"),
                ("Sources", f"{len(set(map(_source, rows))):,}"),
            ],
        },
        headline=_headline(rows),
        quantities=_table_of_quantities(rows),
        advice=_table_of_advice(document["advice"]),
        coverage=_coverage_plots(rows),
        ratios=_ratio_plots(rows),
        groups=_table_of_sources(rows),
        worst=_table_of_worst(rows),
        provenance=foot(document["version"], document),
    )


def held(name: str, rows: Sequence[Row]) -> Held:
    """How many of ``rows`` lay in their bands."""
    in50 = sum(row["band50"][0] <= row["measured"] <= row["band50"][1] for row in rows)
    return Held(name, len(rows), in50, sum(map(score_bands.is_inside, rows)))


def _headline(rows: Sequence[Row]) -> Headline:
    if not rows:
        return Headline("neutral", "Nothing was predicted with a band")
    found = held("all", rows)
    of90, of50 = found.in90 / found.rows, found.in50 / found.rows
    widths = (
        f"{QUANTITIES[name]} ±{NO_BREAK}{median(map(_width, members)):.0f} %"
        for name in MAIN
        if (members := [row for row in rows if row["quantity"] == name])
    )
    told = ", ".join(widths)
    return Headline(
        "good" if of90 >= 0.85 else "warn",
        f"{of90:.0%} of the measurements lay in their 90 % band, {of50:.0%} in their 50 % band",
        f"Half of the width of the median 90 % band, for sources that were not measured: {told}."
        if told
        else "",
    )


def _table_of_quantities(rows: Sequence[Row]) -> Table:
    columns = (
        Column("Measured", False),
        Column("Rows"),
        Column("Error, median", definition="error", unit="%"),
        Column("Error, p90", definition="error", unit="%"),
        Column("In 50 % band", definition="band", unit="%"),
        Column("In 90 % band", definition="band", unit="%"),
        Column("±", definition="width", unit="%"),
    )
    cells = []
    for name, title in QUANTITIES.items():
        members = [row for row in rows if row["quantity"] == name]
        if not members:
            continue
        errors = [abs(row["error"]) for row in members]
        found = held(title, members)
        cells.append(
            (
                Cell(title, title),
                Cell(f"{found.rows:,}", found.rows),
                *(_share(np.percentile(errors, rank) / 100) for rank in (50, 90)),
                _share(found.in50 / found.rows),
                _share(found.in90 / found.rows),
                _spread(median(map(_width, members))),
            )
        )
    return Table("quantities", "How far predictions were off", columns, tuple(cells))


def _table_of_advice(found: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        Column("Engine and GPU", False),
        Column("Figure", False),
        Column("Predictions are", False, prose=True),
        Column("±", definition="width", unit="%"),
        Column("In 90 % band", definition="band", unit="%"),
        Column("Rows"),
        Column("Measured, against predicted", definition="above", unit="%"),
    )
    cells = []
    for each in found:
        above = round(each["above"])
        source = f"{each['engine']}, {each['gpu']}"
        quantity = QUANTITIES[each["quantity"]]
        figure = quantity if each["kind"] == quantity.lower() else f"{quantity}, {each['kind']}"
        cells.append(
            (
                Cell(source, source),
                Cell(figure, figure),
                Cell(each["use"], each["use"]),
                _spread(each["half_width90"]),
                _share(each["covered90"] / 100),
                Cell(f"{each['rows']:,}", each["rows"]),
                Cell(f"{above:+d} %" if above else "0 %", each["above"]),
            )
        )
    return Table("advice", "By engine, GPU and kind of measurement", columns, tuple(cells))


def _share(value: float) -> Cell:
    return Cell(f"{value:.0%}", 100 * value)


def _spread(width: float) -> Cell:
    return Cell(f"± {width:,.0f} %", width)


def _grouped(rows: Sequence[Row], name: Callable[[Row], Name]) -> dict[Name, list[Row]]:
    found: dict[Name, list[Row]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return found


def _source(row: Row) -> str:
    return f"{row['engine']} {row['version']}, {row['gpu']}, {row['model']}"


def _quantity(row: Row) -> str:
    return QUANTITIES.get(row["quantity"], row["quantity"])


def _coverage_plots(rows: Sequence[Row]) -> list[Plot]:
    by: Mapping[str, tuple[str, Callable[[Row], str]]] = {
        "quantity": ("By what was measured", _quantity),
        "gpu": ("By GPU", lambda row: str(row["hardware"])),
        "engine": ("By engine", lambda row: str(row["preset"])),
    }
    found = []
    for name, (title, key) in by.items():
        groups = [
            held(group, members)
            for group, members in sorted(_grouped(rows, key).items())
            if len(members) >= FEW
        ]
        if groups:
            note = f"Groups of {FEW} and more; lines: the 95 % interval of the share."
            spec = to_json(score_bands.coverage(groups))
            found.append(Plot(f"coverage-{name}", title, "band", note, spec, kind="own"))
    return found


def _ratio_plots(rows: Sequence[Row]) -> list[Plot]:
    note = "Grey: the 90 % band of each; orange: outside. Log scale, cut at 1/16 and 16."
    return [
        Plot(
            f"ratios-{name}", title, "band", note, to_json(score_bands.ratios(members)), kind="tall"
        )
        for name, title in QUANTITIES.items()
        if len(members := [row for row in rows if row["quantity"] == name]) >= FEW
    ]


def _width(row: Row) -> float:
    low, high = row["band90"]
    return float(100 * (high - low) / 2 / row["predicted"])


def _table_of_sources(rows: Sequence[Row]) -> Table:
    columns = (
        Column("Engine, GPU and model", False),
        Column("Measured", False),
        Column("Rows"),
        Column("In 50 % band", definition="band", unit="%"),
        Column("In 90 % band", definition="band", unit="%"),
        Column("±", definition="width", unit="%"),
    )
    cells = []
    groups = _grouped(rows, lambda row: (_source(row), _quantity(row)))
    for (source, quantity), members in sorted(groups.items()):
        found = held(source, members)
        wide = median(map(_width, members))
        cells.append(
            (
                Cell(source, source),
                Cell(quantity, quantity),
                Cell(f"{found.rows:,}", found.rows),
                _share(found.in50 / found.rows),
                _share(found.in90 / found.rows)._replace(bar=found.in90 / found.rows),
                _spread(wide),
            )
        )
    return Table("groups", "How often bands held, and how wide they are", columns, tuple(cells))


def _table_of_worst(rows: Sequence[Row]) -> Table:
    def outside(row: Row) -> float:
        low, high = row["band90"]
        return float(max(row["measured"] / high, low / row["measured"]))

    columns = (
        Column("Row", False),
        Column("Source", False, prose=True),
        Column("Metric", False),
        Column("Measured / predicted"),
        Column("90 % band / predicted", False, definition="band"),
    )
    cells = []
    for row in sorted(rows, key=outside, reverse=True)[:WORST]:
        if score_bands.is_inside(row):
            break
        place, source = f"{row['source']}:{row['line']}", _source(row)
        ratio = row["measured"] / row["predicted"]
        low, high = (end / row["predicted"] for end in row["band90"])
        band = f"{low:.2g} to {high:.2g}"
        cells.append(
            (
                Cell(place, place),
                Cell(source, source),
                Cell(_quantity(row), _quantity(row), hint=row["metric"]),
                Cell(f"{ratio:.2g}", ratio),
                Cell(band, band),
            )
        )
    return Table("worst", "The farthest first", columns, tuple(cells))
