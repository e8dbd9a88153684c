"""A prefix cache under drafts: what is entered when, and what is computed anew."""

from __future__ import annotations

import pytest

from sim.growth.courses import DraftCourses
from sim.growth.sampled import Sampled
from sim.memory.drafted import DraftedCachingAllocator
from sim.request import Request
from sim.specs.speculation import Speculation
from tests.feature_pairs import check_together


def made(method: str, blocks: int = 20) -> tuple[DraftedCachingAllocator, Sampled]:
    """Blocks of 4 tokens, two drafts that are all right."""
    courses = DraftCourses(Speculation(method, 2, (1.0, 1.0)), seed=1)
    return DraftedCachingAllocator(blocks, 4, 100, courses), Sampled(courses)


def prompt(number: int, tokens: int, text: int = 7) -> Request:
    return Request(number, 0.0, tokens, 30, prefix=((text, tokens),))


@pytest.mark.parametrize(
    ("method", "found"), [("ngram", 12), ("draft_model", 12), ("eagle", 8), ("mtp", 8)]
)
def test_drafters_that_read_hidden_states_compute_the_last_block_found_anew(
    method: str, found: int
) -> None:
    """A prompt of 14 tokens leaves 3 full blocks."""
    kv, _ = made(method)
    first, second = prompt(0, 14), prompt(1, 14)
    notes: list[tuple[int, int]] = []
    kv.note = lambda _, left, new: notes.append((left, new))
    assert kv.allocate(first, 14)
    assert kv.cached(second) == found
    used = kv.reserved
    assert kv.allocate(second, 14 - found)
    kv.check_integrity({first: (14, False), second: (14, False)})
    # 14 tokens and, but for a search, 2 slots of drafts fill 4 blocks, of which some are shared
    assert kv.reserved - used == 16 - found
    assert notes == [(0, 12), (0, 0)]  # nothing of the second has left the cache
    kv.free(first)
    kv.free(second)
    kv.check_integrity({})
    assert kv.reserved == 0


def test_nothing_but_one_full_block_is_no_find_for_a_head() -> None:
    kv, _ = made("eagle")
    first = prompt(0, 5)
    assert kv.allocate(first, 5)
    assert kv.cached(prompt(1, 5)) == 0


def test_what_the_last_iteration_accepted_is_not_entered() -> None:
    """Prompt of 6 in blocks of 4, 3 tokens an iteration: 6, 9, 12 are held. Planning the second
    iteration enters the 10 tokens that are known then, 2 blocks; the third block is full when the
    iteration has run, and enters only if another one is planned."""
    for iterations, blocks in ((1, 1), (2, 2)):
        kv, batch = made("ngram")
        request = prompt(0, 6)
        request.generated = 1
        assert kv.allocate(request, 6)
        request.computed = 6
        batch.join(request, 0.0)
        kv.join(request)
        for _ in range(iterations):
            assert kv.grow(1)
            batch.advance(1, 1.0)
        batch.leave(request)
        kv.leave(request)
        kv.free(request)
        request.preemptions = 1  # it comes back, and knows its own text
        request.computed = 0
        assert kv.cached(request) == 4 * blocks


def test_evictable_blocks_make_room_for_drafts_and_none_is_lost() -> None:
    kv, batch = made("eagle", blocks=6)
    first = prompt(0, 14)
    assert kv.allocate(first, 14)
    kv.free(first)
    assert kv.idle_tokens == 12
    other = prompt(1, 13, text=8)
    other.generated = 1
    assert kv.allocate(other, 13)  # 13 tokens and 2 slots: 4 blocks
    other.computed = 13
    batch.join(other, 0.0)
    kv.join(other)
    assert kv.reserved == 16
    assert kv.grow(1)  # 13 + 1 + 2 + 2 slots: 5 blocks
    batch.advance(1, 1.0)
    kv.check_integrity({other: (16, True)})
    assert kv.grow(1)  # 16 + 5: 6 blocks, and nothing of the first prompt is left
    batch.advance(1, 2.0)
    kv.check_integrity({other: (19, True)})
    assert kv.reserved == 24
    assert kv.cached(prompt(2, 14)) == 0
    assert kv.grow(1)  # 19 + 5 are 6 blocks, too
    batch.advance(1, 3.0)
    assert not kv.grow(1)  # 22 + 5: a seventh
    batch.leave(other)
    kv.leave(other)
    kv.free(other)
    kv.check_integrity({})
    assert kv.reserved == 0


@pytest.mark.parametrize("memory", ["small-memory", "tiny-memory"])
@pytest.mark.parametrize("cache", ["shared-prefix", "sessions"])
@pytest.mark.parametrize("drafts", ["ngram", "eagle"])
def test_drafts_a_cache_and_little_memory_lose_nothing(
    drafts: str, cache: str, memory: str
) -> None:
    """Books are checked after every iteration, with leaps and without."""
    happened = check_together((drafts, cache, memory))
    assert happened["completed"] == 20 - happened["rejected"]
    if memory == "tiny-memory":
        assert happened["preempted"]
