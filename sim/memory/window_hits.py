"""Says when sequences give back the blocks that lie behind the windows of their layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush, heapreplace

from sim.memory.groups import KvGroup, places
from sim.memory.held_blocks import Holding
from sim.request import Request
from sim.specs.window import NEVER


class LooksBack:
    """The windows of some groups: ``number`` in all, ``chunked`` if any of them is. ``groups`` are
    those that have one, each with its places among all; ``blocks`` is what a request has in all
    windows at most, with the one in which each begins."""

    __slots__ = ("_windows", "blocks", "chunked", "groups", "number")

    def __init__(self, groups: Sequence[KvGroup]) -> None:
        self.groups = [each for each in places(groups) if each[0].window is not None]
        self._windows = [(g.block, g.window) for g, _ in self.groups if g.window is not None]
        self.number = sum(group.number for group, _ in self.groups)
        self.chunked = any(window.chunked for _, window in self._windows)
        shown = [-(-window.size // size) + 1 for size, window in self._windows]
        self.blocks = sum(
            group.number * each for (group, _), each in zip(self.groups, shown, strict=True)
        )

    def until_turn(self, tokens: int) -> int:
        """Iterations until a decoding sequence of that length gives back a block.

        >>> from sim.specs.window import Window
        >>> windows = LooksBack([KvGroup(1, Window(17), 16), KvGroup(1, None, 16)])
        >>> windows.until_turn(32), windows.until_turn(33)
        (0, 15)
        """
        soonest = NEVER
        for size, window in self._windows:
            if window.chunked:
                soonest = min(soonest, -tokens % window.size)
            else:
                first = max(tokens, window.size - 1 + size)
                soonest = min(soonest, first - tokens + (window.size - 1 - first) % size)
        return soonest


class Turns:
    """When each of those that ``decode`` gives back its next block (``Holding.turn``): in order,
    and within an iteration as they were admitted."""

    __slots__ = ("_decode", "_entries")

    def __init__(self, decode: Mapping[Request, Holding]) -> None:
        self._decode = decode
        self._entries: list[tuple[int, int, Request]] = []

    def add(self, request: Request, held: Holding) -> None:
        """``request`` decodes from now on."""
        if held.turn < NEVER:
            heappush(self._entries, (held.turn, held.number, request))

    def next(self) -> int:
        """The next iteration in which one of them gives back a block."""
        entries = self._entries
        while entries and self._over(entries[0]):
            heappop(entries)
        return entries[0][0] if entries else NEVER

    def due(self, until: int, last: int) -> Iterator[tuple[Request, Holding]]:
        """The hits whose turn comes before the iteration ``until``, and in that up to the one that
        was admitted as number ``last``. The caller sets the next turn of each."""
        entries = self._entries
        while entries and entries[0][:2] <= (until, last):
            _, number, request = entries[0]
            if self._over(entries[0]):
                heappop(entries)
                continue
            held = self._decode[request]
            yield request, held
            heapreplace(entries, (held.turn, number, request))

    def _over(self, entry: tuple[int, int, Request]) -> bool:
        """Whether the sequence of an entry decodes no more, or has been admitted once more."""
        turn, number, request = entry
        held = self._decode.get(request)
        return held is None or held.number != number or held.turn != turn
