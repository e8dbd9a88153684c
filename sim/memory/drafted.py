"""Allocates paged KV memory to sequences that are checked several drafts ahead.

An iteration writes the KV of a sequence's last token and of its K drafts, and a drafter needs K
slots more; what is rejected leaves its blocks with the sequence (vLLM 0.32, ``allocate_slots``).
As the course of each sequence is known, so are the blocks that it opens in each iteration to come.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.growth.courses import Counts, DraftCourses, Upcoming
from sim.memory.paged import PagedAllocator
from sim.request import Request


class DraftedAllocator(PagedAllocator):
    """``PagedAllocator`` for sequences on ``courses``, none of which needs slots beyond ``longest``
    tokens."""

    __slots__ = ("_ahead", "_blocks", "_courses", "_growing", "_longest", "_lookahead", "_wanted")

    def __init__(
        self, num_blocks: int, block_size: int, longest: int, courses: DraftCourses
    ) -> None:
        super().__init__(num_blocks, block_size)
        speculation = courses.speculation
        self._courses, self._longest = courses, longest
        self._lookahead = speculation.lookahead
        self._wanted = speculation.width + speculation.lookahead  # slots, to decode
        self._ahead = Upcoming()  # blocks that are opened
        self._blocks: dict[Request, int] = {}  # of those that do not decode
        # of those that do: since when, their tokens and their blocks after each iteration
        self._growing: dict[Request, tuple[int, Counts, Counts]] = {}

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length and its last drafts."""
        return min(tokens - 1 + self._wanted, self._longest) <= self.capacity

    def _needed(self, tokens: int) -> int:
        """Blocks of so many ``tokens`` and of the slots that are kept for drafts."""
        return -(-min(tokens + self._lookahead, self._longest) // self.block_size)

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more of ``request`` need, if they are free."""
        held = self._held.get(request, 0) + tokens
        blocks = self._needed(held)
        more = (blocks - self._blocks.get(request, 0)) * self.block_size
        if self.reserved + more > self.capacity:
            return False
        self.reserved += more
        self._held[request], self._blocks[request] = held, blocks
        return True

    def give_back(self, request: Request, tokens: int) -> None:
        """Close the blocks that the last ``tokens`` of ``request`` opened."""
        held = self._held[request]
        self.free(request)
        if held > tokens:
            self.allocate(request, held - tokens)

    def free(self, request: Request) -> None:
        """Take back the blocks of ``request``."""
        del self._held[request]
        self.reserved -= self._blocks.pop(request) * self.block_size

    def join(self, request: Request) -> None:
        """``request`` starts to decode, on the course that has begun for it."""
        held = self._held[request] + self._courses[request].gained
        blocks = np.empty(len(held), dtype=np.int64)
        blocks[0] = self._blocks.pop(request)
        blocks[1:] = -(-np.minimum(held[:-1] + self._wanted, self._longest) // self.block_size)
        self._ahead.add(self._grown, blocks[1:] - blocks[:-1])
        self._growing[request] = self._grown, held, blocks
        self._decoding += 1

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        since, held, blocks = self._growing.pop(request)
        done = self._grown - since
        self._ahead.add(self._grown, blocks[done:-1] - blocks[done + 1 :])
        self._held[request], self._blocks[request] = int(held[done]), int(blocks[done])
        self._decoding -= 1

    def grow(self, iterations: int) -> bool:
        """Open the blocks that the next ``iterations`` decode iterations need, if all are free."""
        reserved = self.reserved + self.growth(iterations)
        if reserved > self.capacity:
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
        blocks = 0
        for request, (tokens, decoding) in owners.items():
            if decoding:
                since, held, needed = self._growing[request]
                done = self._grown - since
                assert held[done] == tokens, (request, held[done], tokens)
                blocks += int(needed[done])
            else:
                assert self._held[request] == tokens, (request, self._held[request], tokens)
                blocks += self._blocks[request]
        assert self._blocks.keys() | self._growing.keys() == owners.keys()
        assert self.reserved == blocks * self.block_size, (self.reserved, blocks)
        assert 0 <= self.reserved <= self.capacity
