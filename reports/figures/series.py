"""Groups the points of a sweep into lines, and gives each variant its colour and dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.frame import theme

MOST_LINES = 8
"""Lines that can be distinguished in one figure."""

BATCHING = "scheduler.batching"
"""The setting whose values have colours of their own."""

_DASHES = ("solid", "dash")

Row = Mapping[str, Any]


class Line(NamedTuple):
    """Points that differ in one value only, by that value; ``label`` says what they share."""

    label: str
    rows: list[Row]


class Style(NamedTuple):
    """How a variant is drawn."""

    color: str
    dash: str


def lines(document: Mapping[str, Any], key: str) -> list[Line]:
    """The points with figures, one line for each combination of what is not ``key``."""
    found: dict[str, Line] = {}
    names = {axis["key"]: axis["name"] for axis in document["axes"]}
    for row in document["results"]:
        if row["summary"] is not None:
            label = ", ".join(
                f"{names[other]}={written(value)}"
                for other, value in row["settings"].items()
                if other != key
            )
            found.setdefault(label, Line(label, [])).rows.append(row)
    for line in found.values():
        line.rows.sort(key=lambda row: row["settings"][key])
    return list(found.values())


def styles(variants: Sequence[Mapping[str, Any]]) -> list[Style]:
    """Colour and dash of variants by their settings. Batching policies have the colours that they
    have everywhere, variants of one number a ramp from its least value to the most; others take
    all colours first, then again with dashes.

    >>> [each.dash for each in styles([{"gpu": gpu} for gpu in "abcde"])]
    ['solid', 'solid', 'solid', 'solid', 'dash']
    >>> few, many, most = (each.color for each in styles([{"slots": n} for n in (8, 32, 128)]))
    >>> (few, most) == (theme.RAMP[0].light, theme.RAMP[-1].light)
    True
    """
    if variants and all(BATCHING in settings for settings in variants):
        tones = [theme.policy(str(settings[BATCHING])).light for settings in variants]
        before = [tones[:index].count(tone) for index, tone in enumerate(tones)]
        return [Style(tone, _dash(seen)) for tone, seen in zip(tones, before, strict=True)]
    order = _ranks(variants)
    if order is not None:
        last = len(theme.RAMP) - 1
        places = [round(last * rank / (len(order) - 1)) for rank in order]
        return [Style(theme.RAMP[place].light, "solid") for place in places]
    count = len(theme.SERIES)
    return [Style(theme.SERIES[i % count].light, _dash(i // count)) for i in range(len(variants))]


def _ranks(variants: Sequence[Mapping[str, Any]]) -> list[int] | None:
    """The rank of each variant by the one number in which they differ; None where it is not one,
    or where there are too few or too many to see an order."""
    keys = variants[0] if 2 < len(variants) <= len(theme.RAMP) else {}
    varied = [key for key in keys if len({str(each.get(key)) for each in variants}) > 1]
    if len(varied) != 1:
        return None
    values: list[Any] = [each[varied[0]] for each in variants]
    numbers = all(isinstance(value, int | float) for value in values)
    if not numbers or len(set(values)) < len(values):
        return None
    return [sorted(values).index(value) for value in values]


def _dash(turn: int) -> str:
    return _DASHES[turn % len(_DASHES)]


def limits(rows: Sequence[Row], latency: str, at: float) -> list[float]:
    """The limits (ms) of a latency that any of these points has: together with others, else of
    its percentile ``at``."""
    found = set()
    for row in rows:
        given = row["summary"]["infersim"]["verdict"]["limits"]
        limit = given.get(latency) or given.get(f"{latency}_p{at:g}")
        if limit is not None:
            found.add(limit["limit_ms"])
    return sorted(found)


def written(value: object) -> str:
    """A value of a setting, short, as ``--set`` takes it.

    >>> written(0.5), written(None), written(True), written("h100-sxm")
    ('0.5', 'null', 'true', 'h100-sxm')
    """
    if isinstance(value, float):
        return f"{value:g}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
