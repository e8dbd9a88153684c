"""Says by how much a variant of a comparison serves more while requests come, where rates of whole
runs say otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.fleet.drain import still_working
from sim.planning.contrast.variant_words import Document, Entry, name
from sim.units import show_time

SHIFTED = 0.05
"""The difference of two multiples, of whole runs and of the time in which requests came, from which
on both are said."""


def arriving_text(document: Document, entry: Entry, first: int, others: Sequence[int]) -> str:
    """The multiples of a rate by which the ``first`` variant has more than ``others`` over the time
    in which requests came, and which fleet or replica worked on after it; empty where those of
    whole runs are hardly different. To stand behind a sentence."""
    found: list[Mapping[str, Any]] = [
        each.get("while_arriving") or {} for each in document["variants"]
    ]
    means = entry["means"]
    rates = [each.get(entry["key"], mean) for each, mean in zip(found, means, strict=True)]
    told = {}
    for index in others:
        if not rates[first] or not rates[index]:
            continue
        whole, times = means[first] / means[index], rates[first] / rates[index]
        if max(whole / times, times / whole) >= 1 + SHIFTED:
            told[index] = f"{times:.3g}x {name(document, index)}"
    if not told:
        return ""
    late = max(told, key=lambda index: float(found[index].get("drain_s", 0.0)))
    end = _end(found[late])
    why = f" (with {name(document, late)} {end})" if end else ""
    return f" Over the time in which requests came: {', '.join(told.values())}{why}."


def _end(found: Mapping[str, Any]) -> str:
    """What worked on after the last arrival, the fleet where no replica is overloaded alone."""
    if not found:
        return ""
    of_fleet = f"the fleet was still working {show_time(found['drain_s'])} after the last arrival"
    return still_working(found) or of_fleet
