"""Allocates KV memory as engines did before paging: one slab of the maximum length per sequence.

The length of an output is unknown at admission, so the slab must hold ``max_model_len`` tokens and
most of it stays empty: the waste that paged attention removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from sim.errors import InfeasibleError
from sim.memory.allocator import Allocator
from sim.request import Request


class ContiguousAllocator(Allocator):
    """``capacity // slab`` slabs of ``slab`` tokens, one per request from its first token on.

    >>> kv = ContiguousAllocator(capacity=10_000, slab=4_096)
    >>> one, two = Request(1, 0.0, 10, 5), Request(2, 0.0, 4_000, 5)
    >>> kv.allocate(one, 10), kv.allocate(two, 4_000), kv.room(1)
    (True, True, 0)
    """

    name = "contiguous"
    about = "the maximum length is reserved for each request"
    reserves_longest = True

    __slots__ = ("_held", "block_size", "capacity", "num_blocks", "reserved")

    def __init__(self, capacity: int, slab: int) -> None:
        self.capacity = capacity
        self.block_size = slab
        self.num_blocks = capacity // slab
        self.reserved = 0
        # tokens allocated to each request; those that it decoded lie in the rest of its slab
        self._held: dict[Request, int] = {}

    @classmethod
    def of(cls, blocks: int, block_size: int, longest: int) -> Self:
        """Slabs of the longest sequence; InfeasibleError if there is no room for one."""
        tokens = blocks * block_size
        if tokens < longest:
            raise InfeasibleError(
                f"contiguous allocation reserves max_model_len ({longest:,} tokens) for each "
                f"request, but the KV cache holds {tokens:,}; lower max_model_len"
            )
        return cls(tokens, longest)

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether there is a slab at all and it is long enough."""
        return self.num_blocks > 0 and tokens <= self.block_size

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether a slab is free, and long enough."""
        return 1 + int(spare * self.num_blocks) <= self.free_blocks and tokens <= self.block_size

    def room(self, tokens: int) -> int:
        """The free slabs, if they are long enough."""
        return self.free_blocks if tokens <= self.block_size else 0

    def allocate(self, request: Request, tokens: int) -> bool:
        """Take a slab for a new request; one that has its slab grows inside it."""
        held = self._held.get(request, 0)
        if held + tokens > self.block_size:
            return False
        if not held:
            if not self.free_blocks:
                return False
            self.reserved += self.block_size
        self._held[request] = held + tokens
        return True

    def give_back(self, request: Request, tokens: int) -> None:
        """Undo ``allocate``; the slab goes with the first token."""
        self._held[request] -= tokens
        if not self._held[request]:
            self.free(request)

    def free(self, request: Request) -> None:
        """Take back the slab of ``request``."""
        del self._held[request]
        self.reserved -= self.block_size

    def join(self, request: Request) -> None:
        """Growth happens inside the slab: nothing to account."""

    def leave(self, request: Request) -> None:
        """Growth happens inside the slab: nothing to account."""

    def grow(self, iterations: int) -> bool:
        """True: admission made sure that the whole sequence fits its slab."""
        return True

    def growth(self, iterations: int) -> int:
        """No growth: a slab is reserved as a whole."""
        return 0

    def horizon(self, iterations: int) -> int:
        """All of them: a slab never runs out before its sequence ends."""
        return iterations

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every slab is free or belongs to one of ``owners``."""
        assert self._held.keys() == owners.keys(), (self._held, owners)
        for request, (held, _) in owners.items():
            assert 0 < self._held[request] <= held <= self.block_size, (request, held)
        assert self.reserved == len(owners) * self.block_size, (self.reserved, owners)
