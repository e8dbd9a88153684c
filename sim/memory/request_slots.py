"""Lets sequences that grow apart share one KV cache.

With several batches in flight each grows by itself: a lane for each. What an allocator knows of the
sequences that grow together is parked while another lane is in use; what requests hold, and how
much is free, is one account for all of them.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from sim.memory.allocator import Allocator


class Lanes:
    """The lanes of ``kv``, an empty cache; ``at`` is the one in use.

    >>> from sim.memory.paged import PagedAllocator
    >>> from sim.request import Request
    >>> kv = PagedAllocator(num_blocks=3, block_size=16)
    >>> lanes, request = Lanes(kv, 2), Request(1, arrival=0.0, prompt_tokens=16, output_tokens=9)
    >>> kv.allocate(request, 16); kv.join(request)
    True
    >>> lanes.select(1); kv.grow(1); kv.free_blocks  # nothing grows there
    True
    2
    >>> lanes.select(0); kv.grow(1); kv.free_blocks
    True
    1
    """

    def __init__(self, kv: Allocator, number: int) -> None:
        self.at = 0
        self._kv, self._names = kv, kv.growing
        self._parked: list[list[Any]] = [
            [deepcopy(getattr(kv, name)) for name in self._names] for _ in range(number)
        ]

    def select(self, lane: int) -> None:
        """Use ``lane``: ``join``, ``leave`` and ``grow`` are about its sequences from now on."""
        if lane == self.at:
            return
        kv, names = self._kv, self._names
        self._parked[self.at] = [getattr(kv, name) for name in names]
        for name, value in zip(names, self._parked[lane], strict=True):
            setattr(kv, name, value)
        self.at = lane

    def value(self, lane: int, name: str) -> Any:
        """The value in that lane of ``name``, one of the allocator's ``growing``."""
        if lane == self.at:
            return getattr(self._kv, name)
        return self._parked[lane][self._names.index(name)]

    def add(self, lane: int, name: str, more: int) -> None:
        """Add ``more`` to that value."""
        if lane == self.at:
            setattr(self._kv, name, getattr(self._kv, name) + more)
        else:
            self._parked[lane][self._names.index(name)] += more
