"""An allocator that remembers prompts is one class: neither policies nor the loop know of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sim.memory import PagedAllocator
from sim.request import Request
from sim.schedulers import ChunkedPrefill, Limits, PrefillFirst, RankedPrefill, Scheduler
from sim.schedulers.queues import Ranked
from tests.harness import LineTimer, Played, play

SHARED = 8
"""Tokens with which all prompts begin: two blocks of four."""


class Remembered(PagedAllocator):
    """Keeps a copy of the first ``SHARED`` tokens that a request leaves behind.

    However many requests stand on it, it counts as reserved once; while none does, it counts as
    free and goes when its blocks are needed. ``_held`` is what a request has besides.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.kept = False
        self.sharing: set[Request] = set()
        self.evictions = 0

    def cached(self, request: Request) -> int:
        return SHARED if self.kept and request.prompt_tokens > SHARED else 0

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        woken = SHARED if self.cached(request) and not self.sharing else 0
        return super().fits(request, tokens + woken, spare=spare)

    def allocate(self, request: Request, tokens: int) -> bool:
        if request not in self._held and self.cached(request):
            if not self.fits(request, tokens):
                return False
            self.reserved += 0 if self.sharing else SHARED
            self.sharing.add(request)
        return super().allocate(request, tokens) and self._evict()

    def free(self, request: Request) -> None:
        super().free(request)
        if request in self.sharing:
            self.sharing.remove(request)
            self.reserved -= 0 if self.sharing else SHARED
        elif request.prompt_tokens > SHARED <= request.computed:
            self.kept = True

    def grow(self, iterations: int) -> bool:
        return super().grow(iterations) and self._evict()

    def _evict(self) -> bool:
        if self.kept and not self.sharing and self.reserved + SHARED > self.capacity:
            self.kept = False
            self.evictions += 1
        return True

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        assert self.kept or not self.sharing
        woken = SHARED if self.sharing else 0
        self.reserved -= woken
        super().check_integrity(
            {r: (held - SHARED * (r in self.sharing), moves) for r, (held, moves) in owners.items()}
        )
        self.reserved += woken


def serve(policy: type[Scheduler], blocks: int, *, leap: bool) -> tuple[Played, Remembered]:
    """Serve twelve requests whose prompts begin alike, then a long one that does not, then one more
    of them."""
    kv = Remembered(blocks, 4)

    def make() -> Scheduler:
        scheduler = policy(Limits(max_num_seqs=6, max_num_batched_tokens=24), kv)
        if policy is RankedPrefill:
            scheduler.waiting = Ranked(lambda request: -request.id % 3)
        return scheduler

    arrivals = [(6.0 * i + 20 * (i > 5), 10 + i, 9 + 7 * i % 14) for i in range(12)]
    arrivals += [(600.0, 6, 36), (900.0, 12, 5)]
    return play(list(arrivals), make, LineTimer(1.0, 0.25, 0.0, 0.125), leap=leap), kv


@pytest.mark.parametrize("policy", [ChunkedPrefill, PrefillFirst, RankedPrefill])
@pytest.mark.parametrize("blocks", [200, 11])
def test_policies_compute_only_what_memory_has_not_got(
    policy: type[Scheduler], blocks: int
) -> None:
    """With leaps as without, though these end where memory does; ``play`` checks the books."""
    leaping, kv = serve(policy, blocks, leap=True)
    stepping, _ = serve(policy, blocks, leap=False)
    assert leaping.tokens == stepping.tokens
    assert leaping.log == stepping.log
    assert leaping.events < stepping.events
    assert (kv.reserved, kv.sharing) == (0, set())
    requests, (chunks, lost) = leaping.recorder.request_rows(), leaping.recorder.trail_rows()
    assert len(requests) == 14
    assert (requests["status"] == 0).all()
    starts = [int(chunks["context"][chunks["request"] == r["id"]][0]) for r in requests]
    assert starts[0] == 0
    assert starts.count(SHARED) > 3
    assert (len(lost) > 0) == (blocks == 11)
    assert (kv.evictions > 0) == (blocks == 11)
    assert starts[-1] == (0 if blocks == 11 else SHARED)


def test_shared_blocks_count_once_and_as_free_while_none_needs_them() -> None:
    kv = Remembered(num_blocks=8, block_size=4)
    first, second, third, large = (Request(i, 0.0, 12, 1) for i in range(4))
    assert kv.cached(first) == 0
    assert kv.allocate(first, 12)
    first.computed = 12
    kv.free(first)
    assert (kv.cached(second), kv.free_blocks) == (SHARED, 8)
    assert kv.fits(second, 24)
    assert not kv.fits(second, 25)  # the two blocks that it stands on are not free then
    assert kv.allocate(second, 4)
    assert kv.free_blocks == 5
    assert kv.allocate(third, 4)
    assert kv.free_blocks == 4
    kv.free(second)
    assert kv.free_blocks == 5
    kv.free(third)
    assert (kv.cached(large), kv.free_blocks) == (SHARED, 8)
    kv.kept = False
    assert kv.allocate(large, 12)
    large.computed = 12
    kv.free(large)
    assert kv.allocate(Request(9, 0.0, 5, 1), 25)  # seven blocks: one of the two is needed
    assert (kv.cached(second), kv.evictions) == (0, 1)
