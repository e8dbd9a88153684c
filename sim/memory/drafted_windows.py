"""Allocates paged KV memory behind windows to sequences that are checked several drafts ahead.

As ``windowed`` for prompts and as ``drafted`` for what decodes: the course of each sequence is
known, and with it the blocks that it opens before an iteration, for its last token, its drafts and
those of a drafter, and gives back behind its windows. What is rejected leaves its blocks with the
sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from sim.growth.courses import Counts, DraftCourses, Upcoming
from sim.memory.drafted import DraftedSequence
from sim.memory.groups import KvGroup
from sim.memory.windowed import WindowedAllocator
from sim.request import Request


class WindowedSequence(DraftedSequence):
    """A drafted sequence with room for ``slots[i]`` tokens i iterations after its ``opened``."""

    __slots__ = ("slots",)

    slots: Counts

    def tokens(self, now: int) -> int:
        """The tokens it has after iteration ``now``."""
        found: int = self.course.gained.item(self.place(now))
        return self.held + found


class DraftedWindowedAllocator(WindowedAllocator):
    """``WindowedAllocator`` for sequences on ``courses``, none of which needs slots beyond
    ``longest`` tokens."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        groups: Sequence[KvGroup],
        most: Sequence[int] | None,
        longest: int,
        courses: DraftCourses,
    ) -> None:
        super().__init__(num_blocks, block_size, groups, most)
        self._courses, self._longest = courses, longest
        self._lookahead = courses.speculation.lookahead
        self._sums = Upcoming()  # blocks of those that decode
        self._by_size: Counter[int] = Counter()  # groups, by the tokens of their blocks
        for group in self.groups:
            self._by_size[group.block] += group.number
        self._along: dict[Request, WindowedSequence] = {}
        self._stopped: dict[Request, int] = {}  # blocks of those that have just stopped

    @property
    def _wanted(self) -> int:
        """Slots beyond the tokens of a sequence that an iteration of its decoding needs."""
        return 1 + self._courses.drafts + self._lookahead

    def _blocks(self, computed: int, tokens: int) -> int:
        """Blocks of a sequence, with the slots that a drafter writes ahead."""
        slots = min(tokens + self._lookahead, self._longest) if tokens else 0
        return super()._blocks(computed, slots)

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more of ``request`` need, if they are free; rows beyond
        those that it lacks are drafts, whose slots open with its next iteration."""
        lacks = request.tokens_to_prefill() - self._held.get(request, (0, 0))[0]
        return super().allocate(request, min(tokens, lacks))

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length and its last drafts."""
        most = tokens - 1 + self._courses.speculation.width
        return self._blocks(0, min(most, self._longest)) <= self.num_blocks

    def free(self, request: Request) -> None:
        """Take back the blocks of ``request``."""
        blocks = self._stopped.pop(request, None)
        if blocks is None:
            super().free(request)
            return
        del self._held[request]
        self.reserved -= blocks * self.block_size

    def join(self, request: Request) -> None:
        """``request`` starts to decode, on the course that has begun for it."""
        held, computed = self._held.pop(request)
        along = self._along[request] = WindowedSequence(self._grown, held, self._courses[request])
        slots = min(held + self._lookahead, self._longest)
        self._open(along, self._blocks(computed, held), slots)
        self._decoding += 1

    def _open(self, along: WindowedSequence, blocks: int, slots: int) -> None:
        """Lays the course of a sequence that has ``blocks`` with ``slots`` now."""
        gained, wanted = along.course.gained, self._wanted
        held = gained[:-1] + along.held
        along.slots, along.blocks = np.empty_like(gained), np.empty_like(gained)
        along.slots[0], along.blocks[0] = slots, blocks
        later = np.add(held, wanted, out=along.slots[1:])
        if later[-1] > self._longest:
            np.minimum(later, self._longest, out=later)
        if later[0] < slots:
            np.maximum(later, slots, out=later)
        along.blocks[1:] = self._held_by(held, later)
        along.opened = self._grown
        self._sums.add(self._grown, along.blocks)

    def _held_by(self, held: Counts, slots: Counts) -> Counts:
        """Blocks of sequences with that many ``slots`` once what the next token of each that has
        ``held`` tokens does not see has been given back."""
        total = np.zeros_like(held)
        for block, number in self._by_size.items():
            total += number * ((slots + (block - 1)) // block)
        for number, window, block in self.groups:
            if window is not None:
                behind = np.maximum(held - (window.size - 1), 0)
                if window.chunked:
                    behind = held // window.size * window.size
                total -= number * (behind // block)
        return total

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        along = self._along.pop(request)
        place, tokens = self._grown - along.opened, along.tokens(self._grown)
        self._sums.take_off(self._grown, along.blocks[place:])
        self._held[request] = tokens, tokens - 1
        self._stopped[request] = along.blocks.item(place)
        self._decoding -= 1

    def redraft(self) -> None:
        """The courses of those that decode have changed from now on: another number of drafts."""
        self._sums.clear()
        for along in self._along.values():
            place = self._grown - along.opened
            self._open(along, along.blocks.item(place), along.slots.item(place))

    def grow(self, iterations: int) -> bool:
        """Open and give back the blocks of the next ``iterations`` decode iterations, if there are
        enough in each of them."""
        more = self._sums.gain(self._grown, iterations)
        if more > self.free_blocks or (iterations > 1 and self.horizon(iterations) < iterations):
            return False
        self.reserved += more * self.block_size
        self._grown += iterations
        return True

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations take more than they give back,
        in tokens."""
        return self._sums.gain(self._grown, iterations) * self.block_size if iterations else 0

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks can feed."""
        # a sequence takes a block of each group at most in as many tokens
        blocks = 1 + iterations * self._courses.speculation.width // self._shortest
        if self._number * self._decoding * blocks <= self.free_blocks:
            return iterations
        lacking = np.flatnonzero(self._sums.gains(self._grown, iterations) > self.free_blocks)
        return int(lacking[0]) if len(lacking) else iterations

    def until_more(self, iterations: int) -> int:
        """Until sequences have given back more than they have taken."""
        given = np.flatnonzero(self._sums.gains(self._grown, iterations) < 0)
        return int(given[0]) if len(given) else iterations

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``owners``, who hold what they should."""
        growing = {request for request, (_, decodes) in owners.items() if decodes}
        assert self._along.keys() == growing, (self._along, owners)
        assert self._held.keys() == owners.keys() - growing, (self._held, owners)
        used, now = 0, self._grown
        for request, (tokens, decodes) in owners.items():
            if not decodes:
                held, computed = self._held[request]
                assert tokens == held, (request, held)
                used += self._stopped.get(request, self._blocks(computed, tokens))
                continue
            along = self._along[request]
            assert along.tokens(now) == tokens, (request, tokens)
            place = now - along.opened
            if place:
                before = np.array([along.tokens(now - 1)])
                slots = along.slots[place : place + 1]
                assert int(self._held_by(before, slots)[0]) == along.blocks[place], request
            used += along.blocks.item(place)
        assert self.free_blocks + used == self.num_blocks, (self.free_blocks, used, self.num_blocks)
        assert 0 <= self.reserved <= self.capacity
