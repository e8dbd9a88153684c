"""Allocates paged KV memory to sequences that are checked several drafts ahead.

An iteration writes the KV of a sequence's last token and of its K drafts, and a drafter needs K
slots more; what is rejected leaves its blocks with the sequence (vLLM 0.32, ``allocate_slots``).
As the course of each sequence is known, so are the blocks that it opens in each iteration to come.

A prefix cache knows the verified tokens that were there when an iteration was planned: what an
iteration accepts is entered with the next one. Where the drafter reads hidden states of the target
(EAGLE, MTP), the last block that a request finds is computed again, since those are not cached
(``drop_eagle_block``). Both are different since 0.33 (``EngineSpec.keeps_last_found``).

Where iterations are planned ahead, it is not known yet what the one in flight accepts, and each
sequence gets blocks as if that were all of it (``num_output_placeholders``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.growth.courses import Counts, DraftCourse, DraftCourses, Upcoming
from sim.memory.caching import CachingAllocator
from sim.memory.paged import PagedAllocator
from sim.request import Request


class DraftedSequence:
    """A decoding sequence: it ``joined`` at that iteration with that many tokens ``held``, and has
    ``blocks[i]`` blocks i iterations after the one called ``opened``, when its ``course`` was laid
    last."""

    __slots__ = ("blocks", "course", "held", "joined", "opened")

    blocks: Counts

    def __init__(self, now: int, held: int, course: DraftCourse) -> None:
        self.joined = self.opened = now
        self.held, self.course = held, course

    def place(self, now: int) -> int:
        """The place of that iteration in its course."""
        return now - self.joined - self.course.since


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
        self._growing: dict[Request, DraftedSequence] = {}  # those that do

    @property
    def _in_flight(self) -> int:
        """Tokens of a sequence in an iteration of which it is not known what it accepts when the
        next one is planned."""
        return 1 + self._courses.drafts if self._courses.ahead else 0

    @property
    def _wanted(self) -> int:
        """Slots beyond the tokens of a sequence that an iteration of its decoding needs."""
        return 1 + self._courses.drafts + self._lookahead

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length and its last drafts."""
        most = self._courses.speculation.width + self._lookahead + self._in_flight
        return min(tokens - 1 + most, self._longest) <= self.capacity

    def _for_drafts(self, tokens: int, drafts: int = 0) -> int:
        """Blocks that this many ``tokens`` need for the drafts alone, before they are decoded; the
        first iteration checks that many ``drafts``."""
        size, slots = self.block_size, tokens + drafts + self._lookahead
        return -(-min(slots, self._longest) // size) - -(-tokens // size)

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more of ``request`` need, if they are free; rows beyond
        those that it lacks are drafts."""
        size, held = self.block_size, self._held.get(request)
        if held is None:
            cached = self.cached(request)
            rows, tokens = tokens, min(tokens, request.tokens_to_prefill() - cached)
            beyond = self._for_drafts(cached + tokens, rows - tokens)
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
        """Allocates without slots for drafts: they are opened when the tokens are there. So
        many blocks have to be free besides, for this one and for those that are on their way (vLLM
        0.32, ``reserved_blocks``)."""
        size, blocks = self.block_size, -(-tokens // self.block_size)
        step = -(-min(tokens - 1 + self._wanted, self._longest) // size) - blocks
        if blocks + step + sum(self._promised.values()) > self.free_blocks:
            return False
        super().allocate(request, tokens)
        self._beyond[request], self._promised[request] = 0, step
        return True

    def resume_from_host(self, request: Request) -> bool:
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
        held = self._held[request]
        opened = -(-held // self.block_size) + self._beyond.pop(request)
        course = self._courses[request]
        growing = self._growing[request] = DraftedSequence(self._grown, held, course)
        self._open(growing, opened)
        self._decoding += 1

    def _open(self, growing: DraftedSequence, opened: int) -> None:
        """A sequence has ``opened`` blocks now, and opens others along its course."""
        gained, wanted = growing.course.gained, growing.held + self._wanted
        blocks = growing.blocks = np.empty(len(gained), dtype=np.int64)
        blocks[0], later = opened, blocks[1:]
        if ahead := self._in_flight:
            later[0] = gained[0] + wanted
            np.add(gained[:-2], wanted + ahead, out=later[1:])
        else:
            np.add(gained[:-1], wanted, out=later)
        if wanted + ahead + growing.course.lacks > self._longest:
            np.minimum(later, self._longest, out=later)
        later += self.block_size - 1
        later //= self.block_size
        if later[0] < opened:
            np.maximum(later, opened, out=later)
        self._ahead.add(self._grown, blocks)

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        growing = self._growing.pop(request)
        place = growing.place(self._grown)
        self._ahead.take_off(self._grown, growing.blocks[place:])
        tokens = self._held[request] = growing.held + int(growing.course.gained[place])
        self._beyond[request] = int(growing.blocks[place]) - -(-tokens // self.block_size)
        self._decoding -= 1

    def reserve_extra(self, request: Request, got: int) -> bool:
        """``request``, which has ended with the ``got`` tokens of its last iteration, is computed
        once more, since that was planned before: open the blocks for that, if they are free."""
        size, held = self.block_size, self._held[request]
        slots = min(held - got + self._in_flight + self._wanted, self._longest)
        more = max(0, -(-slots // size) - -(-held // size) - self._beyond[request])
        if more > self.free_blocks:
            return False
        self._beyond[request] += more
        self.reserved += more * size
        return True

    def redraft(self) -> None:
        """The courses of those that decode have changed from now on: another number of drafts."""
        now, wanted, growing = self._grown, self._wanted, list(self._growing.values())
        self._ahead.clear()
        if not growing:
            return
        courses = [each.course.gained for each in growing]
        lengths = [len(course) for course in courses]
        needed = np.concatenate(courses)
        needed += np.repeat([each.held + wanted for each in growing], lengths)
        np.minimum(needed, self._longest, out=needed)
        needed += self.block_size - 1
        needed //= self.block_size
        blocks = np.empty_like(needed)
        blocks[1:] = needed[:-1]  # an iteration needs them for what was gained before it
        end = 0
        for each, length in zip(growing, lengths, strict=True):
            start, end = end, end + length
            opened = each.blocks.item(now - each.opened)
            own = each.blocks = blocks[start:end]
            own[0], each.opened = opened, now
            if needed.item(start) < opened:
                np.maximum(own, opened, out=own)
            self._ahead.add(now, own)

    def grow(self, iterations: int) -> bool:
        """Open the blocks that the next ``iterations`` decode iterations need, if all are free."""
        opened = self._ahead.gain(self._grown, iterations)
        reserved = self.reserved + opened * self.block_size
        if reserved > self.capacity:
            self._lack()
            return False
        self.reserved = reserved
        self._grown += iterations
        return True

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations open, in tokens."""
        return self._ahead.gain(self._grown, iterations) * self.block_size if iterations else 0

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks can feed."""
        return self._ahead.within(self._grown, iterations, self.free_blocks)

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``owners``, who hold what they should."""
        assert self._beyond.keys() | self._growing.keys() == owners.keys()
        assert 0 <= self.reserved <= self.capacity
        beyond = dict(self._beyond)
        for request, growing in self._growing.items():
            course, place = growing.course, growing.place(self._grown)
            tokens = growing.held + int(course.gained[place])
            assert owners[request] == (tokens, True), (request, owners[request], tokens)
            assert course is self._courses[request]
            assert len(course.gained) == len(growing.blocks) == course.last + 1 - course.since
            beyond[request] = int(growing.blocks[place]) - -(-tokens // self.block_size)
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
        self,
        num_blocks: int,
        block_size: int,
        longest: int,
        courses: DraftCourses,
        *,
        keeps_last_found: bool = False,
    ) -> None:
        super().__init__(num_blocks, block_size, longest, courses)
        reads_target = courses.speculation.reads_target  # whose hidden states are not cached
        self.computes_last_found = reads_target and not keeps_last_found
        self.hashes_ahead = int(reads_target and keeps_last_found)
        self._enters_at_once = keeps_last_found
        self.grown_in = self._entered
        self._last: dict[Request, int] = {}  # tokens accepted last, of those that gave up decoding

    def _entered(self, request: Request) -> int:
        """Tokens of ``request`` in the cache by now, beyond those from before it decoded."""
        if request not in self._growing:
            return 0
        growing = self._growing[request]
        course, place = growing.course, growing.place(self._grown)
        if self._grown == growing.joined:
            return 0
        if self._enters_at_once and not self._courses.ahead:
            return int(course.gained[place])
        if self._courses.ahead:  # what the iteration in flight accepts is not known
            return int(course.gained[place - 2]) + 1 if place > 1 else 0
        return (int(course.gained[place - 1]) if place else course.before) + 1

    def leave(self, request: Request) -> None:
        """``request`` stops growing; what its last iteration accepted is not in the cache."""
        entered = self._held[request] + self._entered(request)
        growing = self._growing[request]
        course, place = growing.course, growing.place(self._grown)
        super().leave(request)
        self._last[request] = self._held[request] - entered
        if self._courses.ahead:  # tokens are entered when they are known, too
            over = place == course.last - course.since
            known = place if over or not place else place - 1
            self._last[request] = int(course.gained[place] - course.gained[known])
            if not (over or place):  # the token after its prompt is not known
                self._last[request] += self.hashes_ahead

    def _known(self, request: Request, held: int) -> int:
        return held - self._last.pop(request, 0)
