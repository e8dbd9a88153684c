"""Says what predictions are good for, by engine, GPU and kind of measurement, from how far
published measurements were off."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from calibrate.scoring.errors import QUANTITIES, coverage, grouped, kind
from calibrate.scoring.predict import Scored
from sim.catalog.spreads import related

NARROW, WIDE = 20.0, 60.0
"""Half-widths in %: to plan with, and to compare alternatives with at most."""

LOW = 80.0
"""Share of measurements in the 90 % band below which it was too narrow, in %."""


class Use(NamedTuple):
    """Advice on one quantity of an ``engine`` on a ``gpu``: the share of its ``rows`` in the 90 %
    band (%), half of the median band's width (% of the prediction), and by how much the median
    measurement lies above its prediction (%)."""

    engine: str
    gpu: str
    kind: str
    quantity: str
    rows: int
    covered90: float
    half_width90: float
    above: float

    @property
    def text(self) -> str:
        """The use of the predictions."""
        if self.covered90 < LOW:
            return "measure before you rely on it"
        if self.half_width90 <= NARROW:
            return "good to plan with"
        if self.half_width90 <= WIDE:
            return "good to compare alternatives, with headroom to plan"
        return "an order of magnitude"


def uses(rows: Sequence[Scored]) -> list[Use]:
    """One for each quantity of each engine, GPU and kind of measurement; ``rows`` have bands."""
    return [
        _of(where, quantity, of_it)
        for where, members in sorted(grouped(rows, _where).items())
        for quantity in QUANTITIES
        if (of_it := [row for row in members if row.quantity == quantity])
    ]


def _where(row: Scored) -> tuple[str, ...]:
    """Preset, GPU and kind of measurement."""
    assert row.known is not None
    return (related(row.engine), row.known.gpu, kind(row)[0].partition(",")[0])


def _of(where: tuple[str, ...], quantity: str, rows: Sequence[Scored]) -> Use:
    found = coverage(rows)
    assert found is not None
    ratio = median(float(row.measured or 0) / float(row.predicted or 1) for row in rows)
    engine, gpu, of = where
    return Use(
        engine, gpu, of, quantity, len(rows), found.covered90, found.half_width90, 100 * (ratio - 1)
    )
