"""Counts the blocks of a KV cache, and keeps those with known content until they are needed.

As vLLM's pool (0.32, ``v1/core/block_pool.py``): a block whose content is known stays findable
after it is freed, until it is taken for something else. Blocks without known content are taken
first, then the others by time of release. Blocks without known content are alike, so only their
number is kept; the others are kept as *runs*, so that a prompt costs a step and not one a block.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import attrgetter


class Run:
    """Blocks ``low`` to ``high`` (exclusive) of a ``text``, held by ``holders`` requests.

    A run that no request holds stands in a queue of those that can be evicted, between ``before``
    and ``after``. ``above`` is the run that was split off its front; its holders hold this one too.
    """

    __slots__ = ("above", "after", "age", "before", "high", "holders", "low", "text")

    before: Run
    after: Run
    age: int

    def __init__(self, text: int, low: int, high: int, holders: int) -> None:
        self.text = text
        self.low = low
        self.high = high
        self.holders = holders
        self.above: Run | None = None

    def __repr__(self) -> str:
        return f"Run({self.text}: {self.low} to {self.high}, held {self.holders} times)"

    def insert(self, place: Run) -> None:
        """Stand behind ``place`` in the queue."""
        self.before, self.after = place, place.after
        place.after.before = self
        place.after = self

    def remove(self) -> None:
        """Leave the queue."""
        self.before.after = self.after
        self.after.before = self.before
        del self.before, self.after

    def down_to(self, low: int) -> Iterator[Run]:
        """The runs of a holder of this run and of all that was split off it from ``low`` on: the
        last blocks first."""
        run: Run | None = self
        while run is not None:
            above = run.above if run.low > low else None
            yield run
            run = above


Piece = tuple[Run, int, int]
"""A run, and the blocks of it that are meant: from the first to before the second number."""

LOW = attrgetter("low")


class CachedRuns:
    """The runs whose content is known; ``idle`` of their blocks are held by no request.

    ``shared`` counts how often blocks are held beyond the first time, ``several`` the blocks that
    more than one request holds.
    """

    __slots__ = ("_ages", "_cached", "_further", "_queue", "idle", "several", "shared")

    def __init__(self) -> None:
        self.idle = self.shared = self.several = 0
        # of each text a layer of runs, in order and without overlaps; and the further layers of
        # those of which some blocks are there more than once
        self._cached: dict[int, list[Run]] = {}
        self._further: dict[int, list[list[Run]]] = {}
        self._ages = 0
        self._queue = end = Run(0, 0, 0, 0)
        end.before = end.after = end

    # -- what is known -----------------------------------------------------------------------

    def _layers(self, text: int) -> list[list[Run]]:
        return [self._cached[text], *self._further.get(text, ())] if text in self._cached else []

    def find(self, text: int, block: int) -> Piece | None:
        """The oldest copy of that block, and between which blocks it surely is the oldest."""
        layer = self._cached.get(text)
        if layer is None:
            return None
        further = self._further.get(text)
        if further is None:
            run = layer[bisect_right(layer, block, key=LOW) - 1]  # the last if there is none
            return (run, run.low, run.high) if run.low <= block < run.high else None
        best, low, high = None, 0, 1 << 60
        for runs in (layer, *further):
            place = bisect_right(runs, block, key=LOW)
            if place < len(runs) and (limit := runs[place].low) < high:
                high = limit
            if not place:
                continue
            run = runs[place - 1]
            first, end = run.low, run.high
            if end <= block:
                if end > low:
                    low = end
                continue
            if first > low:
                low = first
            if end < high:
                high = end
            if best is None or run.age < best.age:
                best = run
        return None if best is None else (best, low, high)

    def chain(self, text: int, at: int, stop: int, found: list[Piece]) -> tuple[int, int]:
        """Append to ``found`` the oldest copies of blocks ``at`` to ``stop`` (exclusive), up to the
        first that is not known; returns that one, and how many blocks of them are idle."""
        layer, idle = self._cached.get(text), 0
        if layer is None:
            return at, 0
        if text not in self._further:
            run = layer[0]
            if run.low <= at and stop <= run.high:
                found.append((run, at, stop))
                return stop, 0 if run.holders else stop - at
            place = 0 if run.low <= at < run.high else bisect_right(layer, at, key=LOW) - 1
            for run in layer[place:] if place > 0 else layer:
                if not run.low <= at < run.high:
                    break
                high = run.high if run.high < stop else stop
                found.append((run, at, high))
                if not run.holders:
                    idle += high - at
                at = high
                if at == stop:
                    break
            return at, idle
        while at < stop and (piece := self.find(text, at)) is not None:
            run, _, high = piece
            high = min(high, stop)
            found.append((run, at, high))
            if not run.holders:
                idle += high - at
            at = high
        return at, idle

    def below(self, text: int, block: int) -> int:
        """The last known block of ``text`` before ``block``, which is not known; -1 for none."""
        found = -1
        for layer in self._layers(text):
            place = bisect_left(layer, block, key=LOW)
            if place:
                found = max(found, layer[place - 1].high - 1)
        return found

    def enter(self, text: int, low: int, high: int) -> Run:
        """The content of taken blocks is known from now on."""
        run = Run(text, low, high, 1)
        self._ages = run.age = self._ages + 1
        layer = self._cached.get(text)
        if layer is None:
            self._cached[text] = [run]
            return run
        if layer[-1].high <= low:
            layer.append(run)
            return run
        for layer in self._layers(text):
            place = bisect_right(layer, low, key=LOW)
            if (not place or layer[place - 1].high <= low) and (
                place == len(layer) or layer[place].low >= high
            ):
                layer.insert(place, run)
                return run
        self._further.setdefault(text, []).append([run])
        return run

    def _place(self, run: Run) -> tuple[list[Run], int]:
        """The layer that ``run`` is in, and its place there."""
        layer = self._cached[run.text]
        place = 0 if layer[0] is run else bisect_left(layer, run.low, key=LOW)
        if place < len(layer) and layer[place] is run:
            return layer, place
        for layer in self._further[run.text]:
            place = bisect_left(layer, run.low, key=LOW)
            if place < len(layer) and layer[place] is run:
                break
        return layer, place

    def drop(self, run: Run) -> None:
        """The content of ``run`` is known no longer."""
        text = run.text
        layer = self._cached[text]
        if layer[0] is run and (len(layer) > 1 or text not in self._further):  # mostly
            del layer[0]
            if not layer:
                del self._cached[text]
            return
        layer, place = self._place(run)
        del layer[place]
        if layer:
            return
        further = self._further[text]
        if layer is self._cached[run.text]:
            self._cached[run.text] = further.pop(0)
        else:
            further.remove(layer)
        if not further:
            del self._further[run.text]

    def split(self, run: Run, at: int) -> Run:
        """Split off the blocks of ``run`` before ``at``; returns the run of those."""
        front = Run(run.text, run.low, at, run.holders)
        front.age = run.age
        front.above, run.above = run.above, front
        layer, place = self._place(run)
        layer.insert(place, front)
        run.low = at
        if not run.holders:
            front.insert(run)  # the last blocks go first
        return front

    # -- who holds it ------------------------------------------------------------------------

    def hold(self, piece: Piece) -> Run:
        """One more request holds ``piece``; returns the run that it now is."""
        run, low, high = piece
        if run.low < low:
            self.split(run, low)
        if run.high > high:
            run = self.split(run, high)
        blocks = high - low
        if run.holders:
            self.shared += blocks
            if run.holders == 1:
                self.several += blocks
        else:
            run.remove()
            self.idle -= blocks
        run.holders += 1
        return run

    def release(self, holds: Iterable[tuple[Run, int]]) -> int:
        """One request less holds these runs, each from a first block on with what was split off it
        since; they are free in this order, of a run the last blocks first. Returns their blocks."""
        released, idle, end = 0, self.idle, self._queue
        for last, low in holds:
            run: Run | None = last
            while run is not None:
                above = run.above if run.low > low else None
                blocks = run.high - run.low
                released += blocks
                run.holders = holders = run.holders - 1
                if holders:
                    self.shared -= blocks
                    if holders == 1:
                        self.several -= blocks
                else:
                    run.insert(end.before)
                    idle += blocks
                run = above
        self.idle = idle
        return released

    def evict(self, blocks: int) -> None:
        """Forget ``blocks`` that no request holds, in the order of freeing."""
        self.idle -= blocks
        queue, cached = self._queue, self._cached
        run = queue.after
        while blocks:
            size = run.high - run.low
            if size > blocks:
                run.high -= blocks
                break
            blocks -= size
            layer = cached[run.text]
            if layer[0] is run and len(layer) > 1:  # mostly
                del layer[0]
            else:
                self.drop(run)
            run = run.after
            run.before = queue  # no cycle keeps what is forgotten alive
        queue.after = run

    def check_integrity(self, held: dict[Run, int]) -> None:
        """Raise AssertionError unless runs are ``held`` that many times, and all others idle."""
        layers = [layer for text in self._cached for layer in self._layers(text)]
        cached = [run for layer in layers for run in layer]
        assert all(run.low < run.high for run in cached), cached
        assert all(layers)
        assert self._further.keys() <= self._cached.keys()
        assert all(a.high <= b.low for layer in layers for a, b in pairwise(layer))
        assert {run: run.holders for run in cached if run.holders} == held
        queue, run = [], self._queue.after
        while run is not self._queue:
            queue.append(run)
            run = run.after
        assert len(set(queue)) == len(queue)
        assert set(queue) == {run for run in cached if not run.holders}
        assert self.idle == sum(run.high - run.low for run in queue)
        counts = [(number, run.high - run.low) for run, number in held.items()]
        assert self.shared == sum((number - 1) * blocks for number, blocks in counts)
        assert self.several == sum(blocks for number, blocks in counts if number > 1)


class RunPool(CachedRuns):
    """``blank`` free blocks without content, and the ``idle`` ones.

    >>> pool = RunPool(4)
    >>> pool.take(3)
    >>> run = pool.enter(7, 0, 3)
    >>> pool.release([(run, 0)])
    3
    >>> pool.take(2); pool.find(7, 0), pool.find(7, 2)
    ((Run(7: 0 to 2, held 0 times), 0, 2), None)
    """

    __slots__ = ("blank",)

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blank = blocks

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return self.blank + self.idle

    def take(self, blocks: int) -> None:
        """Take ``blocks`` that are free; what was in them is lost."""
        self.blank -= blocks
        lack = -self.blank
        if lack <= 0:
            return
        self.blank = 0
        self.evict(lack)

    def extend(self, run: Run, high: int) -> bool:
        """The content of the taken blocks behind ``run``, up to ``high``, is known from now on;
        False where it has to be a run of its own."""
        if run.holders > 1 or run.text in self._further or self._cached[run.text][-1] is not run:
            return False
        run.high = high
        return True

    def shed(self, run: Run, at: int) -> None:
        """The only one that holds ``run`` gives back its blocks before ``at``: ``split`` and
        ``release`` in one."""
        low, layer, end = run.low, self._cached[run.text], self._queue
        front = Run(run.text, low, at, 0)
        front.age = run.age
        run.above = None
        place = -1  # mostly the text goes on with this run
        if layer[-1] is not run:
            layer, place = self._place(run)
        layer.insert(place, front)
        run.low = at
        before = front.before = end.before
        front.after = end
        before.after = end.before = front
        self.idle += at - low
