"""Says when sequences give back the blocks that lie behind the windows of their layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace

from sim.memory.groups import KvGroup
from sim.memory.held_blocks import Holding
from sim.specs.window import NEVER


class LooksBack:
    """The windows of some groups: ``number`` in all, ``chunked`` if any of them is. ``blocks`` is
    what a request has in all windows at most, with the one in which each begins.

    ``kinds`` are those of the groups that have one, each with the tokens of its blocks, ``shown``
    and ``period``, and its place among all. Blocks fall behind it at a length of ``shown`` tokens
    and one or more periods: a block at a time, or where it is chunked, all of a chunk.

    >>> from sim.specs.window import Window
    >>> LooksBack([KvGroup(2, Window(33), 16), KvGroup(1, Window(64, chunked=True), 16)]).kinds
    [(16, 32, 16, 0), (16, 0, 64, 1)]
    """

    __slots__ = ("blocks", "chunked", "kinds", "number")

    def __init__(self, groups: Sequence[KvGroup]) -> None:
        self.kinds: list[tuple[int, int, int, int]] = []
        self.number = self.blocks = 0
        self.chunked = False
        for kind, group in enumerate(groups):
            size, window = group.block, group.window
            if window is None:
                continue
            shown, period = (0, window.size) if window.chunked else (window.size - 1, size)
            self.kinds.append((size, shown, period, kind))
            self.chunked |= window.chunked
            self.number += group.number
            self.blocks += group.number * (-(-window.size // size) + 1)


class Turns:
    """When each decoding sequence gives back its next block (``Holding.turn``, which is another one
    once it stops): in order, and within an iteration as they were admitted."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Holding]] = []

    def add(self, held: Holding) -> None:
        """A sequence that holds that decodes from now on."""
        heappush(self._entries, (held.turn, held.number, held))

    def next(self) -> int:
        """The next iteration in which one of them gives back a block."""
        entries = self._entries
        while entries and entries[0][2].turn != entries[0][0]:
            heappop(entries)
        return entries[0][0] if entries else NEVER

    def due(self, until: int, last: int) -> Iterator[Holding]:
        """The hits whose turn comes before the iteration ``until``, and in that up to the one that
        was admitted as number ``last``. The caller sets the next turn of each."""
        entries = self._entries
        while entries:
            turn, number, held = entries[0]
            if turn >= until and (turn > until or number > last):
                return
            if held.turn != turn:
                heappop(entries)
                continue
            yield held
            heapreplace(entries, (held.turn, number, held))
