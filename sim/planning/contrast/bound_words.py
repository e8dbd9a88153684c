"""Says what bounds the variants of a comparison, and why layouts of GPUs differ.

The figures are those of the runs: where the busy time goes, what a mean iteration spends its time
on, and how many sequences it decodes. Times in ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.fleet.drain import KEEPS_UP
from sim.metrics.terms.definitions import bound_name
from sim.planning.contrast.variant_words import (
    Document,
    Entry,
    entries_of,
    latency_keys,
    name,
    rate_of,
    varied,
)
from sim.units import number

LAYOUT = ("fleet", "replicas")
"""Keys, or the ends of keys, that change which GPU does what; so do all that end in _parallel."""

FEW = 3
"""Variants that the best one is compared with one by one; of more, the second best alone."""

MOST_PARTS = 3
"""Parts of an iteration that a sentence names."""

APART = 0.03
"""The relative difference of a latency or a rate from which on its cause is worth a sentence."""

SPENT: Mapping[str, str] = {
    "weights": "reading weights",
    "kv": "reading the KV cache",
    "activations": "reading activations",
    "compute": "arithmetic",
    "communication": "messages between GPUs",
    "latency": "launch overhead",
    "host": "the engine's own code",
}
"""What a mean iteration spends its time on, by the keys of ``bounds.iteration_ms``."""

PART, LARGE, SAME = 0.1, 0.25, 0.05
"""The share of all that differs between two iterations from which on a part of it is named; the
share of both that a part which hardly differs has where it is named, and how far that may
differ."""


def bound_text(variant: Mapping[str, Any]) -> str:
    """What most of the busy time of a variant goes to; "-" where that is not known.

    >>> bound_text({"bounds": {"bound_by": {"compute": 0.31, "memory": 0.6, "host": 0.09}}})
    'memory 60%'
    """
    shares = (variant.get("bounds") or {}).get("bound_by") or {}
    if not shares:
        return "-"
    most = max(shares, key=lambda key: float(shares[key]))
    return f"{bound_name(most)} {shares[most]:.0%}"


def varies_layout(document: Document) -> bool:
    """Whether the variants differ in their layouts of GPUs."""
    keys = [str(axis["key"]).split(".") for axis in varied(document)]
    return any(key[0] in LAYOUT[:1] and len(key) < 3 for key in keys) or any(
        key[-1] in LAYOUT or key[-1].endswith("_parallel") for key in keys
    )


def why_layouts_differ(document: Document) -> list[str]:
    """Why the best of variants of other layouts is better than each of a few others, or than the
    second best, in sentences; none where nothing tells, the layout is the same, or a variant
    failed."""
    found = [each.get("bounds") or {} for each in document["variants"]]
    entry = _judged_by(document)
    if not varies_layout(document) or not all(each.get("iteration_ms") for each in found):
        return []
    if entry is None or entry["first"] is None:
        return []
    first, means = entry["first"], entry["means"]
    ratios = {i: _ratio(means[first], mean) for i, mean in enumerate(means) if i != first and mean}
    others = sorted((i for i in ratios if ratios[i] >= 1 + APART), key=lambda i: ratios[i])
    others = others if len(others) <= FEW else others[:1]
    if not others:
        return []
    what = f"has the lowest {entry['title']}"
    if entry["better"] == "higher":
        what = f"serves the most {entry['title'].lower()}"
    best = f"its iterations take {_taken(found[first])} on average and decode"
    why = f"Why {name(document, first)} {what}: {best} {_decoded(found[first])}."
    told = [_against(name(document, index), found[first], found[index]) for index in others]
    return [f"{why} {told[0]}", *told[1:]]


def _judged_by(document: Document) -> Entry | None:
    """The figure by which layouts are judged: TPOT where all keep up, else what they serve."""
    if all(variant["state"] in KEEPS_UP for variant in document["variants"]):
        return entries_of(document).get(latency_keys(document)[1])
    return rate_of(document, "output_throughput")


def _ratio(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def _against(other: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """How a mean iteration of the best variant differs from one of the ``other``."""
    parts = ", ".join(_apart(mine["iteration_ms"], theirs["iteration_ms"]))
    return f"Against {other} ({_taken(theirs)}, {_decoded(theirs)}): {parts}."


def _taken(bounds: Mapping[str, Any]) -> str:
    """The time of a mean iteration."""
    return f"{number(sum(bounds['iteration_ms'].values()))} ms"


def _decoded(bounds: Mapping[str, Any]) -> str:
    """The sequences that decode in an iteration of each batch in flight.

    >>> _decoded({"decode_batch": 4.1, "batches": 8}), _decoded({"decode_batch": 24, "batches": 1})
    ('4.1 sequences in each of 8 batches', '24 sequences')
    """
    several = f" in each of {bounds['batches']:,} batches" if bounds["batches"] > 1 else ""
    return f"{number(bounds['decode_batch'])} sequences{several}"


def _apart(mine: Mapping[str, float], theirs: Mapping[str, float]) -> list[str]:
    """The parts of an iteration that differ most, what all others differ by together, and large
    parts that do not differ.

    >>> _apart({"weights": 2.0, "latency": 5.0}, {"weights": 3.1, "latency": 5.01})
    ['1.1 ms less for reading weights', 'the same 5 ms of launch overhead']
    >>> _apart(dict.fromkeys(SPENT, 1.0), dict.fromkeys(SPENT, 2.0))[-2:]
    ['1 ms less for reading activations', '4 ms less for all else']
    """
    differ = {key: mine.get(key, 0.0) - theirs.get(key, 0.0) for key in SPENT}
    whole = sum(map(abs, differ.values()))
    most = sorted(SPENT, key=lambda key: -abs(differ[key]))
    named = [key for key in most[:MOST_PARTS] if abs(differ[key]) >= PART * whole > 0]
    told = [_by(differ[key], SPENT[key]) for key in named]
    rest = sum(differ.values()) - sum(differ[key] for key in named)
    if abs(rest) >= PART * whole > 0:
        told.append(_by(rest, "all else"))
    least = LARGE * max(sum(mine.values()), sum(theirs.values()))
    alike = [
        key for key in SPENT if mine.get(key, 0.0) >= least and abs(differ[key]) < SAME * mine[key]
    ]
    return told + [f"the same {number(mine[key])} ms of {SPENT[key]}" for key in alike]


def _by(milliseconds: float, what: str) -> str:
    return f"{abs(milliseconds):.2g} ms {'more' if milliseconds > 0 else 'less'} for {what}"
