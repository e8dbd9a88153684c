"""Keeps the books of sequences whose drafts are really checked: what they gain is known afterwards.

The simulator draws how many drafts of a sequence are accepted and knows its whole course
(``sim.growth.sampled``, ``sim.memory.drafted``). Here a pass tells it; the batch and the allocator
count the same tokens and the same blocks, one iteration at a time. Amounts are tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.growth.courses import DraftCourses
from sim.growth.steady import NEVER, Steady
from sim.memory.drafted import DraftedAllocator
from sim.request import Request
from sim.schedulers import Scheduler
from sim.specs.speculation import Speculation


class VerifiedBatch(Steady):
    """Sequences that decode together, each gaining what the last pass found right.

    ``speculation``  what is drafted; its rates are not looked at
    ``coming``       tokens that the last pass brought, not yet counted in ``context``
    """

    __slots__ = ("_got", "_told", "asks", "coming", "speculation")

    def __init__(self, speculation: Speculation) -> None:
        super().__init__()
        self.speculation = speculation
        self.asks = speculation.slots
        self.coming = 0
        self._told: Mapping[int, int] = {}
        self._got: dict[Request, int] = {}  # since it joined, by member

    def told(self, gains: Mapping[int, int]) -> None:
        """A pass brought each member, by the number of its request, that many tokens."""
        self._told, self.coming = gains, sum(gains.values())

    def join(self, request: Request, now: float) -> None:
        """``request`` got its first token (again, after a preemption) and has more to come."""
        self._got[request] = 0
        super().join(request, now)

    def lasts(self, request: Request) -> int:
        """More iterations than there will be: how many is not known beforehand."""
        return NEVER

    def gained(self, request: Request) -> int:
        """Tokens that a member got since it joined; they are not yet written into it."""
        return self._got[request]

    def context_after(self, iterations: int) -> int:
        """KV tokens that the members are sure to hold; what a pass will bring is not known."""
        return self.context

    def leave(self, request: Request) -> None:
        """Take ``request`` out and write its progress into it."""
        super().leave(request)
        del self._got[request]

    def advance(self, iterations: int, end: float) -> None:
        """The one iteration that was announced has run, until ``end``."""
        assert iterations == 1, iterations
        super().advance(1, end)
        self.context += self.coming - self.size
        self.coming = 0
        for request in self._got:
            self._got[request] += self._told[request.id]
            if self._got[request] >= request.output_tokens - request.generated:
                self.next_finish = self.iteration

    def pop_finished(self) -> list[Request]:
        """Take out the members that have all their tokens, by id."""
        finished = [r for r, got in self._got.items() if got >= r.output_tokens - r.generated]
        for request in finished:
            self.leave(request)
        self.next_finish = NEVER
        return sorted(finished, key=lambda request: request.id)


class VerifiedAllocator(DraftedAllocator):
    """The blocks of ``DraftedAllocator`` for sequences whose courses show only as they run."""

    def __init__(
        self, num_blocks: int, block_size: int, longest: int, speculation: Speculation
    ) -> None:
        super().__init__(num_blocks, block_size, longest, DraftCourses(speculation, 0))
        self._members: dict[Request, None] = {}

    def blocks_of(self, request: Request) -> int:
        """Blocks that ``request`` has."""
        return -(-self._held[request] // self.block_size) + self._beyond[request]

    def told(self, gains: Mapping[int, int]) -> None:
        """A pass brought each decoding sequence, by the number of its request, that many tokens."""
        for request in self._members:
            blocks = self.blocks_of(request)
            self._held[request] += gains[request.id]
            self._set(request, blocks)

    def _set(self, request: Request, blocks: int) -> None:
        """``request`` has that many blocks."""
        self._beyond[request] = blocks - -(-self._held[request] // self.block_size)

    def join(self, request: Request) -> None:
        """``request`` starts to decode."""
        self._members[request] = None
        self._decoding += 1

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        del self._members[request]
        self._decoding -= 1

    def grow(self, iterations: int) -> bool:
        """Open the blocks that the next iteration needs, if all are free."""
        assert iterations == 1, iterations
        needed = {r: max(self.blocks_of(r), self._to_decode(r)) for r in self._members}
        more = sum(blocks - self.blocks_of(r) for r, blocks in needed.items()) * self.block_size
        if self.reserved + more > self.capacity:
            return False
        self.reserved += more
        for request, blocks in needed.items():
            self._set(request, blocks)
        return True

    def growth(self, iterations: int) -> int:
        """The blocks that the next iteration opens, in tokens; later ones are not known."""
        if not iterations:
            return 0
        lacking = (max(0, self._to_decode(r) - self.blocks_of(r)) for r in self._members)
        return sum(lacking) * self.block_size

    def horizon(self, iterations: int) -> int:
        """No iteration: none of the next ones can be foreseen."""
        return 0

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``owners``, who hold what they should."""
        assert self._held == {r: tokens for r, (tokens, _) in owners.items()}
        assert self._members.keys() == {r for r, (_, decoding) in owners.items() if decoding}
        assert self.reserved == sum(map(self.blocks_of, self._held)) * self.block_size
        assert 0 <= self.reserved <= self.capacity

    def _to_decode(self, request: Request) -> int:
        """Blocks that ``request`` needs for a pass over its drafts."""
        return -(-min(self._held[request] + self._wanted, self._longest) // self.block_size)


def verify(scheduler: Scheduler, speculation: Speculation) -> None:
    """Let ``scheduler``, which has served nothing, decode with drafts that are really checked."""
    kv, longest = scheduler.kv, scheduler.limits.max_model_len
    scheduler.kv = VerifiedAllocator(kv.num_blocks, kv.block_size, longest, speculation)
    scheduler.decoding = VerifiedBatch(speculation)
