"""Allocates KV memory as paged attention does: fixed blocks on demand, nothing reserved ahead.

A decoding sequence needs a new block each time its length crosses a multiple of ``block_size``.
Which sequences cross in which iteration depends only on their length modulo ``block_size``, so the
decoding sequences are kept as ``block_size`` counters in a ring that turns with the iterations: the
demand of any iteration is one look-up, that of a thousand iterations one sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from sim.memory.allocator import Allocator
from sim.request import Request


class PagedAllocator(Allocator):
    """``num_blocks`` blocks of ``block_size`` tokens; the last block of a sequence is part empty.

    >>> kv = PagedAllocator(num_blocks=3, block_size=16)
    >>> request = Request(1, arrival=0.0, prompt_tokens=16, output_tokens=9)
    >>> kv.allocate(request, 16)               # its prompt fills one block
    True
    >>> kv.join(request); kv.grow(1)           # its first decode opens a second one
    True
    >>> kv.free_blocks
    1
    """

    name = "paged"
    about = "blocks as tokens come, as vLLM"
    growing = ("_decoding", "_grown", "_ring")

    __slots__ = (
        "_decoding",
        "_grown",
        "_held",
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
        self._grown = 0  # iterations that decoding sequences have been fed since the start
        # tokens of each request; of one that decodes less ``_grown``, so that none is touched while
        # it grows
        self._held: dict[Request, int] = {}
        # of decoding sequences, by (tokens held - grown) mod block_size: at -grown stand those
        # whose last block is full; an iteration moves that place down by one
        self._ring = [0] * block_size

    @classmethod
    def of(cls, blocks: int, block_size: int, longest: int) -> Self:
        """The blocks, for sequences of any length."""
        return cls(blocks, block_size)

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length."""
        return tokens <= self.capacity

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether the free blocks could hold ``tokens``."""
        blocks = -(-tokens // self.block_size)
        return blocks + int(spare * self.num_blocks) <= self.free_blocks

    def room(self, tokens: int) -> int:
        """Sequences of that length that the free blocks could hold."""
        return self.free_blocks // -(-tokens // self.block_size)

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more need beyond those that ``request`` has."""
        size = self.block_size
        held = self._held.get(request, 0)
        reserved = self.reserved + (-(-(held + tokens) // size) + (-held // size)) * size
        if reserved > self.capacity:
            return False
        self.reserved = reserved
        self._held[request] = held + tokens
        return True

    def held(self, request: Request) -> int:
        """Tokens that ``request``, which does not decode, has memory for."""
        return self._held[request]

    def give_back(self, request: Request, tokens: int) -> None:
        """Close the blocks that the last ``tokens`` of ``request`` opened."""
        held = self._held[request]
        self.free(request)
        if held > tokens:
            self.allocate(request, held - tokens)

    def free(self, request: Request) -> None:
        """Take back the blocks of ``request``."""
        size = self.block_size
        self.reserved += -self._held.pop(request) // size * size

    def join(self, request: Request) -> None:
        """``request`` starts to decode."""
        held = self._held[request] = self._held[request] - self._grown
        self._ring[held % self.block_size] += 1
        self._decoding += 1

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        held = self._held[request]
        self._held[request] = held + self._grown
        self._ring[held % self.block_size] -= 1
        self._decoding -= 1

    def grow(self, iterations: int) -> bool:
        """Open the blocks that the next ``iterations`` decode iterations need, if all are free."""
        grown = self._grown
        blocks = (
            self._ring[-grown % self.block_size] if iterations == 1 else self._demand(iterations)
        )
        if blocks:
            reserved = self.reserved + blocks * self.block_size
            if reserved > self.capacity:
                self._lack()
                return False
            self.reserved = reserved
        self._grown = grown + iterations
        return True

    def _lack(self) -> None:
        """There is no room for the sequences to grow."""

    def _demand(self, iterations: int) -> int:
        """Blocks that all decoding sequences together open in the next ``iterations``."""
        ring, size, rounds = self._ring, self.block_size, 0
        last = -self._grown % size + 1
        if iterations >= size:
            rounds, iterations = divmod(iterations, size)
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
        return self._fed(iterations, self.free_blocks)

    def _fed(self, iterations: int, free: int) -> int:
        """How many of the next ``iterations`` decode iterations ``free`` blocks can feed."""
        size, decoding = self.block_size, self._decoding
        cycles = free // decoding
        fed, free, place = cycles * size, free - cycles * decoding, -self._grown
        while fed < iterations:
            free -= self._ring[place % size]
            if free < 0:
                return fed
            place -= 1
            fed += 1
        return iterations

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``owners``; the ring holds the decoding ones."""
        held = {r: tokens - self._grown * decoding for r, (tokens, decoding) in owners.items()}
        assert self._held == held, (self._held, held)
        used = sum(-(-tokens // self.block_size) for tokens, _ in owners.values())
        assert self.free_blocks + used == self.num_blocks, (self.free_blocks, used, self.num_blocks)
        assert 0 <= self.reserved <= self.capacity
        assert self.reserved % self.block_size == 0
        self._check_ring(owners)

    def _check_ring(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Raise AssertionError unless the ring holds those of ``owners`` that decode."""
        ring = [0] * self.block_size
        for tokens, decoding in owners.values():
            ring[(tokens - self._grown) % self.block_size] += decoding
        assert ring == self._ring, (ring, self._ring)
        assert sum(ring) == self._decoding
