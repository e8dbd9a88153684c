"""Provides how narrow bands could be: widths that the errors of predictions themselves allow.

A band of one width for all rows of a quantity that holds a share of them is as wide as that share
of their errors; nothing that is said of all of them alike can do with less. To hold four fifths of
every large group, bands must grow by what the worst group lacks, and all others with them, since
which group is the worst is not known before it is measured. Half-widths in % of the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrate.scoring.errors import client, coverage, grouped, source
from calibrate.scoring.predict import Scored

LARGE = 10
"""Rows of a group from which on its coverage says something."""

WANTED = 0.8
"""Share of the rows of every large group that bands should hold."""


class Floor(NamedTuple):
    """Of ``rows`` of a ``quantity`` whose clients are as ``of`` says: half the width that holds 85
    and 90 % of their own errors, and half the median width of their bands."""

    quantity: str
    of: str
    rows: int
    holds85: float
    holds90: float
    bands: float


def floors(rows: Sequence[Scored]) -> list[Floor]:
    """By quantity, all of it and by what is published of the clients."""
    known = [row for row in rows if row.bands is not None]
    found = []
    for quantity, members in grouped(known, lambda row: str(row.quantity)).items():
        parts = {"all": members}
        by_client = grouped(members, lambda row: client(row)[0])
        if len(by_client) > 1:
            parts |= by_client
        found += [_floor(quantity, of, each) for of, each in parts.items()]
    return found


def _floor(quantity: str, of: str, rows: Sequence[Scored]) -> Floor:
    sizes = [abs(math.log(float(row.measured or 0) / float(row.predicted or 0))) for row in rows]
    holds85, holds90 = (100 * math.sinh(float(np.quantile(sizes, share))) for share in (0.85, 0.9))
    bands = coverage(rows)
    assert bands is not None, "only rows with bands are asked for"
    return Floor(quantity, of, len(rows), holds85, holds90, bands.half_width90)


class EveryGroup(NamedTuple):
    """Bands ``times`` as wide hold ``WANTED`` of every large group; half of what the median band of
    each quantity then is."""

    times: float
    widths: dict[str, float]


def every_group(rows: Sequence[Scored]) -> EveryGroup | None:
    """The factor that every large group needs; None without one."""
    known = [row for row in rows if row.bands is not None]
    groups = grouped(known, lambda row: (*source(row), str(row.quantity)))
    needed = [
        float(np.quantile([_reaches(row) for row in members], WANTED, method="inverted_cdf"))
        for members in groups.values()
        if len(members) >= LARGE
    ]
    if not needed:
        return None
    times = max(1.0, *needed)
    widths = {
        quantity: float(np.median([_half_width(row, times) for row in members]))
        for quantity, members in grouped(known, lambda row: str(row.quantity)).items()
    }
    return EveryGroup(times, widths)


def _ends(row: Scored) -> tuple[float, float]:
    """How far the 90 % band reaches to either side, in logarithms."""
    assert row.bands is not None
    low, high = row.bands[1]
    value = float(row.predicted or 0)
    return math.log(value / low), math.log(high / value)


def _reaches(row: Scored) -> float:
    """How many times as wide the band must be to hold the row."""
    down, up = _ends(row)
    error = math.log(float(row.measured or 0) / float(row.predicted or 0))
    return max(-error / down, error / up)


def _half_width(row: Scored, times: float) -> float:
    down, up = (times * end for end in _ends(row))
    return 50 * (math.exp(min(up, 30.0)) - math.exp(-down))
