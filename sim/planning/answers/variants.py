"""Names, orders and draws the variants of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.errors import shorten
from sim.findings import Drawing
from sim.metrics.states import State
from sim.metrics.terms.definitions import METRIC
from sim.planning.answers.cells import MOST_ROWS, Document
from sim.planning.answers.drawings import (
    CostAttained,
    Differences,
    Means,
    TradePoint,
    VariantBar,
    VariantName,
)
from sim.planning.contrast.compare_words import change, head, reason, with_unit
from sim.planning.contrast.variant_words import Entry, entries_of, latency_keys, values_of, varied
from sim.planning.points.wording import spoken

BATCHING = "scheduler.batching"
"""The setting whose values have colours of their own."""

FEW = 6
"""Variants that need no numbers."""

LONGEST = 28
"""Characters of a name that stands next to a number."""

MOST_DRAWN = 4
"""Variants of which a run is drawn."""

COST, ATTAINED = "cost.usd_per_million_output_tokens", "verdict.attainment"
"""The cost of variants, and the share of requests that they serve within the SLO."""


def definition(entry: Entry) -> str | None:
    """The definition of a metric; None for one of the user's own."""
    return METRIC[entry["key"]].definition if entry["key"] in METRIC else None


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
    entries, ranked = entries_of(document), list(served)
    for key in ("output_throughput", latency_keys(document)[0]):
        if key in entries:
            best = best_first(entries[key], entries[key]["means"])
            ranked = [*best, *(i for i in ranked if i not in best)]
    if document["base"] in ranked:
        ranked.sort(key=lambda index: index != document["base"])
    return sorted([index for index in ranked if index in served][:MOST_DRAWN])


def drawn(document: Document) -> list[Entry]:
    """The figures whose means and differences are drawn."""
    entries = entries_of(document)
    keys = ("output_throughput", *latency_keys(document), "request_goodput")
    return [entries[key] for key in keys if key in entries]


def of_means(document: Document) -> Iterator[Drawing]:
    """The cost of variants against their service, and the means that most readers look for."""
    if (found := cost_attained(document)) is not None:
        title = "Cost against requests within the SLO"
        note = "Up and to the left is better in both."
        yield Drawing("cost-attained", title, "attainment", note, found, kind="")
    note = _cut("Mean of each variant; pale: overloaded.", document)
    for entry in drawn(document):
        if any(value is not None for value in entry["means"]):
            name = f"mean-{entry['key']}"
            yield Drawing(name, entry["title"], definition(entry), note, means(document, entry))


def of_differences(document: Document) -> Iterator[Drawing]:
    """The differences to the base in the same metrics."""
    note = "Green: better than the base; red: worse; grey: statistically tied with it."
    for entry in drawn(document):
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


def _named(document: Document, entry: Entry) -> list[VariantName]:
    """Each variant, with its state and how it differs from the best one in this metric."""
    found = []
    for index, (name, each) in enumerate(zip(names(document), document["variants"], strict=True)):
        policy = each["settings"].get(BATCHING)
        hover = (each["label"], each["state"] or "failed", reason(document, entry, index))
        over = each["state"] == State.OVERLOADED
        known = tuple(line for line in hover if line)
        found.append(VariantName(name, known, policy and str(policy), over))
    return found


def means(document: Document, entry: Entry) -> Means:
    """The means of a metric, the best first."""
    named, values = _named(document, entry), entry["means"]
    bars = (
        VariantBar(named[index], values[index], with_unit(entry, values[index]))
        for index in best_first(entry, values)
    )
    return Means(entry["title"], head(entry), entry["unit"] == "ms", tuple(bars))


def apart(document: Document, entry: Entry) -> Differences:
    """The relative differences to the base in a metric, the best first."""
    named, found = _named(document, entry), entry["differences"]
    bars = []
    for index in best_first(entry, [each and each["relative"] for each in found]):
        each, better = found[index], None
        if each["certain"] and entry["better"] is not None:
            better = (each["mean"] > 0) == (entry["better"] == "higher")
        half = each["relative_half_width"] or 0.0
        bars.append(VariantBar(named[index], each["relative"], change(each), half, better))
    return Differences(entry["title"], tuple(bars))


def cost_attained(document: Document) -> CostAttained | None:
    """Variants' cost and service within the SLO; None unless two, and not too many, have both."""
    entries = entries_of(document)
    if COST not in entries or ATTAINED not in entries:
        return None
    means = entries[COST]["means"], entries[ATTAINED]["means"]
    rows = zip(*means, names(document), names(document, short=True), strict=True)
    points = tuple(TradePoint(*row) for row in rows if None not in row)
    return CostAttained(points) if 2 <= len(points) <= MOST_ROWS else None
