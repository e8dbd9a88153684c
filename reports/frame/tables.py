"""Defines the tables of pages as plain data: text to read, numbers to sort by and to copy.

They become HTML in ``templates/tables.html.j2``.
"""

from __future__ import annotations

from typing import NamedTuple


class PageColumn(NamedTuple):
    """A heading; ``definition`` is the key of the definition that it links to, ``prose`` text that
    may take several lines, ``unit`` that of the values that are copied, where cells show others."""

    title: str
    numeric: bool = True
    definition: str | None = None
    prose: bool = False
    unit: str = ""


class Cell(NamedTuple):
    """What to read, what to sort by (None comes last), the width of a bar, 0..1, if any, what is
    shown under the pointer, and the colour of an effect (good or bad) with its strength, 0..1."""

    text: str
    value: float | str | None
    definition: str | None = None
    bar: float | None = None
    hint: str = ""
    tone: str = ""
    strength: float = 0.0


class PageTable(NamedTuple):
    """Rows under a caption; ``name`` is unique on the page."""

    name: str
    caption: str
    columns: tuple[PageColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
