"""How does a comparison become one HTML page?

``write_compare_report`` takes what ``infersim compare`` has in its ``result.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.asked import question
from reports.content import Plot, to_json
from reports.definitions import DEFINITIONS as OF_RUNS
from reports.definitions import Definition
from reports.formats import MISSING, Kind, phrase, show
from reports.page import fill
from reports.planning import differences
from reports.planning.study import Headline, reasons
from reports.tables import Cell, Column, Table
from reports.whole_file import write_whole

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Figures",
    "differences": "Differences",
    "failures": "Failures",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

DEFINED: Mapping[str, str] = {
    "request_throughput": "request_throughput",
    "request_goodput": "goodput",
    "output_throughput": "output_throughput",
    "verdict.attainment": "attainment",
    **{f"{rank}_{name}_ms": name for rank in ("mean", "p99") for name in ("ttft", "tpot", "e2el")},
    "cost.usd_per_million_output_tokens": "cost",
}
"""Figure -> its definition."""

DEFINITIONS: Mapping[str, Definition] = {
    **{name: OF_RUNS[name] for name in dict.fromkeys(DEFINED.values())},
    "difference": Definition(
        "Difference",
        "The mean of the variant over that of the base, less one, in percent. The interval comes "
        "of pairs that met the same traffic, for each figure by itself: of twenty intervals one "
        "may miss the truth.",
    ),
}

DRAWN = ("output_throughput", "p99_ttft_ms", "p99_tpot_ms", "request_goodput")
"""Figures whose means and differences are drawn."""

_TOLD = ("p99_ttft_ms", "output_throughput")
"""Figures of which the summary names the best variants."""

_MOST_NAMED = 3


def write_compare_report(target: Path, document: Mapping[str, Any]) -> Path:
    """Write the page to ``target``, whole or not at all, and return it; OSError if that fails."""
    write_whole(target, render_compare(document))
    return target


def render_compare(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone."""
    variants, base = document["variants"], document["base"]
    failed = reasons([(v["label"], v["error"]) for v in variants if v["error"] is not None])
    told = headlines(document)
    return fill(
        "compare.html.j2",
        {key: title for key, title in SECTIONS.items() if failed or key != "failures"},
        _definitions(document),
        header={
            "name": document["name"],
            "kind": "comparison",
            **question(document["name"], "comparison", document.get("asked"), ""),
            "setup": [
                *([("Model", document["model"])] if "model" in document else []),
                ("Compared", f"{len(variants)}"),
                ("Base", MISSING if base is None else variants[base]["label"]),
                ("Traffic", "the same" if document["same_traffic"] else "not the same"),
            ],
        },
        headline=Headline("neutral", told[0]) if told else None,
        told=told[1:],
        pairing=document["pairing"],
        notes=document["notes"],
        failures=failed,
        tables={"means": _means(document), "differences": _differences(document)},
        means=_plots(document, of_means=True),
        plots=_plots(document, of_means=False),
        provenance={"version": document["infersim"]},
    )


def _definitions(document: Mapping[str, Any]) -> dict[str, Definition]:
    """Those of the figures that are compared."""
    names = [DEFINED[f["key"]] for f in document["figures"] if f["key"] in DEFINED]
    return {name: DEFINITIONS[name] for name in (*dict.fromkeys(names), "difference")}


def headlines(document: Mapping[str, Any]) -> list[str]:
    """Which variants are best, in the figures that matter most."""
    entries = {figure["key"]: figure for figure in document["figures"]}
    return [_headline(document, entries[key]) for key in _TOLD if key in entries]


def _headline(document: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    title, best = entry["title"], entry["best"]
    if not best:
        return f"{title}: no variant can be told from the others"
    labels = [document["variants"][index]["label"] for index in best]
    value = phrase(entry["means"][best[0]], "number", "ms" if entry["unit"] == "ms" else "per s")
    if len(best) == 1:
        return f"{title}: best is {labels[0]}, {value}"
    named = f"{'; '.join(labels[:_MOST_NAMED])}{_more(labels)}"
    return f"{title}: best are {named}; about {value}"


def _more(labels: list[str]) -> str:
    left = len(labels) - _MOST_NAMED
    return f" and {left} more" if left > 0 else ""


def _plots(document: Mapping[str, Any], *, of_means: bool) -> list[Plot]:
    """The means, or the differences, of the figures that most readers look for."""
    entries = {figure["key"]: figure for figure in document["figures"]}
    found = []
    for entry in (entries[key] for key in DRAWN if key in entries):
        key, title = entry["key"], entry["title"]
        if of_means and any(value is not None for value in entry["means"]):
            spec, note = differences.means(document, key), _cut("Mean of each variant.", document)
            found.append(Plot(f"mean-{key}", title, DEFINED[key], note, to_json(spec), kind="own"))
        elif not of_means and any(d and d["relative"] is not None for d in entry["differences"]):
            spec = differences.figure(document, key)
            note = "Green: better than the base; red: worse; grey: cannot be told from it."
            note = _cut(note, document)
            name = f"difference-{key}"
            found.append(Plot(name, title, "difference", note, to_json(spec), kind="own"))
    return found


def _cut(note: str, document: Mapping[str, Any]) -> str:
    most, count = differences.MOST_ROWS, len(document["variants"])
    return note if count <= most else f"{note} The first {most} of {count:,}."


def _kind(unit: str) -> Kind:
    return "share" if unit == "share" else "usd" if unit == "USD" else "number"


def _title(entry: Mapping[str, Any]) -> str:
    if entry["unit"] == "USD":
        return str(entry["title"])  # which begins with the unit
    return f"{entry['title']} ({'%' if entry['unit'] == 'share' else entry['unit']})"


def _means(document: Mapping[str, Any]) -> Table:
    """Every figure of every variant, the best ones marked."""
    rows = []
    for index, variant in enumerate(document["variants"]):
        cells = [Cell(variant["label"], variant["label"])]
        for entry in document["figures"]:
            shown = show(entry["means"][index], _kind(entry["unit"]))
            mark = "★ " if index in entry["best"] else ""
            cells.append(Cell(f"{mark}{shown.text}", shown.value))
        state = variant["state"] or "failed"
        rows.append((*cells, Cell(state, state)))
    columns = (
        Column("Variant", False),
        *(
            Column(_title(entry), definition=DEFINED.get(entry["key"]))
            for entry in document["figures"]
        ),
        Column("State", False),
    )
    caption = "Means; ★ is the best of a column, and what cannot be told from it"
    return Table("means", caption, columns, tuple(rows))


def _differences(document: Mapping[str, Any]) -> Table:
    """The difference to the base in percent, with its interval, figure by figure."""
    rows = []
    for index, variant in enumerate(document["variants"]):
        if index == document["base"] or variant["error"] is not None:
            continue
        cells = [Cell(variant["label"], variant["label"])]
        cells += [_apart(entry["differences"][index]) for entry in document["figures"]]
        rows.append(tuple(cells))
    columns = (
        Column("Variant", False),
        *(Column(entry["title"], definition="difference") for entry in document["figures"]),
    )
    return Table("differences", "Differences to the base (%)", columns, tuple(rows))


def _apart(apart: Mapping[str, Any] | None) -> Cell:
    if apart is None or apart["relative"] is None:
        same = apart is not None and apart["mean"] == 0
        return Cell("0", 0.0) if same else Cell(MISSING, None)
    value, half = 100 * apart["relative"], apart["relative_half_width"]
    if value == 0 and not half:
        return Cell("0", 0.0)
    text = f"{value:+,.1f}" if half is None else f"{value:+,.1f} ± {100 * half:,.1f}"
    return Cell(text, round(value, 4))
