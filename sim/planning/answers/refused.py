"""Lays out why nothing could be served: what does not fit, or which layouts fail."""

from __future__ import annotations

from collections.abc import Mapping

from sim.findings import Cell, Column, Findings, Heading, Headline, Table
from sim.planning.answers.cells import Document, answered, reasons
from sim.units import show_number, show_share

GIB = 2.0**30


def findings(document: Document) -> Findings:
    """The refusal of an ``InfeasibleError`` and its reason, the memory that each part would take,
    and the objection to each layout that was tried."""
    tables = _memory(document["parts"]), reasons(document["layouts"], "Layout by layout")
    return answered(
        document,
        "no answer",
        Headline("bad", _sentence(document["title"]), _sentence(document["detail"])),
        (Heading("summary", "Summary", tuple(table for table in tables if table is not None)),),
    )


def _sentence(text: str) -> str:
    """``text`` with a capital, unless it begins with the name of a model."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def _memory(parts: Mapping[str, float]) -> Table | None:
    """The memory that each part takes of a GPU's share for the engine; None if unknown."""
    usable = parts.get("usable")
    if not usable:
        return None
    needed = {name: size for name, size in parts.items() if name != "usable"}
    most = max(usable, *needed.values())
    rows = tuple(
        (
            Cell(name, name),
            Cell(show_number(size / GIB), size / GIB, bar=size / most),
            Cell(show_share(size / usable).rstrip("%"), round(100 * size / usable, 9)),
        )
        for name, size in (*needed.items(), ("what the engine may use", usable))
    )
    columns = (Column("Memory of one GPU", False), Column("GiB"), Column("Of what it may use (%)"))
    return Table("memory", "What would have to fit", columns, rows)
