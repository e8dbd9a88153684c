"""Builds the page that asks one run by hand, as ``sim.ui`` serves it; no answer is in it yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.frame.page import TEMPLATES, fill
from sim.metrics.terms.definitions import DEFINITIONS

SECTIONS = {
    "question": "Question",
    "answer": "Answer",
    "take": "Take along",
    "definitions": "Definitions",
}

FIGURES: Mapping[str, str] = {
    "states": "Requests that run and wait, and the KV cache",
    "ttft": "TTFT of the requests",
    "tpot": "TPOT of the requests",
    "slots": "Requests in the batch",
}
"""Name -> title, in the order of the page."""


def page(
    groups: Mapping[str, Sequence[Any]], lists: Mapping[str, Sequence[str]], most: int, version: str
) -> str:
    """The page with a form of these ``groups`` of fields, which suggests the names in ``lists`` and
    asks for at most so many requests."""
    return fill(
        "asked.html.j2",
        SECTIONS,
        DEFINITIONS,
        live=(TEMPLATES / "asked.js").read_text("utf-8"),
        groups=groups,
        lists=lists,
        most=most,
        figures=FIGURES,
        provenance={"version": version},
    )
