"""Allocates paged KV memory to sequences that are checked several drafts ahead.

An iteration writes the KV of a sequence's last token and of its K drafts, and a drafter needs K
slots more; what is rejected leaves its blocks with the sequence (vLLM 0.32, ``allocate_slots``).
As the course of each sequence is known, so are the blocks that it opens in each iteration to come.

A prefix cache knows the verified tokens that were there when an iteration was planned: what an
iteration accepts is entered with the next one. Where the drafter reads hidden states of the target
(EAGLE, MTP), the last block that a request finds is computed again, since those are not cached
(``drop_eagle_block``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.growth.courses import Counts, DraftCourses, Upcoming
from sim.memory.caching import CachingAllocator
from sim.memory.paged import PagedAllocator
from sim.request import Request


class DraftedAllocator(PagedAllocator):
    """``PagedAllocator`` for sequences on ``courses``, none of which needs slots beyond ``longest``
    tokens.

    The blocks that a sequence needs for its tokens are counted as without drafts; those opened
    beyond them, for drafts, are counted here.
    """

    def __init__(
        self, num_blocks: int, block_size: int, longest: int, courses: DraftCourses
    ) -> None:
        super().__init__(num_blocks, block_size)
        self._courses, self._longest = courses, longest
        self._lookahead = courses.speculation.lookahead
        self._ahead = Upcoming()  # blocks that are opened
        self._beyond: dict[Request, int] = {}  # blocks for drafts, of those that do not decode
        self._promised: dict[Request, int] = {}  # the same that a request will need, once loaded
        # of those that do: since when, their tokens and their blocks after each iteration
        self._growing: dict[Request, tuple[int, Counts, Counts]] = {}

    @property
    def _wanted(self) -> int:
        """Slots beyond the tokens of a sequence that an iteration of its decoding needs."""
        return 1 + self._courses.drafts + self._lookahead

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length and its last drafts."""
        most = self._courses.speculation.width + self._lookahead
        return min(tokens - 1 + most, self._longest) <= self.capacity

    def _for_drafts(self, tokens: int) -> int:
        """Blocks that so many ``tokens`` need for the drafts alone, before they are decoded."""
        size = self.block_size
        return -(-min(tokens + self._lookahead, self._longest) // size) - -(-tokens // size)

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more of ``request`` need, if they are free."""
        size, held = self.block_size, self._held.get(request)
        if held is None:
            beyond = self._for_drafts(self.cached(request) + tokens)
            if not self.fits(request, (-(-tokens // size) + beyond) * size):
                return False
            super().allocate(request, tokens)
            self.reserved += beyond * size
        else:
            beyond = self._for_drafts(held + tokens)
            more = (beyond - self._beyond[request]) * size
            self.reserved += more
            if not super().allocate(request, tokens):
                self.reserved -= more
                return False
        self._beyond[request] = beyond
        return True

    def allocate_for_load(self, request: Request, tokens: int) -> bool:
        """As ``allocate``, without slots for drafts: they are opened when the tokens are there. So
        many blocks have to be free besides, for this one and for those that are on their way (vLLM
        0.32, ``reserved_blocks``)."""
        size, blocks = self.block_size, -(-tokens // self.block_size)
        step = -(-min(tokens - 1 + self._wanted, self._longest) // size) - blocks
        if blocks + step + sum(self._promised.values()) > self.free_blocks:
            return False
        super().allocate(request, tokens)
        self._beyond[request], self._promised[request] = 0, step
        return True

    def go_on_loaded(self, request: Request) -> bool:
        """Open the slots of the drafts of its first iteration."""
        step = self._promised[request]
        if step > self.free_blocks:
            return False
        self.reserved += step * self.block_size
        self._beyond[request] = step
        del self._promised[request]
        return True

    def give_back(self, request: Request, tokens: int) -> None:
        """Close the blocks that the last ``tokens`` of ``request`` opened."""
        super().give_back(request, tokens)
        held = self._held.get(request)
        if held is not None:
            beyond = self._for_drafts(held)
            self.reserved += (beyond - self._beyond[request]) * self.block_size
            self._beyond[request] = beyond

    def free(self, request: Request) -> None:
        """Take back the blocks of ``request``."""
        super().free(request)
        self._promised.pop(request, None)
        self.reserved -= self._beyond.pop(request) * self.block_size

    def join(self, request: Request) -> None:
        """``request`` starts to decode, on the course that has begun for it."""
        held = self._held[request] + self._courses[request].gained
        opened = -(-self._held[request] // self.block_size) + self._beyond.pop(request)
        self._grow_along(request, held, opened, 0)
        self._decoding += 1

    def _grow_along(self, request: Request, held: Counts, opened: int, done: int) -> None:
        """``request`` holds so many tokens after each iteration, and has ``opened`` blocks after
        those that are ``done``."""
        blocks = np.empty(len(held), dtype=np.int64)
        blocks[done] = opened
        needed = np.minimum(held[done:-1] + self._wanted, self._longest)
        blocks[done + 1 :] = -(-needed // self.block_size)
        if blocks[done + 1] < opened:
            np.maximum(blocks[done + 1 :], opened, out=blocks[done + 1 :])
        self._ahead.add(self._grown, blocks[done + 1 :] - blocks[done:-1])
        self._growing[request] = self._grown - done, held, blocks

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        since, held, blocks = self._growing.pop(request)
        done = self._grown - since
        self._ahead.add(self._grown, blocks[done:-1] - blocks[done + 1 :])
        tokens = self._held[request] = int(held[done])
        self._beyond[request] = int(blocks[done]) - -(-tokens // self.block_size)
        self._decoding -= 1

    def redraft(self) -> None:
        """The courses of those that decode have changed from now on: another number of drafts."""
        self._ahead.clear()
        for request, (since, held, blocks) in self._growing.items():
            done = self._grown - since
            later = held[0] + self._courses[request].gained
            self._grow_along(request, later, int(blocks[done]), done)

    def grow(self, iterations: int) -> bool:
        """Open the blocks that the next ``iterations`` decode iterations need, if all are free."""
        reserved = self.reserved + self.growth(iterations)
        if reserved > self.capacity:
            self._lack()
            return False
        self.reserved = reserved
        self._grown += iterations
        return True

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations open, in tokens."""
        return self._ahead.total(self._grown, iterations) * self.block_size if iterations else 0

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks can feed."""
        return self._ahead.within(self._grown, iterations, self.free_blocks)

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``owners``, who hold what they should."""
        assert self._beyond.keys() | self._growing.keys() == owners.keys()
        assert 0 <= self.reserved <= self.capacity
        beyond = dict(self._beyond)
        for request, (since, held, blocks) in self._growing.items():
            tokens = int(held[self._grown - since])
            assert owners[request] == (tokens, True), (request, owners[request], tokens)
            assert len(held) == len(blocks) == self._courses[request].last + 1
            beyond[request] = int(blocks[self._grown - since]) - -(-tokens // self.block_size)
        assert all(blocks >= 0 for blocks in beyond.values()), beyond
        before, slack = dict(self._held), sum(beyond.values()) * self.block_size
        self._held |= {request: owners[request][0] for request in self._growing}
        self.reserved -= slack
        super().check_integrity({r: (tokens, False) for r, (tokens, _) in owners.items()})
        self.reserved += slack
        self._held = before

    def _check_ring(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """No sequence grows by one token with each iteration."""
        assert not any(self._ring)


class DraftedCachingAllocator(DraftedAllocator, CachingAllocator):
    """``DraftedAllocator`` with a prefix cache."""

    def __init__(
        self, num_blocks: int, block_size: int, longest: int, courses: DraftCourses
    ) -> None:
        super().__init__(num_blocks, block_size, longest, courses)
        # hidden states are not cached
        self.computes_last_found = courses.speculation.reads_target
        self.grown_in = self._entered
        self._last: dict[Request, int] = {}  # tokens accepted last, of those that gave up decoding

    def _entered(self, request: Request) -> int:
        """Tokens of ``request`` in the cache by now, beyond those from before it decoded."""
        if request not in self._growing:
            return 0
        since, held, _ = self._growing[request]
        done = self._grown - since
        return int(held[done - 1] - held[0]) + 1 if done else 0

    def leave(self, request: Request) -> None:
        """``request`` stops growing; what its last iteration accepted is not in the cache."""
        entered = self._held[request] + self._entered(request)
        super().leave(request)
        self._last[request] = self._held[request] - entered

    def _known(self, request: Request, held: int) -> int:
        return held - self._last.pop(request, 0)
