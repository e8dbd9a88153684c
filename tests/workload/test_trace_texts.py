"""Texts stand for the blocks that a trace names, and hit shares are those of a plain LRU cache."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.workload.traces import Trace, read_trace
from sim.workload.traces.base import PromptBlocks
from sim.workload.traces.texts import hit_shares, prefixes_of
from tests.places import SHARED


def blocks_of(prompts: list[list[int]], tokens: int = 16) -> PromptBlocks:
    numbers = [number for prompt in prompts for number in prompt]
    counts = [len(prompt) for prompt in prompts]
    return PromptBlocks(np.array(numbers, np.int64), np.array(counts, np.int64), tokens)


def trace_of(prompts: list[list[int]], lengths: list[int], tokens: int = 16) -> Trace:
    ones = np.ones(len(prompts))
    blocks = blocks_of(prompts, tokens)
    return Trace(ones, np.array(lengths), ones.astype(np.int64), blocks=blocks)


def lru(prompts: list[list[int]], capacity: int) -> int:
    """Blocks that an LRU cache finds, of one prompt the last ones evicted first."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for prompt in prompts:
        for number in prompt:
            if number not in cache:
                break
            hits += 1
        for number in reversed(prompt):
            cache[number] = None
            cache.move_to_end(number)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


@st.composite
def trees(draw: Any) -> list[list[int]]:
    """Prompts as paths of a tree: a number stands for all that comes before it."""
    names: dict[tuple[int, ...], int] = {}
    paths = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=30))
    return [
        [names.setdefault(tuple(path[: at + 1]), len(names)) for at in range(len(path))]
        for path in paths
    ] or [[0]]


@given(trees())
def test_hit_shares_are_those_of_a_cache_played_block_by_block(prompts: list[list[int]]) -> None:
    total = sum(map(len, prompts))
    shares = hit_shares(blocks_of(prompts), range(1, 40, 3))
    for capacity in range(1, 40, 3):
        assert shares[capacity] * total == pytest.approx(lru(prompts, capacity))
    assert shares[None] * total == pytest.approx(lru(prompts, 10**9))


@given(trees())
def test_two_prompts_share_the_texts_of_the_blocks_that_they_share(
    prompts: list[list[int]],
) -> None:
    lengths = [16 * len(prompt) for prompt in prompts]
    prefixes = prefixes_of(trace_of(prompts, lengths))
    for one in range(len(prompts)):
        for other in range(one):
            pairs = zip(prompts[one], prompts[other], strict=False)
            same = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
            blocks = min(len(prompts[one]), len(prompts[other])) if same is None else same
            shared = [end for end in prefixes[one] if end in prefixes[other]]
            assert (shared[-1][1] if shared else 0) == 16 * blocks


def test_the_last_block_ends_with_its_prompt() -> None:
    assert prefixes_of(trace_of([[0, 1], [0, 1, 2]], [30, 40])) == [((0, 30),), ((0, 32),)]
    assert prefixes_of(trace_of([[0, 1], [0, 2]], [100, 32])) == [((0, 50),), ((0, 16),)]


def test_the_conversation_trace_has_the_published_hits() -> None:
    """Shares worked out block by block, by another program."""
    path = SHARED / "data" / "traces" / "mooncake_conversation_trace.jsonl"
    if not path.exists():
        pytest.skip("the Mooncake trace is not here")
    blocks = read_trace(path).blocks
    assert blocks is not None
    assert len(blocks.numbers) == 288_500
    assert {name: round(share, 4) for name, share in hit_shares(blocks).items()} == {
        1000: 0.0445, 3000: 0.0653, 5000: 0.1118, 10_000: 0.2116, 30_000: 0.3257, 50_000: 0.3546,
        100_000: 0.3637, None: 0.3664,
    }  # fmt: skip
