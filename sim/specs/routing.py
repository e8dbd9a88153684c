"""Computes what a router that chooses at random gives to the GPUs that share its experts.

Every token chooses ``chosen`` different ones of ``experts``, each set with the same chance and
independently of other tokens. ``groups`` of GPUs hold whole experts, at most ``held`` each. A layer
lasts as long as its busiest group, so what counts is the expected largest value over the groups,
not the mean: for equally correlated amounts, which are close to normal, that is the mean plus the
expected maximum of as many standard normal numbers, times the root of variance less covariance.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple


class Busiest(NamedTuple):
    """The busiest group: the ``rows`` that its experts multiply, and the distinct experts that
    are ``touched``; numbers, or arrays of them."""

    rows: Any
    touched: Any


def touched(experts: int, chosen: int, tokens: Any) -> Any:
    """Distinct experts that this many tokens choose, on average: a number, or an array of them."""
    missed: Any = (1 - chosen / experts) ** tokens
    return experts * (1 - missed)


def busiest(experts: int, chosen: int, groups: int, held: int, tokens: Any) -> Busiest:
    """The load of the busiest of the ``groups`` from ``tokens``.

    The number of a token's choices in a group is hypergeometric. That an expert is touched, and
    that two are, have the chances ``1 - a`` and ``1 - 2 a + b``, where ``a`` and ``b`` are those
    that all tokens miss one expert, or both of two.

    >>> found = busiest(experts=128, chosen=8, groups=8, held=16, tokens=64)
    >>> round(float(found.rows), 1), round(float(found.touched), 2)
    (75.1, 16.0)
    """
    import numpy as np  # noqa: PLC0415 - not needed to read the catalogue

    if groups == 1:
        return Busiest(tokens * chosen, touched(experts, chosen, tokens))
    most = expected_maximum(groups)
    mean = tokens * chosen * held / experts
    together = (experts - chosen) / (experts - 1)
    rows = mean + most * np.sqrt(mean * together)
    missed = (1 - chosen / experts) ** tokens
    pair = (experts - chosen) * (experts - chosen - 1) / (experts * (experts - 1))
    both_missed = pair**tokens
    # variance of "is touched", less the covariance of two: (a - a^2) - (b - a^2)
    spread = np.sqrt(np.maximum(held * (missed - both_missed), 0.0))
    found = held * (1 - missed) + most * spread
    most_rows = tokens * min(chosen, held)
    return Busiest(np.minimum(rows, most_rows), np.minimum(np.minimum(found, held), rows))


@cache
def expected_maximum(count: int) -> float:
    """Expected largest of that many independent standard normal numbers.

    >>> [round(expected_maximum(n), 4) for n in (1, 2, 4, 8)]
    [0.0, 0.5642, 1.0294, 1.4236]
    """
    if count == 1:
        return 0.0
    from statistics import NormalDist  # noqa: PLC0415 - slow to import

    step, normal = 1 / 64, NormalDist()
    grid = [step * at for at in range(-640, 641)]
    return step * math.fsum(x * count * normal.pdf(x) * normal.cdf(x) ** (count - 1) for x in grid)
