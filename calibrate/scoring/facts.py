"""Applies facts about measurements that the columns of a table do not state (``facts.yaml``).

A fact is about whole publications, never about single rows. It corrects cells of a row before they
are read, sets keys of the scenario that repeats it, or both. Facts that were read off the measured
results (``basis: outcome``) are no part of a headline: predictions with them are a second column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from calibrate.scoring.table import Row
from sim.catalog.files import read_yaml
from sim.errors import InfersimError
from sim.scenario.reading.loading import from_mapping
from sim.scenario.reading.overrides import applied

FOLDER = Path(__file__).parent
FILE = FOLDER / "facts.yaml"

BASES = ("stated", "documented", "outcome")
"""How a fact is known: by its publisher, by code or documentation, by the measured results."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about rows whose cells match ``where`` (column: pattern): what they should read
    (``cells``), and ``settings`` of their scenario by dotted key. ``why`` and ``source`` say it in
    words, ``basis`` is one of ``BASES``."""

    where: Mapping[str, str]
    why: str
    source: str
    basis: str
    cells: Mapping[str, str]
    settings: Mapping[str, Any]

    def covers(self, row: Row) -> bool:
        """Whether the fact is about ``row``."""
        return all(re.search(pattern, row[name], re.I) for name, pattern in self.where.items())

    @property
    def remark(self) -> str:
        """The fact and its source in one sentence."""
        return f"{self.why}: {self.source}"


@cache
def facts(path: Path = FILE) -> tuple[Fact, ...]:
    """All facts, in the order in which they are applied."""
    entries: Any = read_yaml(path)["facts"]
    return tuple(
        Fact(
            where=entry["where"],
            why=entry["why"].strip(),
            source=entry["source"].strip(),
            basis=entry["basis"],
            cells=entry.get("cells", {}),
            settings=entry.get("set", {}),
        )
        for entry in entries
    )


def facts_of(row: Row, *, outcomes: bool) -> tuple[Fact, ...]:
    """The facts about ``row``; with ``outcomes`` also those read off measured results."""
    return tuple(
        each for each in facts() if (outcomes or each.basis != "outcome") and each.covers(row)
    )


def corrected(row: Row, found: Iterable[Fact]) -> Row:
    """``row`` with the cells that the facts ``found`` about it correct."""
    cells = dict(row.cells)
    for each in found:
        cells |= each.cells
    return replace(row, cells=cells)


def settings_of(found: Iterable[Fact], numbers: Mapping[str, int]) -> dict[str, Any]:
    """The settings of the facts ``found``; ``numbers`` by the names that sums use."""
    settings: dict[str, Any] = {}
    for each in found:
        settings |= {key: _value(key, value, numbers) for key, value in each.settings.items()}
    return settings


def _value(key: str, value: Any, numbers: Mapping[str, int]) -> Any:
    if isinstance(value, str) and value.startswith("="):
        terms = [term.strip() for term in value[1:].split("+")]
        return sum(numbers[term] if term in numbers else int(term) for term in terms)
    if key == "engine" and value.endswith(".yaml"):
        return str(FOLDER / value)
    return value


def overridden(document: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario ``document`` with ``settings`` made to it as ``--set`` makes them."""
    found, problems = applied(from_mapping(document), settings)
    if problems:
        raise InfersimError("; ".join(each.message for each in problems))
    return dict(found.data)
