"""Lays out the answer of ``infersim compare``: of variants, or of finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.errors import shorten
from sim.findings import Cell, Column, Drawing, Drawings, Findings, Heading, Headline, Lines, Table
from sim.metrics.own import PREFIX
from sim.metrics.states import SloState, State
from sim.planning.answers.cells import MOST_ROWS, STATES, Document, answered, failures, setup, text
from sim.planning.answers.drawings import (
    BATCHING,
    BarChart,
    ChartAxis,
    ChartBar,
    ChartPoint,
    Mark,
    PointChart,
    Series,
    far_apart,
)
from sim.planning.contrast.bound_words import bound_text, varies_layout, why_layouts_differ
from sim.planning.contrast.compare_words import limited, main_headline, shared_errors
from sim.planning.contrast.difference_words import (
    TRUST_WORDS,
    change,
    head,
    in_reality,
    mark,
    reason,
    with_unit,
    written,
)
from sim.planning.contrast.fleet_bills import same_bill
from sim.planning.contrast.variant_words import (
    Entry,
    entries_of,
    in_full,
    latency_keys,
    metric_of,
    rate_of,
    values_of,
    varied,
)
from sim.planning.points.figures import COMING, DOLLARS, HELD, KWH
from sim.planning.points.wording import spoken
from sim.units import PER_OUTPUT_TOKENS, show_cost, show_utilisation

FEW = 6
"""Variants that need no numbers."""

LONGEST = 28
"""Characters of a name that stands next to a number."""

MOST_DRAWN = 4
"""Variants of which a run is drawn."""

MOST_CAUSES = 2
"""Sentences on why layouts differ among the first lines."""

COST, ATTAINED = "cost.usd_per_million_output_tokens", "verdict.attainment"
"""The cost of variants, and the share of requests that they serve within the SLO."""


def definition(entry: Entry) -> str | None:
    """The definition of a metric; None for one of the user's own."""
    metric = metric_of(entry)
    if metric is None:
        return None
    return "coming" if entry["key"].startswith(COMING) else metric.definition


def numbered(document: Document) -> bool:
    """Whether variants have numbers (#1 is the first) in figures and tables."""
    return len(document["variants"]) > FEW


def names(document: Document, *, short: bool = False) -> list[str]:
    """The name of each variant: what distinguishes it from the others, or its number where that
    takes several lines; ``short``, the number alone where they have one."""
    many, texts = numbered(document), []
    for index in range(len(document["variants"])):
        texts.append(shorten(spoken(" ".join(" · ".join(values_of(document, index)).split()))))
    if not many and len(set(texts)) == len(texts):  # others are shortened to the same
        return texts
    return [
        f"#{place}" if short or (many and len(text) + 5 > LONGEST) else f"#{place} {text}"
        for place, text in enumerate(texts, 1)
    ]


def best_first(entry: Entry, values: Sequence[float | None]) -> list[int]:
    """The variants that have a value, the best first where one way is better."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if entry["better"] is not None:
        sign = -1 if entry["better"] == "higher" else 1
        known.sort(key=lambda pair: (sign * pair[1], pair[0]))
    return [index for index, _ in known][:MOST_ROWS]


def chosen(document: Document) -> list[int]:
    """The variants of which a run is drawn: the base, then the best by TTFT or, without it, by
    throughput; in the order of the comparison."""
    served = [i for i, each in enumerate(document["variants"]) if each["error"] is None]
    ranked = list(served)
    for key in ("output_throughput", latency_keys(document)[0]):
        if (entry := rate_of(document, key)) is not None:
            best = best_first(entry, entry["means"])
            ranked = [*best, *(i for i in ranked if i not in best)]
    if document["base"] in ranked:
        ranked.sort(key=lambda index: index != document["base"])
    return sorted([index for index in ranked if index in served][:MOST_DRAWN])


def drawn_entries(document: Document) -> list[Entry]:
    """The figures whose means and differences are drawn."""
    keys = ("output_throughput", *latency_keys(document), "request_goodput")
    return [entry for key in keys if (entry := rate_of(document, key)) is not None]


def of_means(document: Document) -> Iterator[Drawing]:
    """The cost of variants against their service, and the means that most readers look for."""
    if (found := cost_attained(document)) is not None:
        title = "Cost against requests within the SLO"
        note = "Up and to the left is better in both."
        yield Drawing("cost-attained", title, "attainment", note, found, kind="")
    note = _cut("Mean of each variant; pale: overloaded.", document)
    for entry in drawn_entries(document):
        if any(value is not None for value in entry["means"]):
            name = f"mean-{entry['key']}"
            yield Drawing(name, entry["title"], definition(entry), note, means_of(document, entry))


def of_differences(document: Document) -> Iterator[Drawing]:
    """The differences to the base in the same metrics."""
    note = (
        "Green circle: better than the base; red cross: worse; grey diamond: statistically tied "
        "with it."
    )
    for entry in drawn_entries(document):
        differences = apart(document, entry)
        if differences.bars:
            name, title = f"difference-{entry['key']}", entry["title"]
            yield Drawing(name, title, "difference", _cut(note, document), differences)


def _cut(note: str, document: Document) -> str:
    axes = varied(document)
    if len(axes) > 1:
        note += f" Labels: {' · '.join(axis['name'] for axis in axes)}."
    count = len(document["variants"])
    return note if count <= MOST_ROWS else f"{note} The best {MOST_ROWS} of {count:,}."


def _bar(document: Document, entry: Entry, index: int, end: float, words: str) -> ChartBar:
    """The bar of a variant; under the pointer are its state, and how it differs from the best one
    in this metric."""
    each = document["variants"][index]
    known = (words, each["label"], each["state"] or "failed", reason(document, entry, index))
    policy = each["settings"].get(BATCHING)
    tone, pale = f"policy {policy}" if policy else "all", each["state"] == State.OVERLOADED
    text = "\n".join(filter(None, known))
    return ChartBar(names(document)[index], end, text, words, tone, pale=pale)


def means_of(document: Document, entry: Entry) -> BarChart:
    """The means of a metric, the best first; dots on a logarithmic axis, on which a bar would begin
    nowhere, where latencies are far apart."""
    values, timed = entry["means"], entry["unit"] == "ms"
    best = best_first(entry, values)
    wide = timed and far_apart([values[index] for index in best])
    axis = ChartAxis(entry["title"], "ms", wide) if timed else ChartAxis(head(entry))
    made = (_bar(document, entry, i, values[i], with_unit(entry, values[i])) for i in best)
    return BarChart(axis, tuple(made))


FAR = 3.0
"""A ratio to the base from which on differences are multiples on a logarithmic axis."""


def apart(document: Document, entry: Entry) -> BarChart:
    """The relative differences to the base in a metric, with their intervals, the best first; in
    multiples of the base where one is far from it."""
    found, bars = entry["differences"], []
    best = best_first(entry, [each and each["relative"] for each in found])
    ratios = [1 + found[index]["relative"] for index in best]
    far = min(ratios, default=0.0) > 0 and max(*ratios, 1 / min(ratios)) >= FAR
    for index, ratio in zip(best, ratios, strict=True):
        each, tone, half = found[index], "", found[index]["relative_half_width"] or 0.0
        if each["certain"] and entry["better"] is not None:
            tone = "good" if (each["mean"] > 0) == (entry["better"] == "higher") else "bad"
        end = ratio if far else each["relative"]
        low = end - min(half, 0.999 * ratio) if far else end - half
        bar = _bar(document, entry, index, end, f"{change(each)} against the base")
        bars.append(bar._replace(words="", tone=tone, pale=False, interval=(low, end + half)))
    title = f"{entry['title']}, times that of the base"
    axis = (
        ChartAxis(title, "ratio", True)
        if far
        else ChartAxis(f"{entry['title']}, difference", "share")
    )
    return BarChart(axis, tuple(bars), (Mark(float(far), dash="solid"),), dots=True)


def cost_attained(document: Document) -> PointChart | None:
    """Variants by what a million output tokens cost (USD) and by the share within the SLO; None
    unless two, and not too many, have both."""
    entries = entries_of(document)
    if COST not in entries or ATTAINED not in entries:
        return None
    means_of = entries[COST]["means"], entries[ATTAINED]["means"]
    called = zip(names(document), names(document, short=True), document["variants"], strict=True)
    series = tuple(
        Series(short, (ChartPoint(usd, attained, name),), settings=each["settings"])
        for usd, attained, (name, short, each) in zip(*means_of, called, strict=True)
        if None not in (usd, attained)
    )
    if not 2 <= len(series) <= MOST_ROWS:
        return None
    lowest = min(point.y for each in series for point in each.points)
    pad = max(0.02, 0.1 * (1 - lowest))
    share = ChartAxis("requests within the SLO", "share", ends=(max(0.0, lowest - pad), 1 + pad))
    return PointChart(ChartAxis(PER_OUTPUT_TOKENS), share, series)


OF_SLO = ("request_goodput", f"{COMING}request_goodput", "verdict.attainment")
"""Metrics that say nothing without an SLO."""

SHOWN = ("request_goodput", "output_throughput", "mean_ttft_ms")
"""Metrics that a terminal is shown, with TTFT and TPOT at the percentiles of the SLO and the user's
own; all are on the page and in the result."""

IN_FULL = ("p99_itl_ms",)
"""Metrics that only ``--full`` adds."""

WITHOUT_SLO = ("p99_e2el_ms",)
"""Metrics in addition without an SLO."""

HITS, MORE_HITS = "prefix_cache.hit_rate", 0.03
"""The share of prompt tokens that a prefix cache had, and the difference between variants from
which on it is shown whatever was varied."""

ROUTED = (HITS, "routing.tokens_over_mean")
"""Metrics in addition where routers are compared."""

ENERGY = "energy.joules_per_output_token"
"""The metric that first lines leave out where the column on what bounds layouts takes its room."""

COSTS = ("verdict.attainment", COST, ENERGY)
"""Metrics in addition where variants do not cost the same: what they serve for it."""

FLEETS = (
    "verdict.attainment", DOLLARS.key, KWH.key, HELD.key, ENERGY,
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
    padded = [document["padding"]] if document.get("padding") else []
    why = why_layouts_differ(document)
    slower = document.get("tpot") or []
    others += [*why, *(each["text"] for each in slower)]
    short = [each["brief"] for each in slower[:1]]
    brief = dict.fromkeys((*others[:1], *padded, *why[:MOST_CAUSES], *short))
    errors = shared_errors(document)
    drawn = tuple(of_means(document)), tuple(of_differences(document))
    label = "-" if base is None else spoken(variants[base]["label"])
    told = [f"Differences to {label}: {document['pairing']}."]
    told += [f"{TRUST_WORDS} {errors}"] if errors else []
    return answered(
        document,
        "comparison",
        Headline(
            "neutral",
            spoken(first.text),
            spoken(" ".join(others)),
            spoken(" ".join(brief)),
            spoken(first.sure),
        )
        if first.text
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
            Heading("figures", "Figures", (_means(document), Lines(tuple(in_full(document))))),
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
    )


def _on_terminal(document: Document) -> set[str]:
    """The metrics that say most of what was varied."""
    entries = entries_of(document)
    costs = [cost for cost in entries[COST]["means"] if cost] if COST in entries else []
    shown = [entry["key"] for key in SHOWN if (entry := rate_of(document, key)) is not None]
    found = {*shown, *latency_keys(document), *document.get("latencies", {}).values()}
    found.update(key for key in entries if key.startswith(PREFIX))
    if not limited(document):
        found.update(WITHOUT_SLO)
    if any(axis["key"] == "router" for axis in varied(document)):
        found.update(ROUTED)
    if HITS in entries:
        both = zip(entries[HITS]["means"], document["variants"], strict=True)
        hits = [mean or 0.0 for mean, variant in both if variant["error"] is None]
        found.update([HITS] if max(hits) - min(hits) > MORE_HITS else [])
    if HELD.key in entries:
        found.update(FLEETS)
        if same_bill(document):  # whole runs differ by their last answers alone
            found -= {DOLLARS.key, KWH.key}
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
    layouts = varies_layout(document)
    bound = Column("Bound by", False, "bound_by", fold=2, on_terminal=layouts)
    full = Column(
        "Busiest replica (%)", definition="busiest_replica", on_terminal=_uneven(document)
    )
    columns = [*heads, Column("State", False, on_terminal=apart), bound, full]
    for entry in document["figures"]:
        unit, key = "ms" if entry["unit"] == "ms" else "", entry["key"]
        column = Column(head(entry), True, definition(entry), unit=unit)
        there, brief = key in (*shown, *IN_FULL), key in shown and not (layouts and key == ENERGY)
        columns.append(column._replace(on_terminal=there, in_brief=brief))
    rows = tuple(
        (
            *_names(document, index),
            text(state)._replace(tone=STATES.get(state, "")),
            text(bound_text(document["variants"][index])),
            _busiest(document["variants"][index]),
            *(_mean(document, entry, index) for entry in document["figures"]),
        )
        for index, state in enumerate(states)
    )
    legend = (MARKS["best"], "is the best of a column"), (MARKS["tied"], "is tied with it")
    return Table("means", "Means", tuple(columns), rows, keys=len(heads), legend=legend)


def _uneven(document: Document) -> bool:
    """Whether a router deals unevenly, so that a replica is fuller than the fleet."""
    return any("busiest_replica" in variant for variant in document["variants"])


def _busiest(variant: Mapping[str, Any]) -> Cell:
    """The share of its own capacity that the busiest replica takes."""
    found = variant.get("busiest_replica")
    if found is None:
        return Cell("-", None)
    used = float(found["utilisation"])
    return Cell(show_utilisation(used).removesuffix("%"), round(100 * used, 6))


def _mean(document: Document, entry: Entry, index: int) -> Cell:
    value, unit = entry["means"][index], entry["unit"]
    if value is None:
        return Cell("-", None)
    shown = show_cost(value) if unit == "USD" else written(value, unit).removesuffix("%")
    exact = round(100 * value, 9) if unit == "share" else value
    misses = document["variants"][index].get("slo") == SloState.MISSED
    ranked = unit != "USD" or not (misses or same_bill(document))
    best = "" if not ranked else MARKS[mark(entry, index)]
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
