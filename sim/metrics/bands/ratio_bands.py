"""States a band for the ratio of a figure in two runs, from what puts both off and what one alone.

What two runs have in common (an engine, a GPU, a family of models, all of these) puts both off
alike and cancels in their ratio; what is left of each run itself is shared as far as published
pairs of measurements show (``sim.catalog.spreads.Learnt.shared``). Where a run was repeated at the
ends of its band, the ratio reaches at least to what came of that: both runs at the slower end
together where they are of one place, one at the faster and the other at the slower end elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sim.catalog.spreads import NORMAL, PARTS, Deployed, learnt, marks_of
from sim.metrics.bands.bands import CHANCE, KERNELS, WITHIN, Reach, band, reach_of, shares

Bands = Mapping[str, Any]
"""The entry ``infersim.bands`` of a summary."""


class Error(NamedTuple):
    """The possible error of one figure of one run: the ``place`` and ``kind`` that it is expected
    by, how far it ``reaches``, and ``ends``, the logarithm of the figure at the faster and at the
    slower end of the band over the predicted one, None where it was not repeated there.
    ``overload``: the slower end is one."""

    place: Deployed
    kind: str
    reach: Reach
    ends: Sequence[float] | None = None
    overload: bool = False


class RatioBand(NamedTuple):
    """Between which values a ratio lies with a chance of 50 and of 90 % (``high`` of the latter is
    None where it has no bound), and what each part comes to alone, at 90 %."""

    band50: tuple[float, float]
    band90: tuple[float, float | None]
    parts: Mapping[str, float]


def error_of(bands: Bands | None, key: str) -> Error | None:
    """The possible error of the figure ``key`` of a run with such ``bands``; None where it is not
    known, as for a run of an older version."""
    entry = None if bands is None else bands["figures"].get(key.removeprefix("cost."))
    if bands is None or entry is None or "kind" not in entry or "place" not in bands:
        return None
    where = place_of(bands)
    expected = learnt().expected(where, entry["kind"], own=bands["place"]["own"])
    found = reach_of(entry["kind"], expected, bands["place"]["kernels"])
    return Error(where, entry["kind"], found, entry.get("ends"), entry["band90"][1] is None)


def place_of(bands: Bands) -> Deployed:
    """The place that a run with such ``bands`` is judged by; runs of older versions state no
    release."""
    where = bands["place"]
    return Deployed(**{name: where[name] for name in Deployed._fields if name in where})


def alike_in(one: Deployed, other: Deployed) -> list[str]:
    """Parts in which figures of one kind of two runs err alike."""
    marks = zip(PARTS, marks_of(one, ""), marks_of(other, ""), strict=True)
    return [part for part, mine, theirs in marks if mine == theirs]


def ratio_band(
    ratio: float, one: Error, other: Error, chance: float = 0.0, shared: float | None = None
) -> RatioBand:
    """The bands of the ``ratio`` of one figure to that of the other. ``chance`` is the standard
    deviation that chance gives its logarithm; ``shared`` replaces how far what is left of each run
    itself is shared by runs of one place."""
    alike = alike_in(one.place, other.place) if one.kind == other.kind else []
    same = PARTS[-1] in alike
    share = (learnt().shared if shared is None else shared) if same else 0.0
    squares: dict[str, float] = {}
    for part in dict.fromkeys((*one.reach.parts, *other.reach.parts)):
        mine, theirs = one.reach.parts.get(part, 0.0), other.reach.parts.get(part, 0.0)
        both = 1.0 if part in alike else share if part in (WITHIN, KERNELS) else 0.0
        squares[part] = max(0.0, mine**2 + theirs**2 - 2 * both * mine * theirs)
    spread = math.sqrt(sum(squares.values()))
    centre = 0.0 if same else one.reach.centre - other.reach.centre
    sides = _at_ends(one, other, same=same)
    found = []
    for index, normal in enumerate(NORMAL):
        width = spread * min(_multiple(one.reach, index), _multiple(other.reach, index))
        part_of_ends = 1.0 if index else _multiple(one.reach, 0) / _multiple(one.reach, 1)
        low, high = (
            math.hypot(max(0.0, width + sign * centre, part_of_ends * side), normal * chance)
            for sign, side in zip((-1, 1), sides, strict=True)
        )
        found.append(band(ratio, low, high))
    (low90, high90), least = found[1], 0.0 if other.overload else None
    parts = (
        shares(
            {part: math.sqrt(square) for part, square in squares.items()},
            spread * _multiple(one.reach, 1),
        )
        if spread
        else {}
    )
    if chance:
        parts[CHANCE] = math.expm1(NORMAL.ninety * chance)
    return RatioBand(
        found[0],
        (low90 if least is None else least, None if one.overload else high90),
        parts,
    )


def _multiple(reach: Reach, index: int) -> float:
    """The number of spreads to which the 50 % (0) or the 90 % band (1) reaches."""
    spread = math.sqrt(sum(each**2 for each in reach.parts.values()))
    return (reach.half, reach.ninety)[index] / spread if spread else 0.0


def _at_ends(one: Error, other: Error, *, same: bool) -> tuple[float, float]:
    """How much smaller and larger the ratio is at the ends of the bands of times, as logarithms."""
    if one.ends is None and other.ends is None:
        return 0.0, 0.0
    mine, theirs = (each.ends or (0.0, 0.0) for each in (one, other))
    if same:
        moves = [a - b for a, b in zip(mine, theirs, strict=True)]
        return max(0.0, -min(moves)), max(0.0, *moves)
    down = math.hypot(min(0.0, *mine), max(0.0, *theirs))
    up = math.hypot(max(0.0, *mine), min(0.0, *theirs))
    return down, up
