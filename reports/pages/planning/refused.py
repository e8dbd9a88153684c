"""Renders why nothing could be served as one HTML page: what does not fit, or which fleets fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.frame.asked import provenance, question
from reports.frame.formats import show
from reports.frame.page import fill
from sim.findings import Cell, Column, Headline, Table
from sim.planning.answers.cells import reasons
from sim.results.whole_file import write_text

SECTIONS: Mapping[str, str] = {"summary": "Summary"}

GIB = 2.0**30


def write_refusal(target: Path, document: Mapping[str, Any]) -> Path:
    """Write the page to ``target``, whole or not at all, and return it; OSError if that fails."""
    write_text(target, render_refusal(document))
    return target


def render_refusal(document: Mapping[str, Any]) -> str:
    """The page as HTML; a function of its argument alone.

    The first line of the ``reason`` is the answer; each further one is a layout, a colon, and what
    speaks against it.
    """
    first, *others = str(document["reason"]).splitlines()
    title, _, rest = first.removesuffix(":").partition(": ")
    rows = [line.strip().partition(": ") for line in others if line.strip()]
    layouts = reasons([(name, why) for name, _, why in rows])
    return fill(
        "refused.html.j2",
        SECTIONS,
        {},
        header={
            "name": document["scenario"],
            "kind": "no answer",
            **question(document["scenario"], "no answer", document["asked"], ""),
            "setup": [],
        },
        headline=Headline("bad", _sentence(title), _sentence(rest)),
        memory=_memory(document["parts"]),
        layouts=None if layouts is None else layouts._replace(caption="Layout by layout"),
        provenance=provenance(document),
    )


def _sentence(text: str) -> str:
    """``text`` with a capital, unless it begins with the name of a model."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def _memory(parts: Mapping[str, float]) -> Table | None:
    """What each part takes of the memory of a GPU that the engine may use; None if unknown."""
    usable = parts.get("usable")
    if not usable:
        return None
    needed = {name: size for name, size in parts.items() if name != "usable"}
    most = max(usable, *needed.values())
    rows = [
        (
            Cell(name, name),
            Cell(*show(size / GIB, "number"), bar=size / most),
            Cell(*show(size / usable, "share")),
        )
        for name, size in (*needed.items(), ("what the engine may use", usable))
    ]
    columns = (
        Column("Memory of one GPU", False),
        Column("GiB"),
        Column("Of what it may use (%)"),
    )
    return Table("memory", "What would have to fit", columns, tuple(rows))
