"""Checks the bands of ratios: of two published figures of one source, under other conditions.

A person who compares two variants asks for their ratio, of which much of the error is shared
(``sim.metrics.bands.ratio_bands``). How far it is shared was learnt without the source
(``learning``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from calibrate.scoring.learning import pairs, sample, teaching
from calibrate.scoring.predict import Scored
from sim.catalog.spreads import learnt
from sim.metrics.bands.bands import CAUSES, scaled
from sim.metrics.bands.ratio_bands import Error, ratio_band

KIN = {cause.part: "one source" for cause in CAUSES.values()}
"""Two rows of a source have all their errors from one origin."""


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
    known = teaching(rows)
    by_quantity: dict[str, list[tuple[bool, bool, float, float]]] = {}
    for one, other in pairs(sample(rows)).T.tolist():
        mine, theirs = known[one], known[other]
        by_quantity.setdefault(str(mine.quantity), []).append(_judged(mine, theirs))
    return [_of(quantity, found) for quantity, found in by_quantity.items()]


def _judged(one: Scored, other: Scored) -> tuple[bool, bool, float, float]:
    """Whether the measured ratio lies in the 50 % and the 90 % band, and half-widths of the latter
    with what is shared, and without."""
    spreads = learnt().for_source(one.source)
    mine, theirs = (
        Error(scaled(_causes(row), spreads.scale(row.setting)), KIN) for row in (one, other)
    )
    measured = float(one.measured or 0) / float(other.measured or 1)
    off = measured / (float(one.predicted or 0) / float(other.predicted or 1))
    found, alone = (
        ratio_band(1.0, mine, theirs, spreads._replace(shared=each))
        for each in (spreads.shared, 0.0)
    )
    (low50, high50), (low90, high90) = found.band50, found.band90
    return (
        low50 <= off <= high50,
        low90 <= off <= (high90 or math.inf),
        _half_width(found.band90),
        _half_width(alone.band90),
    )


def _causes(row: Scored) -> dict[str, float]:
    """Causes of the side on which the measurement lies, and those of one side, since a ratio may be
    off either way by them; a rate falls as they grow, a time does not, so that within one quantity
    all have one sign."""
    larger = float(row.measured or 0) > float(row.predicted or 0)
    causes = {**row.causes, **row.causes_of_side[larger]}
    return {name: abs(weight) for name, weight in causes.items()}


def _half_width(band: tuple[float, float | None]) -> float:
    low, high = band
    return ((high or math.inf) - low) / 2


def _of(quantity: str, found: Sequence[tuple[bool, bool, float, float]]) -> RatioCoverage:
    columns = list(zip(*found, strict=True))
    half, ninety = (100 * sum(column) / len(found) for column in columns[:2])
    widths = (100 * sorted(column)[len(found) // 2] for column in columns[2:])
    return RatioCoverage(quantity, len(found), half, ninety, *widths)
