"""Counts the blocks of a KV cache, and keeps those with known content until they are needed.

As vLLM's pool (0.32, ``v1/core/block_pool.py``): a block whose content is known stays findable
after it is freed, until it is taken for something else. Blocks without known content are taken
first, then the others by time of release. Blocks without known content are alike, so only their
number is kept; the others are kept as *runs*, so that a prompt costs a step and not one a block.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
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

    def down_to(self, low: int) -> Iterator[Run]:
        """What someone holds who holds this run and all that was split off it from ``low`` on: the
        last blocks first."""
        run: Run | None = self
        while run is not None:
            above = run.above if run.low > low else None
            yield run
            run = above


class FoundRuns:
    """What a request finds: for each of ``runs``, blocks from ``low`` up to ``high``; ``blocks`` in
    all, of which no request holds ``idle``, and ``left`` more that it found and does not use."""

    __slots__ = ("blocks", "idle", "left", "runs")

    def __init__(self) -> None:
        self.runs: list[tuple[Run, int, int]] = []
        self.blocks = 0
        self.idle = 0
        self.left = 0

    def leave_last(self) -> None:
        """Do not use the last block."""
        run, low, high = self.runs.pop()
        if low < high - 1:
            self.runs.append((run, low, high - 1))
        self.idle -= not run.holders
        self.blocks -= 1
        self.left += 1


def take_oldest(queue: Run, blocks: int, drop: Callable[[Run], None]) -> None:
    """Take ``blocks`` from the runs in ``queue``, in the order of freeing. What is used up leaves
    the queue, and ``drop`` forgets it."""
    while blocks:
        run = queue.after
        size = run.high - run.low
        if size > blocks:
            run.high -= blocks
            return
        blocks -= size
        run.remove()
        drop(run)


Piece = tuple[Run, int, int]
"""A run, and the blocks of it that are meant: from the first to before the second number."""

LOW = attrgetter("low")


class RunPool:
    """``blank`` free blocks without content, and ``idle`` ones with content that no request holds.

    ``shared`` counts how often blocks are held beyond the first time, ``several`` the blocks that
    more than one request holds.

    >>> pool = RunPool(4)
    >>> pool.take(3)
    >>> run = pool.enter(7, 0, 3)
    >>> pool.release(run)
    3
    >>> pool.take(2); pool.find(7, 0), pool.find(7, 2)
    ((Run(7: 0 to 2, held 0 times), 0, 2), None)
    """

    __slots__ = ("_ages", "_cached", "_queue", "blank", "idle", "several", "shared")

    def __init__(self, blocks: int) -> None:
        self.blank = blocks
        self.idle = self.shared = self.several = 0
        # of each text in layers, in each of which runs are in order and do not overlap
        self._cached: dict[int, list[list[Run]]] = {}
        self._ages = 0
        self._queue = end = Run(0, 0, 0, 0)
        end.before = end.after = end

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return self.blank + self.idle

    # -- what is known -----------------------------------------------------------------------

    def find(self, text: int, block: int) -> Piece | None:
        """The oldest copy of that block, and between which blocks it surely is the oldest."""
        layers = self._cached.get(text)
        if layers is None:
            return None
        if len(layers) == 1:
            (layer,) = layers
            run = layer[bisect_right(layer, block, key=LOW) - 1]  # the last if there is none
            return (run, run.low, run.high) if run.low <= block < run.high else None
        best, low, high = None, 0, 1 << 60
        for layer in layers:
            place = bisect_right(layer, block, key=LOW)
            if place < len(layer):
                high = min(high, layer[place].low)
            if not place:
                continue
            run = layer[place - 1]
            if run.high <= block:
                low = max(low, run.high)
                continue
            low, high = max(low, run.low), min(high, run.high)
            if best is None or run.age < best.age:
                best = run
        return None if best is None else (best, low, high)

    def below(self, text: int, block: int) -> int:
        """The last known block of ``text`` before ``block``, which is not known; -1 for none."""
        found = -1
        for layer in self._cached.get(text, ()):
            place = bisect_left(layer, block, key=LOW)
            if place:
                found = max(found, layer[place - 1].high - 1)
        return found

    def enter(self, text: int, low: int, high: int) -> Run:
        """The content of taken blocks is known from now on."""
        run = Run(text, low, high, 1)
        self._ages += 1
        run.age = self._ages
        layers = self._cached.setdefault(text, [])
        for layer in layers:
            place = bisect_right(layer, low, key=LOW)
            if (not place or layer[place - 1].high <= low) and (
                place == len(layer) or layer[place].low >= high
            ):
                layer.insert(place, run)
                return run
        layers.append([run])
        return run

    def extend(self, run: Run, high: int) -> bool:
        """The content of the taken blocks behind ``run``, up to ``high``, is known from now on;
        False where it has to be a run of its own."""
        layers = self._cached[run.text]
        if run.holders > 1 or len(layers) > 1 or layers[0][-1] is not run:
            return False
        run.high = high
        return True

    def _drop(self, run: Run) -> None:
        layers = self._cached[run.text]
        for layer in layers:
            place = bisect_left(layer, run.low, key=LOW)
            if place < len(layer) and layer[place] is run:
                del layer[place]
                if not layer:
                    layers.remove(layer)
                    if not layers:
                        del self._cached[run.text]
                return

    def split(self, run: Run, at: int) -> Run:
        """Split off the blocks of ``run`` before ``at``; returns the run of those."""
        front = Run(run.text, run.low, at, run.holders)
        front.age = run.age
        front.above, run.above = run.above, front
        for layer in self._cached[run.text]:
            place = bisect_left(layer, run.low, key=LOW)
            if place < len(layer) and layer[place] is run:
                layer.insert(place, front)
                break
        run.low = at
        if not run.holders:
            front.insert(run)  # the last blocks go first
        return front

    def shed(self, run: Run, at: int) -> None:
        """The only one that holds ``run`` gives back its blocks before ``at``: ``split`` and
        ``release`` in one."""
        low = run.low
        front = Run(run.text, low, at, 0)
        front.age = run.age
        run.above = None
        for layer in self._cached[run.text]:
            place = len(layer) - 1  # mostly the text goes on with this run
            if layer[place] is not run:
                place = bisect_left(layer, low, key=LOW)
                if place == len(layer) or layer[place] is not run:
                    continue
            layer.insert(place, front)
            break
        run.low = at
        front.insert(self._queue.before)
        self.idle += at - low

    # -- who holds it ------------------------------------------------------------------------

    def take(self, blocks: int) -> None:
        """Take ``blocks`` that are free; what was in them is lost."""
        self.blank -= blocks
        lack = -self.blank
        if lack <= 0:
            return
        self.blank = 0
        self.idle -= lack
        take_oldest(self._queue, lack, self._drop)

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

    def release(self, run: Run) -> int:
        """One request less holds ``run``; returns its blocks."""
        blocks = run.high - run.low
        run.holders -= 1
        if run.holders:
            self.shared -= blocks
            if run.holders == 1:
                self.several -= blocks
        else:
            run.insert(self._queue.before)
            self.idle += blocks
        return blocks

    def check_integrity(self, held: dict[Run, int]) -> None:
        """Raise AssertionError unless runs are ``held`` that many times, and all others idle."""
        cached = [run for layers in self._cached.values() for layer in layers for run in layer]
        assert all(run.low < run.high for run in cached), cached
        for layers in self._cached.values():
            for layer in layers:
                assert layer, layers
                assert all(a.high <= b.low for a, b in pairwise(layer)), layer
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
