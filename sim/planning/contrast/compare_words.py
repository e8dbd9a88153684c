"""Words a comparison: which variant is best, by how much, and in which state each is.

The terminal and the page use the same sentences. What they rank by is what means something in that
state: throughput where all are overloaded, the latencies of those that keep up otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sim.metrics.load.long_enough import FULL
from sim.metrics.states import State
from sim.metrics.texts import SENT_MOST, replica_name
from sim.planning.contrast.arriving_words import shifts, whole_run_text
from sim.planning.contrast.difference_words import ORDER, how_sure, with_unit
from sim.planning.contrast.fleet_bills import of_fleets, same_bill
from sim.planning.contrast.variant_words import (
    SAME,
    Document,
    Entry,
    alike,
    entries_of,
    latency_keys,
    metric_of,
    name,
    rate_of,
    varied,
)
from sim.units import TWICE, milliseconds, show_utilisation

BY_THROUGHPUT = (State.OVERLOADED, State.OFFLINE, State.CLOSED_LOOP)
"""States in which the throughput is what a variant achieves, not what the traffic asks for."""

MOST_NAMED = 3
"""Variants that a sentence lists."""


def shared_errors(document: Document) -> str:
    """The errors of variants together and of each alone, in sentences; empty where that is not
    known."""
    base = document["base"]
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for index, variant in enumerate(document["variants"]):
        found = variant.get("errors")
        if index != base and found:
            key = tuple(found["shared"]), tuple(found["own"])
            groups.setdefault(key, []).append(index)
    told = []
    for (shared, own), members in groups.items():
        who = "" if len(groups) == 1 else f" ({_list(document, members)})"
        parts = [f"Errors that both share cancel in part: {_causes(shared)}"] if shared else []
        parts += (
            [f"{'those' if shared else 'Errors'} of each alone do not: {_causes(own)}"]
            if own
            else []
        )
        told.append(f"{'; '.join(parts)}{who}.")
    return " ".join(told)


def _causes(names: Sequence[str]) -> str:
    """Parts of the error in words that a list can hold."""
    words = {"run": "whole runs", "left out": "what is not modelled"}
    return ", ".join(words.get(each, each) for each in names)


class CompareLine(NamedTuple):
    """A line on the variants, with how ``sure`` it is that the best one is, where that is known;
    ``of_fleets`` where it says what their fleets cost."""

    text: str
    sure: str = ""
    of_fleets: bool = False

    @property
    def whole(self) -> str:
        """The line with how sure it is."""
        return f"{self.text} {self.sure}".strip()


def lines_of(document: Document) -> list[CompareLine]:
    """The states and the best variant in the metric that means something there, then the rest, and
    what pads batches."""
    told = _told(document)
    if told and (uneven := _uneven(document)):
        first = told[0]
        told[0] = (
            first._replace(sure=f"{first.sure} {uneven}")
            if first.sure
            else first._replace(text=f"{first.text} {uneven}")
        )
    padded = document.get("padding")  # that of runs on the disk is not known
    return [*told, CompareLine(padded)] if told and padded else told


def _uneven(document: Document) -> str:
    """The replicas that are near saturation, or beyond it, because their router sends them the most
    work, of the few variants where they are the fullest; empty where there are none."""
    found = [
        (variant["busiest_replica"], name(document, index))
        for index, variant in enumerate(document["variants"])
        if "busiest_replica" in variant
    ]
    full = [each for each in found if each[0]["utilisation"] >= FULL]
    full.sort(key=lambda each: -each[0]["utilisation"])
    return " ".join(
        f"With {label} {replica_name(one['replica'])}, {SENT_MOST}, takes "
        f"{show_utilisation(one['utilisation'])} of its own capacity."
        for one, label in full[:MOST_NAMED]
    )


def _told(document: Document) -> list[CompareLine]:
    """What the metrics say."""
    served = [i for i, variant in enumerate(document["variants"]) if variant["error"] is None]
    if not served:
        return []
    states = [document["variants"][index]["state"] for index in served]
    over = [index for index in served if document["variants"][index]["state"] == State.OVERLOADED]
    if all(state in BY_THROUGHPUT for state in states):
        return _by_throughput(document, served, all_over=len(over) == len(served))
    unsure = [index for index in served if document["variants"][index]["state"] == State.TOO_SHORT]
    up = [index for index in served if index not in [*over, *unsure]]
    told = [_keeping_up(document, served, up)] if up else []
    if over:
        told.append(
            f"{_list(document, over)} {'are' if len(over) > 1 else 'is'} {State.OVERLOADED}"
        )
    if unsure:
        who = _all(served) if unsure == served else _list(document, unsure)
        they = "they keep" if len(unsure) > 1 else "it keeps"
        told.append(f"{who} ran {State.TOO_SHORT} whether {they} up (run.requests)")
    text = "; ".join(told)
    entries = entries_of(document)
    further = [CompareLine(of_fleets(document), of_fleets=True)]
    key = latency_keys(document)[0]
    latency = _latency(document, entries[key], up) if key in entries else CompareLine("")
    further.append(latency._replace(sure=f"{latency.sure} {_growing(document, served)}".strip()))
    rate = rate_of(document, "request_goodput" if limited(document) else "output_throughput")
    if rate is not None and not (same_bill(document) and alike(rate["means"])):
        further.append(_rate(document, rate, served))
    return [CompareLine(f"{text}."), *(line for line in further if line.whole)]


def _keeping_up(document: Document, served: Sequence[int], up: Sequence[int]) -> str:
    """The variants that hold the traffic, ``up``, and which of them only just."""
    who, plural = _all(served) if up == served else _list(document, up), len(up) > 1
    text = f"{who} keep{'' if plural else 's'} up with the traffic"
    near = [i for i in up if document["variants"][i]["state"] == State.NEAR_SATURATION]
    if near:
        text += f" ({'all' if near == up and plural else _list(document, near)} near saturation)"
    return text


def main_headline(document: Document) -> tuple[CompareLine, list[str]]:
    """The headline, with what fleets cost where they differ, else with the first line that says how
    sure the best variant is; and the other lines."""
    lines = lines_of(document)
    if not lines:
        return CompareLine(""), []
    first, *others = lines
    at = next((n for n, line in enumerate(others) if line.of_fleets), None)
    if at is None and not first.sure:
        at = next((n for n, line in enumerate(others) if line.sure), None)
    if at is not None:
        more = others.pop(at)
        first = CompareLine(f"{first.text} {more.text}", f"{first.sure} {more.sure}".strip())
    return first, [line.whole for line in others]


def limited(document: Document) -> bool:
    """Whether there is an SLO; without one there is no goodput."""
    entry = entries_of(document).get("verdict.attainment")
    return entry is not None and any(mean is not None for mean in entry["means"])


def _all(served: Sequence[int]) -> str:
    return "Both" if len(served) == 2 else f"All {len(served)}"


def _list(document: Document, indices: Sequence[int]) -> str:
    """Variants by their labels, the first few."""
    labels, count = [name(document, index) for index in indices], len(document["variants"])
    several = len(varied(document)) > 1 and len(labels) > 1
    if count > MOST_NAMED + 1 and (several or len(labels) > MOST_NAMED):
        return f"{len(labels)} of {count}"
    apart = "; " if several else ", "
    return f"{apart.join(labels[:-1])} and {labels[-1]}" if len(labels) > 1 else labels[0]


def _by_throughput(
    document: Document, served: Sequence[int], *, all_over: bool
) -> list[CompareLine]:
    entry = rate_of(document, "output_throughput")
    assert entry is not None
    told = [_rate(document, entry, served)]
    if all_over:
        told[0] = told[0]._replace(text=f"{_all(served)} are {State.OVERLOADED}; {told[0].text}")
        told.append(
            CompareLine(
                "Latencies depend on how long the overload lasts: they rank the variants and say "
                "no more."
            )
        )
    return told


def _growing(document: Document, served: Sequence[int]) -> str:
    """That latencies of variants of which the fleet or a replica is overloaded grow with the length
    of a run; empty where there are none."""
    over = [
        index
        for index in served
        for variant in [document["variants"][index]]
        if variant["state"] == State.OVERLOADED
        or variant.get("busiest_replica", {}).get("utilisation", 0.0) >= 1
    ]
    if not over:
        return ""
    return (
        f"Latencies of {_list(document, over)} grow with the length of the run: multiples of them "
        "say little."
    )


def _rate(document: Document, entry: Entry, served: Sequence[int]) -> CompareLine:
    """The variant that serves the most, and how many times what the others serve."""
    metric = metric_of(entry)
    what = (metric.title if metric is not None else str(entry["title"])).lower()
    first, best = entry["first"], entry["best"]
    if first is not None and alike(entry["means"]):
        value = with_unit(entry, entry["means"][first])
        return CompareLine(f"{what.capitalize()}: the same within {SAME:.1%}, about {value}.")
    if first is None or not best:
        return CompareLine(
            f"{what.capitalize()}: no difference that is sure, {_span(entry, served)}."
        )
    value = with_unit(entry, entry["means"][first])
    others, sure = _others(document, entry, first), ""
    when = " while requests come" if shifts(document, entry, first, others) else ""
    head = f"{name(document, first)} serves the most {what}{when}, {value}"
    if what == "goodput":
        head = f"{name(document, first)} has the highest goodput{when}, {value}"
    if others:
        sure = how_sure(document, entry, first, _least_sure(entry, others))
    times = _times(document, entry, first, "{}x")
    whole = whole_run_text(document, entry, first, others)
    return CompareLine(f"{head}{_tied(best)}{times}.{whole}", sure)


def _latency(document: Document, entry: Entry, up: Sequence[int]) -> CompareLine:
    """The variant that answers soonest among those that keep up."""
    means = {index: entry["means"][index] for index in up}
    known = {index: mean for index, mean in means.items() if mean is not None}
    if len(known) < 2:
        return CompareLine("")
    title, first = entry["title"], entry["first"]
    if first not in known:
        first = min(known, key=lambda index: known[index])
        value = milliseconds(known[first])
        return CompareLine(f"Of these, {name(document, first)} has the lowest {title}, {value}.")
    if not entry["best"]:
        return CompareLine(f"{title}: no difference that is sure, {_span(entry, list(known))}.")
    if alike(entry["means"]):
        return CompareLine(
            f"{title}: the same within {SAME:.1%}, about {milliseconds(known[first])}."
        )
    head = f"{name(document, first)} has the lowest {title}, {milliseconds(known[first])}"
    others, sure = _others(document, entry, first), ""
    if others:
        sure = how_sure(document, entry, first, _least_sure(entry, others))
    times = _times(document, entry, first, "{} times as long")
    return CompareLine(f"{head}{_tied(entry['best'])}{times}.", sure)


def _span(entry: Entry, variants: Sequence[int]) -> str:
    """The mean that these variants have, or the least and the largest where they differ."""
    known = [mean for index in variants if (mean := entry["means"][index]) is not None]
    low, high = (with_unit(entry, end(known, default=None)) for end in (min, max))
    return f"about {low}" if low == high else f"with means of {low} to {high}"


def _tied(best: Sequence[int]) -> str:
    return f" (tied with {len(best) - 1} more)" if len(best) > 1 else ""


def _others(document: Document, entry: Entry, first: int) -> list[int]:
    """Variants that the best one is compared with in a sentence: each of a few, or the last."""
    means = entry["means"]
    others = [
        index
        for index, mean in enumerate(means)
        if mean and index != first and index not in entry["best"]
    ]
    if len(document["variants"]) <= MOST_NAMED + 1 or not others:
        return others
    return [max(others, key=lambda index: _ratio(means[first], means[index]))]


def _least_sure(entry: Entry, others: Sequence[int]) -> int:
    """The variant of ``others`` of which it is least sure that the best one is better."""

    def doubt(index: int) -> int:
        word = (entry["to_first"][index] or {}).get("trust")
        return ORDER.index(word) if word else -1

    return max(others, key=doubt)


def _times(document: Document, entry: Entry, first: int, form: str) -> str:
    """The best value against that of each of a few others, or against the last."""
    means = entry["means"]
    shown = _others(document, entry, first)
    if not shown or not means[first]:
        return ""
    told = []
    for index in shown:
        times = form.format(_multiple(_ratio(means[first], means[index])))
        if entry["better"] == "lower":
            told.append(f"{name(document, index)}: {times}")
        else:
            told.append(f"{times} {name(document, index)}")
    return f" ({'; '.join(told)})" if entry["better"] == "lower" else f": {', '.join(told)}"


def _ratio(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def _multiple(ratio: float) -> str:
    """A ratio of three digits at the most, two below ten.

    >>> _multiple(9.853), _multiple(1.049), _multiple(14000.0)
    ('9.9', '1.05', '14,000')
    """
    if ratio >= 10:
        return f"{ratio:,.0f}"
    return f"{ratio:.1f}" if ratio >= TWICE else f"{ratio:.3g}"
