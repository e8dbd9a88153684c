"""Keeps KV blocks in the memory of the host, behind the link that joins it to the GPU.

Two kinds of blocks are there. Full blocks of prompts, kept for those that need them again, leave by
least recent use; blocks of preempted requests, *swapped* out, stay until those come back. A block
is known by (text, number), as in ``sim.memory.caching``. Consecutive blocks of one text that were
written together are one *stretch*, of which the last block leaves first.

The link moves one transfer after the other in each direction, and both directions at once, as PCIe
does and vLLM drives it (a queue for each, ``v1/kv_offload/cpu/gpu_worker.py`` of 0.32). Each GPU of
a replica has a link and moves its own part of every block at the same time. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Literal, NamedTuple

Kind = Literal["store", "load", "swap_out", "swap_in"]
KINDS: tuple[Kind, ...] = ("store", "load", "swap_out", "swap_in")
"""Transfers: blocks of prompts to the host and back, blocks of preempted requests likewise."""

OUTWARD: frozenset[Kind] = frozenset({"store", "swap_out"})
"""The kinds that go to the host."""


class Move(NamedTuple):
    """One transfer: from ``start`` to ``end``, ``blocks`` of request number ``request``."""

    kind: Kind
    request: int
    start: float
    end: float
    blocks: int


class HostLink:
    """The link of a replica: ``block_seconds`` a block, and ``latency`` before each transfer.

    >>> link = HostLink(block_seconds=0.5, latency=0.25)
    >>> link.move("store", 1, 0.0, 4), link.move("load", 2, 0.0, 1), link.move("store", 3, 1.0, 1)
    (2.25, 0.75, 3.0)
    """

    __slots__ = ("_free", "block_seconds", "latency", "note")

    def __init__(self, block_seconds: float, latency: float) -> None:
        self.block_seconds = block_seconds
        self.latency = latency
        self.note: Callable[[Move], None] | None = None  # who keeps the transfers
        self._free = [0.0, 0.0]  # when each direction has moved all it was given: in, out

    def seconds(self, blocks: int) -> float:
        """How long that many blocks take where nothing else moves."""
        return self.latency + blocks * self.block_seconds

    def move(self, kind: Kind, request: int, now: float, blocks: int) -> float:
        """Move ``blocks`` of ``request`` after all that goes the same way; returns when they are
        there."""
        way = kind in OUTWARD
        start = max(now, self._free[way])
        end = self._free[way] = start + self.seconds(blocks)
        if self.note is not None:
            self.note(Move(kind, request, start, end, blocks))
        return end


class Stretch:
    """Blocks ``low`` to ``high`` (exclusive) of a ``text``, written or read until ``until``.

    It stands in a queue, the least recently used first, between ``before`` and ``after``.
    """

    __slots__ = ("after", "before", "high", "low", "text", "until")

    before: Stretch
    after: Stretch

    def __init__(self, text: int, low: int, high: int, until: float) -> None:
        self.text = text
        self.low = low
        self.high = high
        self.until = until

    def __repr__(self) -> str:
        return f"Stretch({self.text}: {self.low} to {self.high}, until {self.until})"

    def insert(self, place: Stretch) -> None:
        """Stand before ``place`` in the queue."""
        self.before, self.after = place.before, place
        place.before.after = self
        place.before = self

    def remove(self) -> None:
        """Leave the queue."""
        self.before.after = self.after
        self.after.before = self.before


class HostMemory:
    """``blocks`` in the memory of the host, of one replica.

    >>> host = HostMemory(blocks=4)
    >>> host.keep([(7, 0, 3)], now=0.0, until=0.5)
    3
    >>> host.find(7, 0, 9), host.reserve(2, now=1.0), host.find(7, 0, 9)
    ((3, 0.5), True, (2, 0.5))
    """

    __slots__ = ("_end", "_texts", "blocks", "evicted", "kept", "swapped")

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.kept = 0  # full blocks of prompts
        self.swapped = 0  # blocks of preempted requests
        self.evicted = 0  # blocks that made room for others
        self._texts: dict[int, list[Stretch]] = {}
        self._end = end = Stretch(0, 0, 0, 0.0)
        end.before = end.after = end

    @property
    def free(self) -> int:
        """Blocks that hold nothing."""
        return self.blocks - self.kept - self.swapped

    def find(self, text: int, low: int, high: int) -> tuple[int, float]:
        """The end of the unbroken blocks of ``text`` that are here from ``low`` on, ``high`` at
        most, and when the last of them has been written or read by others."""
        until, stretches = 0.0, self._texts.get(text, ())
        while low < high:
            for stretch in stretches:
                if stretch.low <= low < stretch.high:
                    low = stretch.high
                    until = max(until, stretch.until)
                    break
            else:
                break
        return min(low, high), until

    def missing(self, text: int, low: int, high: int) -> list[tuple[int, int, int]]:
        """The blocks of ``text`` from ``low`` to ``high`` that are not here: (text, from, to)."""
        gaps = []
        for stretch in sorted(self._texts.get(text, ()), key=_low):
            if stretch.high > low and stretch.low < high:
                if stretch.low > low:
                    gaps.append((text, low, stretch.low))
                low = stretch.high
        if low < high:
            gaps.append((text, low, high))
        return gaps

    def keep(self, gaps: Iterable[tuple[int, int, int]], now: float, until: float) -> int:
        """Take in blocks that are missing, which are written ``until`` then, as far as there is
        room; returns how many."""
        taken = 0
        for text, low, high in gaps:
            room = self.make_room(high - low, now)
            if room:
                stretch = Stretch(text, low, low + room, until)
                stretch.insert(self._end)
                self._texts.setdefault(text, []).append(stretch)
                self.kept += room
                taken += room
            if room < high - low:
                break
        return taken

    def make_room(self, blocks: int, now: float) -> int:
        """Evict until that many blocks are free, but none that is being written or read; returns
        how many of them are."""
        stretch = self._end.after
        while self.free < blocks and stretch is not self._end:
            following = stretch.after
            if stretch.until <= now:
                gone = min(blocks - self.free, stretch.high - stretch.low)
                stretch.high -= gone
                self.kept -= gone
                self.evicted += gone
                if stretch.low == stretch.high:
                    self._drop(stretch)
            stretch = following
        return min(self.free, blocks)

    def use(self, text: int, low: int, high: int, until: float = 0.0) -> None:
        """Blocks ``low`` to ``high`` of ``text`` are used, and read ``until`` then: of those that
        are here, the first become the most recent."""
        for found in sorted(self._texts.get(text, ()), key=_low, reverse=True):
            if found.high <= low or found.low >= high:
                continue
            stretch = self._split(found, high) if found.high > high else found
            if stretch.low < low:
                self._split(stretch, low)
            stretch.until = max(stretch.until, until)
            stretch.remove()
            stretch.insert(self._end)

    def _split(self, stretch: Stretch, at: int) -> Stretch:
        """Split off the blocks of ``stretch`` before ``at``; returns the stretch of those."""
        front = Stretch(stretch.text, stretch.low, at, stretch.until)
        stretch.low = at
        front.insert(stretch.after)
        self._texts[stretch.text].append(front)
        return front

    def _drop(self, stretch: Stretch) -> None:
        stretch.remove()
        stretches = self._texts[stretch.text]
        stretches.remove(stretch)
        if not stretches:
            del self._texts[stretch.text]

    # -- preempted requests ------------------------------------------------------------------

    def reserve(self, blocks: int, now: float) -> bool:
        """Set ``blocks`` aside for a preempted request; False if there is no room."""
        if self.make_room(blocks, now) < blocks:
            return False
        self.swapped += blocks
        return True

    def release(self, blocks: int) -> None:
        """Give back what ``reserve`` set aside."""
        self.swapped -= blocks

    def check_integrity(self, swapped: int) -> None:
        """Every block holds one thing; that many are ``swapped`` out."""
        stretches = [stretch for found in self._texts.values() for stretch in found]
        assert all(stretch.low < stretch.high for stretch in stretches), stretches
        for text, found in self._texts.items():
            ordered = sorted(found, key=_low)
            assert all(a.high <= b.low for a, b in pairwise(ordered)), ordered
            assert all(stretch.text == text for stretch in found)
        queue, stretch = [], self._end.after
        while stretch is not self._end:
            queue.append(stretch)
            stretch = stretch.after
        assert len(set(queue)) == len(queue) == len(stretches)
        assert set(queue) == set(stretches)
        assert self.kept == sum(stretch.high - stretch.low for stretch in stretches)
        assert self.swapped == swapped, (self.swapped, swapped)
        assert self.free >= 0, self.free


def _low(stretch: Stretch) -> int:
    return stretch.low
