"""Which points of a sweep make a line, and in which colour and dash is it drawn?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports import theme

MOST_LINES = 8
"""Lines that can be told apart in one figure."""

_DASHES = ("solid", "dash")

Row = Mapping[str, Any]


class Line(NamedTuple):
    """Points that differ in one value only, by that value; ``label`` says what they share."""

    label: str
    rows: list[Row]


def lines(document: Mapping[str, Any], key: str) -> list[Line]:
    """The points with figures, one line for each combination of what is not ``key``."""
    found: dict[str, Line] = {}
    names = {axis["key"]: axis["name"] for axis in document["axes"]}
    for row in document["results"]:
        if row["summary"] is not None:
            label = ", ".join(
                f"{names[other]}={_written(value)}"
                for other, value in row["settings"].items()
                if other != key
            )
            found.setdefault(label, Line(label, [])).rows.append(row)
    for line in found.values():
        line.rows.sort(key=lambda row: row["settings"][key])
    return list(found.values())


def style(index: int) -> tuple[str, str]:
    """Colour and dash of a line: first all colours, then again with dashes."""
    tone = theme.SERIES[index % len(theme.SERIES)]
    return tone.light, _DASHES[index // len(theme.SERIES) % len(_DASHES)]


def limits(rows: Sequence[Row], latency: str) -> list[float]:
    """The limits (ms) of a latency that any of these points has."""
    found = set()
    for row in rows:
        limit = row["summary"]["infersim"]["verdict"]["limits"].get(latency)
        if limit is not None:
            found.add(limit["limit_ms"])
    return sorted(found)


def _written(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
