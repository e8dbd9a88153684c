"""Says where whole runs compare in another way than the time in which requests come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.fleet.drain import still_working
from sim.planning.contrast.variant_words import Document, Entry, entries_of, name
from sim.planning.points.figures import COMING
from sim.units import show_time

SHIFTED = 0.05
"""The difference of two multiples, of whole runs and of the time in which requests came, from which
on both are said."""


def shifts(document: Document, entry: Entry, first: int, others: Sequence[int]) -> dict[int, float]:
    """The variants of ``others`` of which the ``first`` one has another multiple of a rate over the
    whole run than while requests come (``entry``), with that of the whole run."""
    whole = entries_of(document).get(entry["key"].removeprefix(COMING))
    if whole is None or whole["key"] == entry["key"]:
        return {}
    found, rates, means = {}, entry["means"], whole["means"]
    for index in others:
        if all((rates[first], rates[index], means[first], means[index])):
            fair, times = rates[first] / rates[index], means[first] / means[index]
            if max(fair / times, times / fair) >= 1 + SHIFTED:
                found[index] = times
    return found


def whole_run_text(document: Document, entry: Entry, first: int, others: Sequence[int]) -> str:
    """The multiples of whole runs where they are others (``shifts``), and which fleet or replica
    worked on after the last arrival; to stand behind a sentence."""
    shifted = shifts(document, entry, first, others)
    if not shifted:
        return ""
    drained: list[Mapping[str, Any]] = [
        each.get("while_arriving") or {} for each in document["variants"]
    ]
    late = max(shifted, key=lambda index: float(drained[index].get("drain_s", 0.0)))
    end = _end(drained[late])
    why = f" (with {name(document, late)} {end})" if end else ""
    told = ", ".join(f"{times:.3g}x {name(document, index)}" for index, times in shifted.items())
    return f" Over the whole run: {told}{why}."


def _end(found: Mapping[str, Any]) -> str:
    """What worked on after the last arrival, the fleet where no replica is overloaded alone."""
    if not found:
        return ""
    of_fleet = f"the fleet was still working {show_time(found['drain_s'])} after the last arrival"
    return still_working(found) or of_fleet
