"""Orders, labels and colours the variants of a comparison for its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.figures.layout import ROW_HEIGHT, height
from reports.figures.naming import LINE, label
from reports.figures.series import BATCHING
from reports.frame import theme
from sim.errors import shorten
from sim.metrics.states import State
from sim.planning.contrast.compare_words import reason
from sim.planning.contrast.variant_words import values_of

MOST_ROWS = 24
"""Variants that one figure shows."""

FEW = 6
"""Variants that need no numbers."""

LINE_HEIGHT = 15
"""Pixels that each further line of a label takes."""

Document = Mapping[str, Any]


def numbered(document: Document) -> bool:
    """Whether variants have numbers (#1 is the first) in figures and tables."""
    return len(document["variants"]) > FEW


def names(document: Document) -> list[str]:
    """The label of each variant next to an axis: what distinguishes it from the others, or its
    number where that takes several lines."""
    made = []
    for index in range(len(document["variants"])):
        text = " ".join(" · ".join(values_of(document, index)).split())
        if numbered(document):
            text = f"#{index + 1} {text}"
            text = text if len(text) <= LINE else f"#{index + 1}"
        made.append(label(text))
    if len(set(made)) < len(made):  # shortened to the same
        return [f"#{index + 1} {label(shorten(text))}" for index, text in enumerate(made)]
    return made


def best_first(entry: Mapping[str, Any], values: Sequence[float | None]) -> list[int]:
    """The variants that have a value, the best first where one way is better."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if entry["better"] is not None:
        sign = -1 if entry["better"] == "higher" else 1
        known.sort(key=lambda pair: (sign * pair[1], pair[0]))
    return [index for index, _ in known][:MOST_ROWS]


def tones(document: Document) -> list[str]:
    """Batching policies have the colours that they have everywhere, all others one; what is
    overloaded is pale."""
    found = []
    for variant in document["variants"]:
        policy = variant["settings"].get(BATCHING)
        tone = theme.BLUE if policy is None else theme.policy(str(policy))
        over = variant["state"] == State.OVERLOADED
        found.append((theme.faint(tone) if over else tone).light)
    return found


def edges(document: Document) -> list[str]:
    """The outline of what is drawn pale."""
    return [
        (theme.BLUE if policy is None else theme.policy(str(policy))).light
        for policy in (variant["settings"].get(BATCHING) for variant in document["variants"])
    ]


def tall(labels: Sequence[str]) -> int:
    """Pixels of a figure with these labels: as many as the lines of the tallest one take."""
    lines = max((each.count("<br>") + 1 for each in labels), default=1)
    return height(len(labels), ROW_HEIGHT + LINE_HEIGHT * (lines - 1))


def hover(document: Document, entry: Mapping[str, Any], index: int) -> str:
    """All values of a variant, its state, and how it differs from the best one."""
    variant = document["variants"][index]
    lines = [label(variant["label"]), str(variant["state"] or "failed")]
    against = reason(document, entry, index)
    return "<br>".join([*lines, *([label(against)] if against else [])])
