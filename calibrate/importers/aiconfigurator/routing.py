"""Counts what falls to one GPU in the routings that the tables ``moe_perf`` were timed with.

The collectors published with the tables draw them: ``balanced`` gives token ``t`` as its ``j``-th
expert number ``t + j * ceil(experts / chosen)``, round the circle; ``power_law_A`` draws a load for
each expert from a density ``x ** -A``, between 1 and 0.8 times the tokens, or between 0.01 and 2
where tokens choose no more experts than there are, scales and rounds the loads, and has the busiest
rank's experts timed, in the mean over five draws. Whose seeds are not known: ``DRAWS`` of our own
stand for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cost.kernels.moe import HEIGHTS
from sim.rng import stream

DRAWS = 6
KEYS = ("num_tokens", "num_experts", "topk", "moe_ep_size", "distribution")
COUNTS = ("rows", "touched", *(f"tiles{height}" for height in HEIGHTS))

Counts = NDArray[np.int64]


class Routing(NamedTuple):
    """``tokens`` of all ranks choose ``chosen`` of ``experts`` that ``ranks`` GPUs share out."""

    tokens: int
    experts: int
    chosen: int
    ranks: int
    distribution: str


def with_counts(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` of a table with ``COUNTS``: of the busiest GPU, means over the draws."""
    distinct = rows[list(KEYS)].drop_duplicates()
    random = stream(0, "experts/routing")
    counts = [
        mean_counts(loads(Routing(int(t), int(e), int(k), int(r), str(law)), random))
        for t, e, k, r, law in distinct.itertuples(index=False, name=None)
    ]
    columns = pd.DataFrame(counts, columns=list(COUNTS), index=distinct.index)
    return rows.merge(distinct.join(columns), on=list(KEYS))


def mean_counts(found: Counts) -> Sequence[float]:
    """``COUNTS`` of draws of rows per expert, one draw a line."""
    tiles = [-(-found // height) for height in (np.iinfo(np.int64).max, *HEIGHTS)]
    return [float(each.sum(axis=1).mean()) for each in (found, *tiles)]


def loads(routing: Routing, random: np.random.Generator) -> Counts:
    """Rows of each expert of the busiest GPU, one draw a line.

    Raises ValueError for a distribution that is neither ``balanced`` nor ``power_law_A``.

    >>> one = Routing(tokens=2, experts=8, chosen=2, ranks=1, distribution="balanced")
    >>> loads(one, stream(0, "doctest")).tolist()
    [[1, 0, 1, 0, 1, 0, 1, 0]]
    """
    kind, _, exponent = routing.distribution.rpartition("_")
    if routing.distribution == "balanced":
        return _balanced(routing)
    if kind != "power_law":
        raise ValueError(f"unknown distribution {routing.distribution!r}")
    drawn = [_power_law(routing, float(exponent), random) for _ in range(DRAWS)]
    return np.array(drawn)


def _balanced(routing: Routing) -> Counts:
    stride = -(-routing.experts // routing.chosen)
    token = np.arange(routing.tokens)
    if routing.tokens < stride:
        token = token * stride // routing.tokens
    chosen = token[:, None] + stride * np.arange(routing.chosen)
    found = np.bincount((chosen % routing.experts).ravel(), minlength=routing.experts)
    return np.asarray(found.reshape(routing.ranks, -1)[:1], dtype=np.int64)


def _power_law(routing: Routing, exponent: float, random: np.random.Generator) -> Counts:
    tokens, total = routing.tokens, routing.tokens * routing.chosen
    low, high = (1.0, 0.8 * tokens) if total > routing.experts else (0.01, 2.0)
    power = 1 - exponent
    drawn = random.random(routing.experts)
    load = ((high**power - low**power) * drawn + low**power) ** (1 / power)
    rows = np.round(load / load.sum() * total).astype(np.int64)
    over = int(np.maximum(rows - tokens, 0).sum())
    by_rank = np.minimum(rows, tokens).reshape(routing.ranks, -1)
    by_rank = _raised(by_rank, over, tokens)
    missing = total - int(by_rank.sum())
    by_rank = _raised(by_rank, missing, tokens) if missing > 0 else _lowered(by_rank, -missing)
    return np.asarray(by_rank[by_rank.sum(axis=1).argmax()])


def _raised(by_rank: Counts, rows: int, most: int) -> Counts:
    """``rows`` more, the same number on each rank, each to the expert with fewest there."""
    for rank, own in zip(by_rank, _shares(rows, len(by_rank)), strict=True):
        low, high = 0, most  # the level to which the lowest are filled
        while low < high:
            level = (low + high + 1) // 2
            if np.maximum(level - rank, 0).sum() <= own:
                low = level
            else:
                high = level - 1
        filled = np.maximum(rank, low)
        rest = own - int((filled - rank).sum()) if low < most else 0
        filled[np.argsort(filled, kind="stable")[:rest]] += 1
        rank[:] = filled
    return by_rank


def _lowered(by_rank: Counts, rows: int) -> Counts:
    """``rows`` fewer, the same number on each rank, each from the expert with most there."""
    for rank, own in zip(by_rank, _shares(rows, len(by_rank)), strict=True):
        low, high = 0, int(rank.max())
        while low < high:
            level = (low + high) // 2
            if np.maximum(rank - level, 0).sum() <= own:
                high = level
            else:
                low = level + 1
        cut = np.minimum(rank, low)
        rest = own - int((rank - cut).sum()) if low > 0 else 0
        cut[np.argsort(-cut, kind="stable")[:rest]] -= 1
        rank[:] = cut
    return by_rank


def _shares(rows: int, ranks: int) -> list[int]:
    each, rest = divmod(rows, ranks)
    return [each + (rank < rest) for rank in range(ranks)]
