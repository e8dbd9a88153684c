"""Allocates KV memory as engines did before paging: one slab of the maximum length per sequence.

The length of an output is unknown at admission, so the slab must hold ``max_model_len`` tokens and
most of it stays empty: the waste that paged attention removed.
"""

from __future__ import annotations

from sim.memory.allocator import Allocator


class ContiguousAllocator(Allocator):
    """``capacity // slab`` slabs of ``slab`` tokens, one per sequence from its first token on.

    >>> kv = ContiguousAllocator(capacity=10_000, slab=4_096)
    >>> kv.allocate(0, 10), kv.allocate(0, 4_000), kv.fits(1)
    (True, True, False)
    """

    __slots__ = ("capacity", "num_slabs", "reserved", "slab")

    def __init__(self, capacity: int, slab: int) -> None:
        self.capacity = capacity
        self.slab = slab
        self.num_slabs = capacity // slab
        self.reserved = 0

    @property
    def free_slabs(self) -> int:
        """Slabs that no sequence has."""
        return self.num_slabs - self.reserved // self.slab

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether there is a slab at all and it is long enough."""
        return self.num_slabs > 0 and tokens <= self.slab

    def fits(self, tokens: int, *, sequences: int = 1, spare: float = 0.0) -> bool:
        """Whether that many slabs are free, and long enough."""
        return sequences + int(spare * self.num_slabs) <= self.free_slabs and tokens <= self.slab

    def allocate(self, held: int, tokens: int) -> bool:
        """Take a slab for a new sequence; one that has its slab grows inside it."""
        if held == 0:
            if self.free_slabs == 0 or tokens > self.slab:
                return False
            self.reserved += self.slab
        return held + tokens <= self.slab

    def free(self, held: int) -> None:
        """Take back the slab of a sequence."""
        if held:
            self.reserved -= self.slab

    def join(self, held: int) -> None:
        """Growth happens inside the slab: nothing to account."""

    def leave(self, held: int) -> None:
        """Growth happens inside the slab: nothing to account."""

    def grow(self, iterations: int) -> bool:
        """Always: admission made sure that the whole sequence fits its slab."""
        return True

    def growth(self, iterations: int) -> int:
        """Nothing: a slab is reserved as a whole."""
        return 0

    def horizon(self, iterations: int) -> int:
        """All of them: a slab never runs out before its sequence ends."""
        return iterations

    def check_integrity(self, sequences: list[tuple[int, bool]]) -> None:
        """Every slab is free or belongs to one of ``sequences``."""
        used = sum(1 for held, _ in sequences if held)
        assert self.free_slabs + used == self.num_slabs, (self.free_slabs, used, self.num_slabs)
