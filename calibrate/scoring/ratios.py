"""Checks the bands of ratios: of two published figures of one source, under other conditions.

A person who compares two variants asks for their ratio, of which much of the error is shared
(``sim.metrics.bands.ratio_bands``). How far it is shared was learnt without the source
(``learning``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from calibrate.scoring.learning import figures, pairs
from calibrate.scoring.predict import Scored
from sim.catalog.spreads import learnt
from sim.metrics.bands.bands import reach_of
from sim.metrics.bands.ratio_bands import Error, ratio_band


class RatioCoverage(NamedTuple):
    """Of ``pairs`` of figures of one ``quantity``: how many measured ratios lay in the 50 % and the
    90 % band (in %), half of the median width of the latter, and what that would be if nothing were
    shared (in % of the ratio)."""

    quantity: str
    pairs: int
    covered50: float
    covered90: float
    half_width90: float
    unshared90: float


def ratios(rows: Sequence[Scored]) -> list[RatioCoverage]:
    """How far the bands of ratios held, by quantity."""
    known = [row for row in rows if row.at is not None and row.measured and row.predicted]
    by_quantity: dict[str, list[tuple[bool, bool, float, float]]] = {}
    for one, other in pairs(figures(known)):
        mine, theirs = known[one], known[other]
        by_quantity.setdefault(str(mine.quantity), []).append(_judged(mine, theirs))
    return [_of(quantity, found) for quantity, found in by_quantity.items()]


def _judged(one: Scored, other: Scored) -> tuple[bool, bool, float, float]:
    """Whether the measured ratio lies in the 50 % and the 90 % band, and half-widths of the latter
    with what is shared, and without."""
    assert one.at is not None
    assert other.at is not None
    expected = (
        learnt().expected(at.place, row.kind, without=at.place)
        for row, at in ((one, one.at), (other, other.at))
    )
    mine, theirs = (
        Error(at.place, row.kind, reach_of(row.kind, each, at.kernels))
        for row, at, each in zip((one, other), (one.at, other.at), expected, strict=True)
    )
    measured = float(one.measured or 0) / float(other.measured or 1)
    off = measured / (float(one.predicted or 0) / float(other.predicted or 1))
    found = ratio_band(1.0, mine, theirs)
    apart = theirs._replace(place=theirs.place._replace(engine="", gpu="", model="", family=""))
    alone = ratio_band(1.0, mine, apart)
    (low50, high50), (low90, high90) = found.band50, found.band90
    return (
        low50 <= off <= high50,
        low90 <= off <= (high90 or math.inf),
        _half_width(found.band90),
        _half_width(alone.band90),
    )


def _half_width(band: tuple[float, float | None]) -> float:
    low, high = band
    return ((high or math.inf) - low) / 2


def _of(quantity: str, found: Sequence[tuple[bool, bool, float, float]]) -> RatioCoverage:
    columns = list(zip(*found, strict=True))
    half, ninety = (100 * sum(column) / len(found) for column in columns[:2])
    widths = (100 * sorted(column)[len(found) // 2] for column in columns[2:])
    return RatioCoverage(quantity, len(found), half, ninety, *widths)
