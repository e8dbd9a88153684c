"""States a band for the ratio of a figure in two runs, from what puts both off and what one alone.

Two variants on the same kernels and the same engine are too fast or too slow together: much of that
cancels in their ratio. ``infersim.bands`` of a run says for each part of its bands what its error
belongs to (``kin``). Where two runs name the same, the errors of the part are correlated by what
published pairs of measurements show (``Spreads.shared``); else they are independent. Where a run
was repeated at the ends of its band, what came of that takes the place of the parts of the times:
both runs at the slower end together as far as these errors are shared, and one at the faster and
the other at the slower end as far as they are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sim.catalog.spreads import Spreads
from sim.metrics.bands.bands import CAUSES, LARGEST, OF_TIMES, spread_of

Bands = Mapping[str, Any]
"""The entry ``infersim.bands`` of a summary."""


class Error(NamedTuple):
    """The possible error of one figure of one run: the share of each cause's spread (negative: the
    figure falls where the cause grows), the group of each part's error (``kin``), and ``ends``, the
    logarithm of the figure at the faster and at the slower end of the band over the predicted one,
    None where it was not repeated there. ``overload``: the slower end is one."""

    causes: Mapping[str, float]
    kin: Mapping[str, str]
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
    if bands is None or entry is None or "causes" not in entry or "kin" not in bands:
        return None
    overload = entry["band90"][1] is None
    return Error(entry["causes"], bands["kin"], entry.get("ends"), overload)


def shared_parts(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Parts in which two runs err alike."""
    return [part for part, name in one.items() if other.get(part) == name]


def ratio_band(
    ratio: float, one: Error, other: Error, spreads: Spreads, chance: float = 0.0
) -> RatioBand:
    """The bands of the ``ratio`` of one figure to that of the other. ``chance`` is the standard
    deviation that chance gives its logarithm.

    >>> spreads = Spreads({"decodes": 0.1}, 0.7, 2.0, 0.75)
    >>> error = Error({"decodes": 1.0}, {"kernels": "an H100"})
    >>> low, high = ratio_band(1.0, error, error, spreads).band90
    >>> round(low, 3), round(high, 3)  # 0.1 times the root of 2 times a quarter, twice
    (0.868, 1.152)
    """
    squares, times = _squares(one, other, spreads)
    of_times = sum(squares.get(part, 0.0) for part in OF_TIMES)
    rest = sum(squares.values()) - of_times
    down = up = spreads.ninety**2 * of_times
    if one.ends is not None or other.ends is not None:
        down, up = _at_ends(one, other, spreads, times)
    found = []
    for multiple, normal in ((spreads.half, 0.6745), (spreads.ninety, 1.6449)):
        share = (multiple / spreads.ninety) ** 2
        other_parts = multiple**2 * rest + (normal * chance) ** 2
        low, high = (min(math.sqrt(share * each + other_parts), LARGEST) for each in (down, up))
        found.append((ratio * math.exp(-low), ratio * math.exp(high)))
    (low90, high90), least = found[1], 0.0 if other.overload else None
    parts = {
        part: math.expm1(min(spreads.ninety * math.sqrt(square), LARGEST))
        for part, square in sorted(squares.items(), key=lambda item: -item[1])
        if square > 0
    }
    return RatioBand(
        found[0],
        (low90 if least is None else least, None if one.overload else high90),
        parts,
    )


def _squares(one: Error, other: Error, spreads: Spreads) -> tuple[dict[str, float], float]:
    """The variance of the logarithm of the ratio by part, and the correlation of the times."""
    alike = shared_parts(one.kin, other.kin)
    squares: dict[str, float] = {}
    common = 0.0
    for name in dict.fromkeys((*one.causes, *other.causes)):
        part, square = CAUSES[name].part, spreads.of[name] ** 2
        mine, theirs = one.causes.get(name, 0.0), other.causes.get(name, 0.0)
        both = (spreads.shared if part in alike else 0.0) * mine * theirs
        squares[part] = squares.get(part, 0.0) + square * (mine**2 + theirs**2 - 2 * both)
        if part in OF_TIMES:
            common += square * both
    product = _spread_of_times(one, spreads) * _spread_of_times(other, spreads)
    return squares, min(1.0, max(0.0, common / product)) if product else 0.0


def _spread_of_times(error: Error, spreads: Spreads) -> float:
    return spread_of(
        {name: each for name, each in error.causes.items() if CAUSES[name].part in OF_TIMES},
        spreads,
    )


def _at_ends(one: Error, other: Error, spreads: Spreads, alike: float) -> tuple[float, float]:
    """The squares of how much the ratio is smaller and larger at the ends of the bands of times, at
    90 %; ``alike`` is the correlation of both times."""
    mine, theirs = (_moves(each, spreads) for each in (one, other))
    together = [a - b for a, b in zip(mine, theirs, strict=True)]
    down = alike * max(0.0, -min(together)) ** 2
    up = alike * max(0.0, *together) ** 2
    down += (1 - alike) * (min(0.0, *mine) ** 2 + max(0.0, *theirs) ** 2)
    up += (1 - alike) * (max(0.0, *mine) ** 2 + min(0.0, *theirs) ** 2)
    return down, up


def _moves(error: Error, spreads: Spreads) -> tuple[float, float]:
    """The logarithm of a figure at the faster and at the slower end over the predicted one."""
    if error.ends is not None:
        faster, slower = error.ends
        return faster, slower
    whole = sum(w for name, w in error.causes.items() if CAUSES[name].part in OF_TIMES)
    slower = math.copysign(spreads.ninety * _spread_of_times(error, spreads), whole)
    return -slower, slower
