"""Turns the blocks that a trace names into texts, and says what a cache of them would find.

Blocks that always come together, in every prompt that has any of them, are one text. Most prompts
end in blocks that no other has: those are the request's own. So a prompt of a hundred blocks
becomes a few texts (``Request.prefix``), and what costs a step for each block costs one for each
text.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.request import Prefix
from sim.workload.traces.base import PromptBlocks, Trace

CAPACITIES = (1000, 3000, 5000, 10_000, 30_000, 50_000, 100_000)
"""Blocks of a cache, at which ``hit_shares`` is given."""


TEXT = np.dtype(
    [
        ("row", "i8"),  # the prompt
        ("number", "i8"),  # of the first of its blocks
        ("stop", "i8"),  # number of blocks of the prompt up to its end
        ("size", "i8"),  # its own blocks
        ("prompts", "i8"),  # that have it
    ]
)


def prefixes_of(trace: Trace) -> list[Prefix]:
    """The texts with which each prompt begins that others have too, and where they end, in tokens;
    nothing where the file names no blocks.

    >>> blocks = PromptBlocks(np.array([0, 1, 2, 0, 1, 3]), np.array([3, 3]), 16)
    >>> ones = np.ones(2)
    >>> prefixes_of(Trace(ones, np.array([40, 48]), np.array([1, 1]), blocks=blocks))
    [((0, 32),), ((0, 32),)]
    """
    if trace.blocks is None:
        return [()] * len(trace)
    texts, tokens = _texts(trace.blocks), trace.blocks.tokens
    texts = texts[texts["prompts"] > 1]
    prompts, counts = trace.prompt_tokens[texts["row"]], trace.blocks.counts[texts["row"]]
    ends = np.where(  # as ``prefixes.block_end``
        counts == -(-prompts // tokens),
        np.minimum(texts["stop"] * tokens, prompts),
        texts["stop"] * prompts // counts,
    )
    pairs = list(zip(texts["number"].tolist(), ends.tolist(), strict=True))
    bounds = np.searchsorted(texts["row"], np.arange(len(trace) + 1)).tolist()
    return [tuple(pairs[low:high]) for low, high in itertools.pairwise(bounds)]


def hit_shares(
    blocks: PromptBlocks, capacities: Sequence[int] = CAPACITIES
) -> dict[int | None, float]:
    """The share of all blocks of the prompts that a cache of that many blocks would have at hand
    when the prompt comes: the longest beginning of it that is there. None: a cache that never
    fills.

    The cache is LRU; a prompt enters it whole, at once and in order of arrival, and of one prompt
    the last blocks leave first. So a block is there if fewer distinct blocks than the capacity were
    used after it, and one pass over the prompts tells it for all capacities.
    """
    texts = _texts(blocks)
    recent = _Recent(len(texts))
    place_of: dict[int, int] = {}  # of each text, in order of use
    depths, sizes = [], []
    place = 0
    for _, of_prompt in itertools.groupby(
        zip(*(texts[name].tolist() for name in ("row", "number", "size")), strict=True),
        operator.itemgetter(0),
    ):
        each = [(number, size) for _, number, size in of_prompt]
        known = [(place_of[number], size) for number, size in each if number in place_of]
        depths += [recent.after(last) for last, _ in known]
        sizes += [size for _, size in known]
        for last, size in known:
            recent.add(last, -size)
        for number, size in reversed(each):  # the first text is used last
            recent.add(place, size)
            place_of[number] = place
            place += 1
    total, depth, size = int(blocks.counts.sum()), np.array(depths), np.array(sizes)
    shares: dict[int | None, float] = {}
    for capacity in capacities:
        shares[capacity] = float(np.clip(capacity - depth, 0, size).sum()) / total
    shares[None] = float(size.sum()) / total
    return shares


def _texts(blocks: PromptBlocks) -> NDArray[np.void]:
    """The texts of all prompts in order (``TEXT``)."""
    uses = np.bincount(blocks.numbers, minlength=1)[blocks.numbers]
    ends = np.cumsum(blocks.counts)
    firsts = ends - blocks.counts
    begins = np.zeros(len(uses) + 1, dtype=np.bool_)
    begins[firsts] = True
    begins = begins[:-1]
    begins[1:] |= uses[1:] != uses[:-1]
    starts = np.flatnonzero(begins)
    texts = np.empty(len(starts), TEXT)
    texts["row"] = np.searchsorted(ends, starts, side="right")
    texts["number"], texts["prompts"] = blocks.numbers[starts], uses[starts]
    texts["size"] = np.diff(starts, append=len(uses))
    texts["stop"] = starts + texts["size"] - firsts[texts["row"]]
    return texts


class _Recent:
    """Blocks by the place at which they were last used: how many were used after a place (a Fenwick
    tree)."""

    def __init__(self, places: int) -> None:
        self._tree = [0] * (places + 1)
        self._total = 0

    def add(self, place: int, blocks: int) -> None:
        """``blocks`` more (or fewer) were last used there."""
        self._total += blocks
        at, tree = place + 1, self._tree
        while at < len(tree):
            tree[at] += blocks
            at += at & -at

    def after(self, place: int) -> int:
        """Blocks that were used after that place."""
        at, tree, before = place + 1, self._tree, 0
        while at:
            before += tree[at]
            at &= at - 1
        return self._total - before
