"""Renders the ``result.json`` of ``infersim compare`` as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import cost_attained, differences, variants
from reports.figures.naming import spoken
from reports.frame.asked import on_gpus, provenance, question
from reports.frame.content import Plot, to_json
from reports.frame.formats import MISSING, NARROW_SPACE, Kind, show
from reports.frame.page import fill
from reports.pages.planning.compare_runs import (
    Runs,
    differing,
    drawn_variants,
    links,
    overlays,
    slot_plots,
)
from sim.findings import Cell, Column, Headline, Table
from sim.metrics.terms.definitions import DEFINITIONS as OF_RUNS
from sim.metrics.terms.definitions import METRICS
from sim.metrics.terms.metric import Definition
from sim.planning.answers.cells import reasons
from sim.planning.contrast.compare_words import (
    TRUST_WORDS,
    change,
    head,
    in_reality,
    limited,
    main_headline,
    mark,
    reason,
    shared_errors,
)
from sim.planning.contrast.variant_words import values_of, varied
from sim.units import milliseconds

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "figures": "Figures",
    "differences": "Differences",
    "failures": "Failures",
    "definitions": "Definitions",
}
"""Anchor -> heading, in the order of the page."""

OF_FLEETS = ("cost.usd", "energy.kwh")
"""Metrics that are compared where fleets hold different numbers of replicas."""

DEFINED: Mapping[str, str] = {
    m.key: m.definition for m in METRICS if m.compared or m.key in OF_FLEETS
}
"""Figure -> its definition."""

DEFINITIONS: Mapping[str, Definition] = {
    **{name: OF_RUNS[name] for name in dict.fromkeys(DEFINED.values())},
    "difference": Definition(
        "Difference",
        "The mean of the variant over that of the base: less one, in percent, or from twice on as "
        "a multiple (9.9x). The interval comes of pairs that met the same traffic, for each figure "
        "by itself: about 1 in 20 intervals misses the true value. The word is how sure the "
        "difference is, given the errors of predicted times, in which variants on the same kernels "
        "and engine share much: throughout the 90 % band of the ratio (sure), the 50 % band "
        "(likely), or not even there (a guess).",
    ),
    "tied": Definition(
        "Best and tied",
        "★ has the best mean of a column. ~ is tied with it: the interval of their difference "
        "contains 0. Each is compared with the best one alone, by pairs of runs on the same "
        "traffic, so that a variant whose mean is nearer can still be worse for sure. The pointer "
        "on a value shows the difference.",
    ),
}

OF_RUN: Mapping[str, str] = {"runs": "One run of each"}
"""The section that a page has where runs are drawn."""

NO_RUNS: Runs = {}

DRAWN = ("output_throughput", "p99_ttft_ms", "p99_tpot_ms", "request_goodput")
"""Figures whose means and differences are drawn."""


_OF_SLO = ("request_goodput", "verdict.attainment")
"""Metrics that say nothing without an SLO."""


def render(document: Mapping[str, Any], runs: Runs = NO_RUNS) -> str:
    """The page as HTML; a function of its arguments alone. One run of some variants, ``runs``, is
    drawn where there are any."""
    if not limited(document):
        kept = [entry for entry in document["figures"] if entry["key"] not in _OF_SLO]
        document = {**document, "figures": kept}
    found, base = document["variants"], document["base"]
    failed = reasons([(v["label"], v["error"]) for v in found if v["error"] is not None])
    first, told = main_headline(document)
    gpus = on_gpus(document)
    errors = shared_errors(document)
    shown = drawn_variants(document, runs)
    sections = {"summary": SECTIONS["summary"], **(OF_RUN if runs else {}), **SECTIONS}
    return fill(
        "compare.html.j2",
        {key: title for key, title in sections.items() if failed or key != "failures"},
        _definitions(document),
        header={
            "name": document["name"],
            "kind": "comparison",
            **question(document["name"], "comparison", document.get("asked"), "", on=gpus),
            "setup": [
                *([("Model", document["model"])] if "model" in document else []),
                *([("GPUs", gpus)] if gpus else []),
                ("Compared", f"{len(found)}"),
                ("Base", MISSING if base is None else spoken(found[base]["label"])),
                ("Traffic", "the same" if document["same_traffic"] else "not the same"),
            ],
        },
        headline=Headline("neutral", spoken(first)) if first else None,
        told=[spoken(line) for line in told],
        pairing=document["pairing"],
        notes=[*([f"{TRUST_WORDS} {errors}"] if errors else []), *document["notes"]],
        failures=failed,
        tables={"means": _means(document), "differences": _differences(document)},
        means=[*_cost(document), *_plots(document, of_means=True)],
        plots=_plots(document, of_means=False),
        slots=slot_plots(shown),
        overlays=overlays(shown, runs),
        settings=differing(document, runs) if len(runs) > 1 else None,
        drawn_note=_drawn_note(document, runs),
        links=links(document, runs),
        provenance=provenance(document),
    )


def _drawn_note(document: Mapping[str, Any], runs: Runs) -> str:
    """Which run of each variant is drawn, and of how many variants."""
    text = "One run of each variant" + (
        ", on the same traffic." if document["same_traffic"] else "."
    )
    count = len(document["variants"])
    if len(runs) < count:
        text += f" The base and the best, {len(runs)} of {count:,} variants."
    return text


def _definitions(document: Mapping[str, Any]) -> dict[str, Definition]:
    """The definitions of the figures that are compared."""
    names = [DEFINED[f["key"]] for f in document["figures"] if f["key"] in DEFINED]
    return {name: DEFINITIONS[name] for name in (*dict.fromkeys(names), "tied", "difference")}


_MEAN = "Mean of each variant; pale: overloaded."


def _plots(document: Mapping[str, Any], *, of_means: bool) -> list[Plot]:
    """The means, or the differences, of the figures that most readers look for."""
    entries = {figure["key"]: figure for figure in document["figures"]}
    found = []
    for entry in (entries[key] for key in DRAWN if key in entries):
        key, title = entry["key"], entry["title"]
        if of_means and any(value is not None for value in entry["means"]):
            spec, note = differences.means(document, key), _cut(_MEAN, document)
            found.append(Plot(f"mean-{key}", title, DEFINED[key], note, to_json(spec), kind="own"))
        elif not of_means and any(d and d["relative"] is not None for d in entry["differences"]):
            spec = differences.figure(document, key)
            note = "Green: better than the base; red: worse; grey: statistically tied with it."
            note = _cut(note, document)
            name = f"difference-{key}"
            found.append(Plot(name, title, "difference", note, to_json(spec), kind="own"))
    return found


def _cost(document: Mapping[str, Any]) -> list[Plot]:
    """What variants cost, against how many requests they serve within the SLO."""
    spec = cost_attained.figure(document)
    if spec is None:
        return []
    note = "Up and to the left is better in both."
    title = "Cost against requests within the SLO"
    return [Plot("cost-attained", title, "attainment", note, to_json(spec))]


def _cut(note: str, document: Mapping[str, Any]) -> str:
    axes = varied(document)
    if len(axes) > 1:
        note += f" Labels: {' · '.join(axis['name'] for axis in axes)}."
    most, count = variants.MOST_ROWS, len(document["variants"])
    return note if count <= most else f"{note} The best {most} of {count:,}."


def _kind(unit: str) -> Kind:
    return "share" if unit == "share" else "usd" if unit == "USD" else "number"


def _column(entry: Mapping[str, Any]) -> Column:
    of = "ms" if entry["unit"] == "ms" else ""
    return Column(head(entry), definition=DEFINED.get(entry["key"]), unit=of)


def _names(document: Mapping[str, Any], index: int) -> list[Cell]:
    """What tells a variant from the others, its number first where it has one."""
    shown = [Cell(value, value) for value in values_of(document, index)]
    if variants.numbered(document):
        shown.insert(0, Cell(f"#{index + 1}", index + 1))
    return shown


def _heads(document: Mapping[str, Any]) -> list[Column]:
    heads = [Column(axis["name"], False) for axis in varied(document)] or [Column("Variant", False)]
    return [*([Column("#", False)] if variants.numbered(document) else []), *heads]


def _means(document: Mapping[str, Any]) -> Table:
    """Every metric of every variant, the best ones marked."""
    rows = []
    for index, variant in enumerate(document["variants"]):
        state = variant["state"] or "failed"
        cells = [*_names(document, index), Cell(state, state)]
        for entry in document["figures"]:
            shown = show(entry["means"][index], _kind(entry["unit"]))
            sign = {"best": "★ ", "tied": "~ ", "": ""}[mark(entry, index)]
            timed = entry["unit"] == "ms" and shown.value is not None
            text = milliseconds(shown.value) if timed else shown.text
            hint = reason(document, entry, index)
            cells.append(Cell(f"{sign}{text}", shown.value, hint=hint))
        rows.append(tuple(cells))
    heads = _heads(document)
    heads[-1] = heads[-1]._replace(definition="tied")
    columns = (*heads, Column("State", False), *map(_column, document["figures"]))
    caption = "Means; ★ is the best of a column, ~ is tied with it"
    return Table("means", caption, columns, tuple(rows))


def _differences(document: Mapping[str, Any]) -> Table:
    """The difference to the base, with its interval, metric by metric."""
    rows = []
    for index, variant in enumerate(document["variants"]):
        if index == document["base"] or variant["error"] is not None:
            continue
        cells = _names(document, index)
        cells += [_apart(entry["differences"][index]) for entry in document["figures"]]
        rows.append(tuple(cells))
    columns = (
        *_heads(document),
        *(
            Column(entry["title"], definition="difference", unit="%")
            for entry in document["figures"]
        ),
    )
    caption = "Differences to the base: in percent, from twice on as multiples of its value"
    return Table("differences", caption, columns, tuple(rows))


def _apart(apart: Mapping[str, Any] | None) -> Cell:
    if apart is None or change(apart) in ("", "-"):
        return Cell(MISSING, None)
    text = change(apart)
    value = 100 * apart["relative"] if apart["relative"] is not None else 0.0
    if apart["certain"] and apart.get("trust"):
        text += f", {apart['trust']}"
    return Cell(text.replace("%", f"{NARROW_SPACE}%"), round(value, 4), hint=in_reality(apart))
