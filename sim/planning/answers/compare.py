"""Lays out the answer of ``infersim compare``: of variants, or of finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.findings import Cell, Column, Drawings, Findings, Heading, Headline, Lines, Table
from sim.metrics.own import PREFIX
from sim.metrics.states import SloState, State
from sim.planning.answers.cells import STATES, Document, failures, setup, text
from sim.planning.answers.variants import COST, definition, numbered, of_differences, of_means
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
    written,
)
from sim.planning.contrast.variant_words import Entry, entries_of, latency_keys, values_of, varied
from sim.planning.points.figures import DOLLARS, HELD, KWH
from sim.planning.points.wording import spoken
from sim.units import show_cost

OF_SLO = ("request_goodput", "verdict.attainment")
"""Metrics that say nothing without an SLO."""

SHOWN = ("request_goodput", "output_throughput", "mean_ttft_ms")
"""Metrics that a terminal is shown, with TTFT and TPOT at the percentiles of the SLO and the user's
own; all are on the page and in the result."""

WITHOUT_SLO = ("p99_e2el_ms",)
"""Metrics in addition without an SLO."""

ROUTED = ("prefix_cache.hit_rate", "routing.tokens_over_mean")
"""Metrics in addition where routers are compared."""

COSTS = ("verdict.attainment", COST, "energy.joules_per_output_token")
"""Metrics in addition where variants do not cost the same: what they serve for it."""

FLEETS = (
    "verdict.attainment", DOLLARS.key, KWH.key, HELD.key, "energy.joules_per_output_token",
)  # fmt: skip
"""Those where fleets differ in number or autoscaling: dollars and energy are of the whole run."""

MARKS: Mapping[str, str] = {"best": "* ", "tied": "~ ", "": ""}
"""The marks before the best mean of a column, and before those tied with it."""


def findings(document: Document) -> Findings:
    """Which variant is best and by how much: means, and differences to the base."""
    if not limited(document):
        kept = [entry for entry in document["figures"] if entry["key"] not in OF_SLO]
        document = {**document, "figures": kept}
    variants, base = document["variants"], document["base"]
    first, others = main_headline(document)
    errors = shared_errors(document)
    drawn = tuple(of_means(document)), tuple(of_differences(document))
    label = "-" if base is None else spoken(variants[base]["label"])
    told = [f"Differences to {label}: {document['pairing']}."]
    told += [f"{TRUST_WORDS} {errors}"] if errors else []
    return Findings(
        document["name"],
        "comparison",
        document["infersim"],
        Headline("neutral", spoken(first), spoken(" ".join(others)))
        if first
        else Headline("bad", "No variant has figures"),
        (
            Heading(
                "summary",
                "Summary",
                (
                    Drawings(drawn[0], "No variant has figures: there is nothing to draw."),
                    Lines(tuple(map(spoken, document["notes"])), "warn"),
                ),
            ),
            Heading("figures", "Figures", (_means(document),)),
            Heading(
                "differences",
                "Differences",
                (
                    Drawings(
                        drawn[1], "No difference to a base is known: there is nothing to draw."
                    ),
                    _differences(document),
                    Lines(tuple(map(spoken, told))),
                ),
            ),
            *failures("Failures", [(v["label"], v["error"]) for v in variants if v["error"]]),
        ),
        (
            *setup(document),
            ("Compared", f"{len(variants)}"),
            ("Base", label),
            ("Traffic", "the same" if document["same_traffic"] else "not the same"),
        ),
        document.get("asked"),
        hardware=document.get("hardware", ""),
    )


def _on_terminal(document: Document) -> set[str]:
    """The metrics that say most of what was varied."""
    entries = entries_of(document)
    costs = [cost for cost in entries[COST]["means"] if cost] if COST in entries else []
    found = {*SHOWN, *latency_keys(document), *document.get("latencies", {}).values()}
    found.update(key for key in entries if key.startswith(PREFIX))
    if not limited(document):
        found.update(WITHOUT_SLO)
    if any(axis["key"] == "router" for axis in varied(document)):
        found.update(ROUTED)
    if HELD.key in entries:
        found.update(FLEETS)
    elif limited(document) and costs and max(costs) > 1.1 * min(costs):
        found.update(COSTS)
    return found


def _heads(document: Document) -> list[Column]:
    """The columns that name a variant, its number first where it has one."""
    heads = [Column(axis["name"], False) for axis in varied(document)] or [Column("Variant", False)]
    return [*([Column("#", False, on_terminal=False)] if numbered(document) else []), *heads]


def _names(document: Document, index: int) -> list[Cell]:
    shown = [text(value) for value in values_of(document, index)]
    return [*([Cell(f"#{index + 1}", index + 1)] if numbered(document) else []), *shown]


def _means(document: Document) -> Table:
    """Every metric of every variant, the best ones marked."""
    heads, shown = _heads(document), _on_terminal(document)
    heads[-1] = heads[-1]._replace(definition="tied")
    states = [variant["state"] or "failed" for variant in document["variants"]]
    apart = any(state in ("failed", State.OVERLOADED) for state in states)
    columns = [*heads, Column("State", False, on_terminal=apart)]
    for entry in document["figures"]:
        unit, there = "ms" if entry["unit"] == "ms" else "", entry["key"] in shown
        columns.append(Column(head(entry), True, definition(entry), unit=unit, on_terminal=there))
    rows = tuple(
        (
            *_names(document, index),
            text(state)._replace(tone=STATES.get(state, "")),
            *(_mean(document, entry, index) for entry in document["figures"]),
        )
        for index, state in enumerate(states)
    )
    caption = "Means: * is the best of a column, ~ is tied with it"
    return Table("means", caption, tuple(columns), rows, keys=len(heads))


def _mean(document: Document, entry: Entry, index: int) -> Cell:
    value, unit = entry["means"][index], entry["unit"]
    if value is None:
        return Cell("-", None)
    shown = show_cost(value) if unit == "USD" else written(value, unit).removesuffix("%")
    exact = round(100 * value, 9) if unit == "share" else value
    misses = document["variants"][index].get("slo") == SloState.MISSED
    best = "" if unit == "USD" and misses else MARKS[mark(entry, index)]
    return Cell(f"{best}{shown}", exact, hint=reason(document, entry, index))


def _differences(document: Document) -> Table:
    """The difference to the base, with its interval, metric by metric."""
    heads, shown = _heads(document), _on_terminal(document)
    rows = tuple(
        (
            *_names(document, index),
            *(_apart(entry["differences"][index]) for entry in document["figures"]),
        )
        for index, variant in enumerate(document["variants"])
        if index != document["base"] and variant["error"] is None
    )
    columns = (
        Column(e["title"], True, "difference", unit="%", on_terminal=e["key"] in shown)
        for e in document["figures"]
    )
    caption = "Differences to the base: 2x is twice its value, grey is perhaps none"
    return Table("differences", caption, (*heads, *columns), rows, keys=len(heads))


def _apart(apart: Mapping[str, Any] | None) -> Cell:
    if apart is None or change(apart) in ("", "-"):
        return Cell("-", None)
    value = 100 * apart["relative"] if apart["relative"] is not None else 0.0
    sure = apart["certain"] and apart.get("trust")
    shown = f"{change(apart)},\n{apart['trust']}" if sure else change(apart)
    tone = "" if apart["certain"] else "none"
    return Cell(shown, round(value, 4), hint=in_reality(apart), tone=tone)
