"""Allocates paged KV memory of models that also keep a state of each sequence, from one pool."""

from __future__ import annotations

from collections.abc import Mapping

from sim.memory.paged import PagedAllocator
from sim.request import Request


class StatefulAllocator(PagedAllocator):
    """A paged allocator with ``states`` blocks more for each request that holds memory. They come
    with its first tokens and stay as they are (``sim.memory.groups``).

    >>> kv = StatefulAllocator(num_blocks=6, block_size=16, states=3)
    >>> request = Request(1, arrival=0.0, prompt_tokens=16, output_tokens=9)
    >>> kv.allocate(request, 10), kv.free_blocks  # one block of tokens, three of states
    (True, 2)
    >>> kv.allocate(request, 6), kv.free_blocks
    (True, 2)
    """

    __slots__ = ("_states", "state_tokens")

    def __init__(self, num_blocks: int, block_size: int, states: int) -> None:
        super().__init__(num_blocks, block_size)
        self._states = states
        self.state_tokens = 0

    def blocks_for(self, tokens: int) -> int:
        """Blocks of that many ``tokens``, and those of the states."""
        return super().blocks_for(tokens) + self._states

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length."""
        return super().can_ever_fit(tokens + self._states * self.block_size)

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether the free blocks could hold ``tokens`` and the states."""
        return super().fits(request, tokens + self._states * self.block_size, spare=spare)

    def room(self, tokens: int) -> int:
        """Sequences of that length that the free blocks could hold."""
        return super().room(tokens + self._states * self.block_size)

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more need, and those of the states with the first."""
        if request in self._held:
            return super().allocate(request, tokens)
        states = self._states * self.block_size
        self.reserved += states
        if self.reserved <= self.capacity and super().allocate(request, tokens):
            self.state_tokens += states
            return True
        self.reserved -= states
        return False

    def free(self, request: Request) -> None:
        """Take back the blocks of ``request``."""
        super().free(request)
        self.reserved -= self._states * self.block_size
        self.state_tokens -= self._states * self.block_size

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Checks what ``paged`` does, and that all ``owners`` have the blocks of their states."""
        states = len(owners) * self._states * self.block_size
        assert self.state_tokens == states, (self.state_tokens, states)
        self.reserved -= states
        self.num_blocks -= len(owners) * self._states
        self.capacity -= states
        try:
            super().check_integrity(owners)
        finally:
            self.num_blocks += len(owners) * self._states
            self.capacity += states
            self.reserved += states
