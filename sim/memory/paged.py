"""How paged attention hands out KV memory: fixed blocks on demand, nothing reserved ahead.

A decoding sequence needs a new block each time its length crosses a multiple of ``block_size``.
Which sequences cross in which iteration depends only on their length modulo ``block_size``, so the
decoding sequences are kept as ``block_size`` counters in a ring that turns with the iterations: the
demand of any iteration is one look-up, that of a thousand iterations one sum.
"""

from __future__ import annotations

from sim.memory.allocator import Allocator


class PagedAllocator(Allocator):
    """``num_blocks`` blocks of ``block_size`` tokens; the last block of a sequence is part empty.

    >>> kv = PagedAllocator(num_blocks=3, block_size=16)
    >>> kv.allocate(held=0, tokens=16)     # a prompt of 16 tokens fills one block
    True
    >>> kv.join(16); kv.can_grow(); kv.grow(1)    # its first decode opens a second one
    True
    >>> kv.free_blocks
    1
    """

    __slots__ = (
        "_decoding",
        "_phase",
        "_ring",
        "block_size",
        "capacity",
        "free_blocks",
        "num_blocks",
    )

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.capacity = num_blocks * block_size
        self.free_blocks = num_blocks
        self._decoding = 0
        self._phase = 0  # decode iterations so far
        self._ring = [0] * block_size  # decoding sequences by (tokens held - phase) mod block_size

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length."""
        return tokens <= self.capacity

    def fits(self, tokens: int, *, sequences: int = 1, spare: float = 0.0) -> bool:
        """Whether the free blocks could hold that many new sequences of that length."""
        blocks = -(-tokens // self.block_size) * sequences
        return blocks + int(spare * self.num_blocks) <= self.free_blocks

    def allocate(self, held: int, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more need beyond those that ``held`` tokens have."""
        size = self.block_size
        blocks = -(-(held + tokens) // size) + (-held // size)
        if blocks > self.free_blocks:
            return False
        self.free_blocks -= blocks
        return True

    def free(self, held: int) -> None:
        """Take back the blocks of a sequence of ``held`` tokens."""
        self.free_blocks += -(-held // self.block_size)

    def join(self, held: int) -> None:
        """A sequence of ``held`` tokens starts to decode."""
        self._ring[(held - self._phase) % self.block_size] += 1
        self._decoding += 1

    def leave(self, held: int) -> None:
        """A decoding sequence, now of ``held`` tokens, stops growing."""
        self._ring[(held - self._phase) % self.block_size] -= 1
        self._decoding -= 1

    def can_grow(self) -> bool:
        """Whether there is a block for each sequence whose last block is full."""
        return self._ring[-self._phase % self.block_size] <= self.free_blocks

    def grow(self, iterations: int) -> None:
        """Open the blocks that the next ``iterations`` decode iterations need."""
        if iterations == 1:
            self.free_blocks -= self._ring[-self._phase % self.block_size]
        else:
            self.free_blocks -= self._demand(iterations)
        self._phase += iterations

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks can feed."""
        size, free, decoding = self.block_size, self.free_blocks, self._decoding
        if decoding * (iterations // size + 1) <= free:
            return iterations  # every sequence opens at most one block per block_size iterations
        cycles = free // decoding
        fed, free, place = cycles * size, free - cycles * decoding, -self._phase
        while fed < iterations:
            free -= self._ring[place % size]
            if free < 0:
                return fed
            place -= 1
            fed += 1
        return iterations

    def reserved(self) -> int:
        """Tokens' worth of all blocks in use."""
        return (self.num_blocks - self.free_blocks) * self.block_size

    def _demand(self, iterations: int) -> int:
        """Blocks that all decoding sequences together open in the next ``iterations``."""
        size, ring = self.block_size, self._ring
        cycles, rest = divmod(iterations, size)
        first = (-self._phase - rest + 1) % size  # the ring is used up downwards
        last = first + rest
        part = (
            sum(ring[first:last]) if last <= size else sum(ring[first:]) + sum(ring[: last - size])
        )
        return cycles * self._decoding + part

    def check_integrity(self, sequences: list[tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``sequences``; the ring holds the decoding
        ones."""
        used = sum(-(-held // self.block_size) for held, _ in sequences)
        assert self.free_blocks + used == self.num_blocks, (self.free_blocks, used, self.num_blocks)
        assert 0 <= self.free_blocks <= self.num_blocks
        ring = [0] * self.block_size
        for held, decoding in sequences:
            if decoding:
                ring[(held - self._phase) % self.block_size] += 1
        assert ring == self._ring, (ring, self._ring)
        assert sum(ring) == self._decoding
