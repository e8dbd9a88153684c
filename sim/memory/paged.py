"""Allocates KV memory as paged attention does: fixed blocks on demand, nothing reserved ahead.

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
    >>> kv.join(16); kv.grow(1)            # its first decode opens a second one
    True
    >>> kv.free_blocks
    1
    """

    __slots__ = (
        "_decoding",
        "_place",
        "_ring",
        "block_size",
        "capacity",
        "num_blocks",
        "reserved",
    )

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.capacity = num_blocks * block_size
        self.reserved = 0
        self._decoding = 0
        # of decoding sequences, by (tokens held + place) mod block_size: at place stand those whose
        # last block is full; an iteration moves it down by one
        self._ring = [0] * block_size
        self._place = 0

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence has."""
        return (self.capacity - self.reserved) // self.block_size

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
        reserved = self.reserved + (-(-(held + tokens) // size) + (-held // size)) * size
        if reserved > self.capacity:
            return False
        self.reserved = reserved
        return True

    def free(self, held: int) -> None:
        """Take back the blocks of a sequence of ``held`` tokens."""
        size = self.block_size
        self.reserved += -held // size * size

    def join(self, held: int) -> None:
        """A sequence of ``held`` tokens starts to decode."""
        self._ring[(held + self._place) % self.block_size] += 1
        self._decoding += 1

    def leave(self, held: int) -> None:
        """A decoding sequence, now of ``held`` tokens, stops growing."""
        self._ring[(held + self._place) % self.block_size] -= 1
        self._decoding -= 1

    def grow(self, iterations: int) -> bool:
        """Open the blocks that the next ``iterations`` decode iterations need, if all are free."""
        place = self._place
        blocks = self._ring[place] if iterations == 1 else self._demand(iterations)
        if blocks:
            reserved = self.reserved + blocks * self.block_size
            if reserved > self.capacity:
                return False
            self.reserved = reserved
        place -= iterations
        self._place = place if place >= 0 else place % self.block_size
        return True

    def _demand(self, iterations: int) -> int:
        """Blocks that all decoding sequences together open in the next ``iterations``."""
        ring, last, rounds = self._ring, self._place + 1, 0
        if iterations >= self.block_size:
            rounds, iterations = divmod(iterations, self.block_size)
        first = last - iterations
        blocks = sum(ring[first:last]) if first >= 0 else sum(ring[:last]) + sum(ring[first:])
        return blocks + rounds * self._decoding

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations open, in tokens."""
        return self._demand(iterations) * self.block_size if iterations else 0

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks can feed."""
        size, decoding = self.block_size, self._decoding
        # every sequence opens at most one block per block_size iterations
        if decoding * (iterations + size) <= self.capacity - self.reserved:
            return iterations
        free = self.free_blocks
        cycles = free // decoding
        fed, free, place = cycles * size, free - cycles * decoding, self._place
        while fed < iterations:
            free -= self._ring[place % size]
            if free < 0:
                return fed
            place -= 1
            fed += 1
        return iterations

    def check_integrity(self, sequences: list[tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``sequences``; the ring holds the decoding
        ones."""
        used = sum(-(-held // self.block_size) for held, _ in sequences)
        assert self.free_blocks + used == self.num_blocks, (self.free_blocks, used, self.num_blocks)
        assert 0 <= self.reserved <= self.capacity
        assert self.reserved % self.block_size == 0
        ring = [0] * self.block_size
        for held, decoding in sequences:
            if decoding:
                ring[(held + self._place) % self.block_size] += 1
        assert ring == self._ring, (ring, self._ring)
        assert sum(ring) == self._decoding
