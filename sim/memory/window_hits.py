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
            if held.evenly:
                heappop(entries)
            else:
                heapreplace(entries, (held.turn, number, request))

    def _over(self, entry: tuple[int, int, Request]) -> bool:
        """Whether the sequence of an entry decodes no more, or has been admitted once more."""
        turn, number, request = entry
        held = self._decode.get(request)
        return held is None or held.number != number or held.turn != turn


class EvenTurns:
    """Sequences each of which gives back a block in one of every ``size`` iterations, and none that
    is known: they are counted together, as their turns come.

    >>> from sim.memory.held_blocks import Holding
    >>> first, second = Holding(1, 0, [], 0), Holding(2, 0, [], 0)
    >>> turns = EvenTurns(16)
    >>> first.turn, second.turn = 3, 19
    >>> turns.add(Request(1, 0.0, 1, 1), first), turns.add(Request(2, 0.0, 1, 1), second)
    (0, 0)
    >>> turns.count(2, NEVER), turns.next(), turns.count(3, 1), turns.count(3, NEVER)
    (0, 3, 1, 1)
    >>> turns.count(35, NEVER), turns.until(first)
    (4, 35)
    """

    __slots__ = ("_counted", "_last", "_slots", "members")

    def __init__(self, size: int) -> None:
        self.members: dict[Request, Holding] = {}
        self._slots: list[dict[int, Holding]] = [{} for _ in range(size)]
        # all turns before that iteration are counted, and in it those of who was admitted up to
        # that number
        self._counted = self._last = 0

    def add(self, request: Request, held: Holding) -> int:
        """``request`` gives back evenly from its turn on; returns how many of its turns belong to
        those that are counted."""
        held.evenly = True
        self.members[request] = held
        self._slots[held.turn % len(self._slots)][held.number] = held
        return max(0, (self.until(held) - held.turn) // len(self._slots) + 1)

    def remove(self, request: Request) -> None:
        """``request`` is counted no longer."""
        held = self.members.pop(request)
        held.evenly = False
        del self._slots[held.turn % len(self._slots)][held.number]

    def until(self, held: Holding) -> int:
        """The last iteration whose turns are counted, if ``held`` has one then."""
        return self._counted - (held.number > self._last)

    def count(self, until: int, last: int) -> int:
        """The turns since those that were counted, before the iteration ``until`` and in that up to
        the one that was admitted as number ``last``."""
        found = 0
        if (until, last) <= (self._counted, self._last):
            return found
        if self.members:
            slots, since = self._slots, self._counted
            rounds, rest = divmod(until - since, len(slots))
            found = rounds * len(self.members) - self._in(since, self._last)
            for iteration in range(since, since + rest):
                found += len(slots[iteration % len(slots)])
            found += self._in(until, last)
        self._counted, self._last = until, last
        return found

    def _in(self, iteration: int, last: int) -> int:
        """The turns of one iteration up to the sequence that was admitted as number ``last``."""
        return sum([number <= last for number in self._slots[iteration % len(self._slots)]])

    def next(self) -> int:
        """The next iteration with a turn that is not counted."""
        slots, now = self._slots, self._counted
        if self.members:
            if self._in(now, NEVER) > self._in(now, self._last):
                return now
            for iteration in range(now + 1, now + 1 + len(slots)):
                if slots[iteration % len(slots)]:
                    return iteration
        return NEVER
