"""Draws which experts the tokens of a benchmark choose, and counts what falls to each.

Three laws: ``balanced`` gives token ``t`` as its ``j``-th expert number ``t + j * ceil(experts /
chosen)``, round the circle, as the published tables do; ``even`` draws every expert with the same
chance, which is what the simulator takes for granted; ``skewed`` draws them with the chances of a
power law of exponent ``SKEW`` (``sim.specs.popularity``). A draw is a matrix of scores, of
which the ``chosen`` largest of a row are the token's experts, so that it can be given to a router.
The same point is always drawn alike: its counts need not be kept with its timing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels.moe import HEIGHTS, TILES
from sim.rng import stream
from sim.specs.popularity import chances

COUNTS = ("rows", "touched", "single", *TILES)
"""The experts' shares in a draw; a measurement does not name them."""

Law = Literal["balanced", "even", "skewed"]
LAWS: tuple[Law, ...] = get_args(Law)

SKEW = 1.2
"""Exponent of the steeper of the published tables' two power laws."""

MOST_EXPERTS, MOST_TOKENS = 4096, 65536
"""Beyond these no measurement of ours is: a table that names more is not drawn again."""

AHEAD = 10.0
"""Score by which the experts of the balanced law lie above the others'."""


class ExpertDraw(NamedTuple):
    """``tokens`` of which each chooses ``chosen`` of ``experts`` by a ``law``."""

    tokens: int
    experts: int
    chosen: int
    law: Law


def scores(draw: ExpertDraw) -> NDArray[np.float32]:
    """Token x expert. Raises ValueError for a law that is not known.

    >>> top = scores(ExpertDraw(2, 8, 2, "balanced")).argsort(axis=1)[:, -2:]
    >>> np.sort(top).tolist()
    [[0, 4], [1, 5]]
    """
    if draw.law not in LAWS:
        raise ValueError(f"law {draw.law!r}: expected one of {', '.join(LAWS)}")
    random = stream(0, f"experts/{draw.law}/{draw.tokens}/{draw.experts}/{draw.chosen}")
    size = (draw.tokens, draw.experts)
    if draw.law == "balanced":
        found = random.random(size, dtype=np.float32)
        stride = -(-draw.experts // draw.chosen)
        tokens = np.arange(draw.tokens)[:, None]
        own = (tokens + stride * np.arange(draw.chosen)) % draw.experts
        np.put_along_axis(found, own, AHEAD + np.take_along_axis(found, own, 1), 1)
        return found
    skew = SKEW if draw.law == "skewed" else 0.0
    kinds = chances(draw.experts, 1, skew)
    popularity = np.repeat(kinds.chance, kinds.number.astype(int))
    return np.asarray(np.log(popularity) + random.gumbel(size=size), dtype=np.float32)


@lru_cache(maxsize=4096)
def rows_by_expert(draw: ExpertDraw) -> tuple[int, ...]:
    """Rows that fall to each expert.

    >>> rows_by_expert(ExpertDraw(3, 4, 2, "balanced"))
    (2, 1, 2, 1)
    """
    found = scores(draw)
    own = np.argpartition(-found, draw.chosen - 1, axis=1)[:, : draw.chosen]
    return tuple(np.bincount(own.ravel(), minlength=draw.experts).tolist())


@lru_cache(maxsize=4096)
def counts(draw: ExpertDraw) -> dict[str, float]:
    """Variables of the forms of experts: rows in all, experts touched, those with a single row, and
    tiles of each height.

    >>> found = counts(ExpertDraw(40, 4, 2, "balanced"))
    >>> found["rows"], found["touched"], found["tiles16"], found["tiles32"]
    (80.0, 4.0, 8.0, 4.0)
    """
    rows = np.array(rows_by_expert(draw))
    tiles = (float((-(-rows // height)).sum()) for height in HEIGHTS)
    named = dict(zip(TILES, tiles, strict=True))
    single = float((rows == 1).sum())
    return {
        **{"rows": float(rows.sum()), "touched": float((rows > 0).sum()), "single": single},
        **named,
    }


def whole_shape(operator: str, shape: Mapping[str, float], variant: str) -> Mapping[str, float]:
    """The shape of a measurement with what its form needs in addition: of experts, which one device
    has all of, the counts of the draw that ``variant`` names. As it is where that is not known."""
    names = ("tokens", "experts", "chosen")
    if operator != "moe" or variant not in LAWS or not set(names) <= shape.keys():
        return shape
    tokens, experts, chosen = (int(shape[name]) for name in names)
    if not 1 <= chosen <= experts <= MOST_EXPERTS or not 1 <= tokens <= MOST_TOKENS:
        return shape
    law: Law = next(law for law in LAWS if law == variant)
    return {**shape, "ranks": 1.0, **counts(ExpertDraw(tokens, experts, chosen, law))}
