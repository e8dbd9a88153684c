"""Describes how unevenly the experts of a layer are chosen, and what that gives to the GPUs.

Popularity is a power law: few experts are chosen often, many seldom. A token chooses an expert with
the expert's own chance, independently of other tokens. Experts are placed on groups of GPUs at
random, and stay there: a layer lasts as long as the group which has the popular ones, the mean over
``PLACEMENTS`` of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.specs.routing import Busiest

Floats = NDArray[np.float64]

SPREAD = 200.0
"""Popularity of the most over that of the least popular expert under a power law: that of the
published tables' draw for few tokens, between 0.01 and 2 (collector of aiconfigurator 0.12)."""

CLASSES = 24
"""Experts of nearly the same popularity count together: at most that many kinds of them."""

PLACEMENTS = 128
"""Placements that are drawn, each with its passes; their mean is within 3 % of that of many."""

GROWTH = 1.25
"""Token counts at which passes are drawn are a factor of this apart, with lines between."""

MOST_TOKENS = 1 << 17
"""Beyond, rows grow in proportion."""


class Chances:
    """The ``number`` of experts of each kind, and the ``chance`` that a token chooses one of it."""

    def __init__(self, number: Floats, chance: Floats) -> None:
        self.number, self.chance = number, chance

    @property
    def rows(self) -> float:
        """Experts that a token chooses among these, on average."""
        return float((self.number * self.chance).sum())


def chances(experts: int, chosen: int, skew: float = 0.0) -> Chances:
    """All ``experts``, of which each token takes ``chosen`` different ones.

    With ``skew`` their popularity is a power law of that exponent: that of expert ``i`` is the
    ``(i + 1/2) / experts`` quantile of a density ``x ** -skew`` between 1 and ``SPREAD``; 0 is as
    good as equal popularity here, and means it.

    >>> found = chances(experts=128, chosen=8)
    >>> found.number.tolist(), found.chance.tolist()
    ([128.0], [0.0625])
    """
    if not skew:
        return Chances(np.array([float(experts)]), np.array([chosen / experts]))
    each = _capped(_popularity(experts, skew), chosen)
    kinds = np.array_split(each, min(CLASSES, experts))
    number = np.array([float(len(kind)) for kind in kinds])
    return Chances(number, np.array([kind.mean() for kind in kinds]))


def _popularity(experts: int, skew: float) -> Floats:
    """The popularity of each expert, the least one's being about 1."""
    at = (np.arange(experts) + 0.5) / experts
    if skew == 1.0:
        return np.asarray(SPREAD**at)
    power = 1.0 - skew
    return np.asarray((1.0 + (SPREAD**power - 1.0) * at) ** (1.0 / power))


def _capped(popularity: Floats, chosen: int) -> Floats:
    """Chances in proportion to ``popularity`` that sum to ``chosen``, none above 1."""
    sure = np.zeros(len(popularity), dtype=bool)
    while True:
        left = chosen - sure.sum()
        scale = left / popularity[~sure].sum() if not sure.all() else 0.0
        found = np.where(sure, 1.0, popularity * scale)
        more = found > 1.0
        if not more.any():
            return np.asarray(found)
        sure |= more


def touched(found: Chances, tokens: Any) -> Any:
    """Distinct experts that this many tokens choose, on average: a number, or an array of them.

    >>> round(float(touched(chances(128, 8), 8)), 2), round(float(touched(chances(128, 8, 1.2), 8)))
    (51.62, 36)
    """
    missed = (1 - found.chance) ** np.asarray(tokens, dtype=np.float64)[..., None]
    return (found.number * (1 - missed)).sum(axis=-1)


def busiest(experts: int, chosen: int, skew: float, groups: int, tokens: Any) -> Busiest:
    """The load of the busiest of the ``groups`` from ``tokens``, as ``sim.specs.routing`` has it
    for experts that are chosen equally often."""
    if groups == 1:
        return Busiest(tokens * float(chosen), touched(chances(experts, chosen, skew), tokens))
    knots, rows, different = _drawn(experts, chosen, skew, groups)
    most = np.maximum(np.asarray(tokens, dtype=np.float64) / knots[-1], 1.0)
    return Busiest(np.interp(tokens, knots, rows) * most, np.interp(tokens, knots, different))


@cache
def _drawn(experts: int, chosen: int, skew: float, groups: int) -> tuple[Floats, Floats, Floats]:
    """Token counts, and at each the mean rows and touched experts of the busiest group. Passes of
    more tokens are those of fewer with further tokens, so that both grow with each."""
    held = -(-experts // groups)
    each = _capped(_popularity(experts, skew), chosen)
    random = np.random.Generator(np.random.PCG64(0))
    placed = np.zeros((PLACEMENTS, groups * held))
    placed[:, :experts] = random.permuted(np.broadcast_to(each, (PLACEMENTS, experts)), axis=1)
    placed = np.minimum(placed.reshape(PLACEMENTS, held, groups), 1.0)
    knots, hits = [0], np.zeros(placed.shape, dtype=np.int64)
    found = [(0.0, 0.0)]
    while knots[-1] < MOST_TOKENS:
        further = max(1, round(knots[-1] * (GROWTH - 1)))
        hits += random.binomial(further, placed)
        knots.append(knots[-1] + further)
        rows, different = hits.sum(axis=1), (hits > 0).sum(axis=1)
        found.append((float(rows.max(axis=1).mean()), float(different.max(axis=1).mean())))
    columns = np.array(found).T
    return np.array(knots, dtype=np.float64), columns[0], columns[1]
