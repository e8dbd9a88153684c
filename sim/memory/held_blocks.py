"""Keeps which blocks a request holds of each group of layers, and which have known content."""

from __future__ import annotations

from collections.abc import Iterator

from sim.memory.run_pool import Run, RunPool
from sim.request import Request
from sim.specs.window import NEVER


class HeldBlocks:
    """A request's blocks in the groups of one kind, ``first`` to ``length`` (exclusive) in each.

    Those of ``runs``, of each group the runs each with its first block that is held, have known
    content, the others not. All before block ``entered`` are in the cache, or were.
    """

    __slots__ = ("entered", "first", "length", "runs")

    def __init__(self, number: int, first: int, length: int) -> None:
        self.first = first
        self.length = self.entered = length
        self.runs: list[list[tuple[Run, int]]] = [[] for _ in range(number)]

    def held(self) -> Iterator[list[Run]]:
        """All runs of each group, the last blocks first."""
        for runs in self.runs:
            yield [each for run, low in reversed(runs) for each in run.down_to(low)]

    def name(self, pool: RunPool, key: int, low: int, high: int) -> None:
        """The content of blocks ``low`` to ``high`` (exclusive) is known from now on, in the first
        group as ``key``, and in each other one as the number behind."""
        for runs in self.runs:
            run = runs[-1][0] if runs else None
            if run is None or not (run.high == low and run.text == key and pool.extend(run, high)):
                runs.append((pool.enter(key, low, high), low))
            key += 1

    def give_back_up_to(self, pool: RunPool, first: int) -> None:
        """Blocks before ``first`` are no longer held, of each group the last of them free first."""
        blank = (first - self.first) * len(self.runs)
        for runs in self.runs:
            if not runs:
                continue
            run, low = runs[0]
            if run.low == low < first < run.high and run.holders == 1:
                pool.shed(run, first)
                runs[0] = run, first
                blank -= first - low
            elif low < first:
                blank -= pool.release(_cut_off(pool, runs, first))
        pool.blank += blank
        self.first = first

    def release(self, pool: RunPool) -> None:
        """No block is held any longer, of each group the last of them free first."""
        blank = (self.length - self.first) * len(self.runs)
        for runs in self.runs:
            if runs:
                blank -= pool.release(reversed(runs))
        pool.blank += blank


def _cut_off(pool: RunPool, runs: list[tuple[Run, int]], first: int) -> list[tuple[Run, int]]:
    """Take the blocks before ``first`` out of ``runs``; returns their runs, the last first."""
    gone: list[tuple[Run, int]] = []
    while runs and runs[0][1] < first:
        run, low = runs.pop(0)
        if run.low > low:  # others split it since
            runs[:0] = [(part, part.low) for part in run.down_to(low)][::-1]
        elif run.high <= first:
            gone.insert(0, (run, low))
        else:
            front = pool.split(run, first)
            if run.holders == 1:
                front.above = run.above = None
            gone.insert(0, (front, low))
            runs.insert(0, (run, first))
    return gone


class Holding:
    """The memory of a ``request``: ``tokens`` (of a decoding one less all growth), and its share of
    each kind of group. All before token ``entered`` have been entered in the cache. Requests that
    begin alike want what is kept at the ends of prompts up to ``reach`` tokens, too. Of what lies
    behind windows, the cache keeps nothing from token ``kept`` on."""

    __slots__ = ("entered", "kept", "number", "reach", "request", "shares", "tokens", "turn")

    def __init__(
        self, request: Request, number: int, tokens: int, shares: list[HeldBlocks], reach: int
    ) -> None:
        self.request = request
        self.number = number  # in order of admission
        self.tokens = tokens
        self.shares = shares
        self.reach = reach
        self.entered = -1
        self.kept = NEVER
        self.turn = -1  # the iteration of its entry among the turns
