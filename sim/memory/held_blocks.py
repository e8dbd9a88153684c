"""Keeps which blocks a request holds of each group of layers, and which have known content."""

from __future__ import annotations

from collections import deque

from sim.memory.run_pool import Run, RunPool
from sim.request import Request
from sim.specs.window import NEVER


class HeldBlocks:
    """A request's blocks in one group of layers: ``first`` to ``length`` (exclusive).

    Those of ``runs``, each with its first block that is held, have known content, the others not.
    All before block ``entered`` are in the cache, or were.
    """

    __slots__ = ("entered", "first", "length", "runs")

    def __init__(self, first: int, length: int) -> None:
        self.first = first
        self.length = self.entered = length
        self.runs: deque[tuple[Run, int]] = deque()

    def held(self) -> list[Run]:
        """All runs, the last blocks first."""
        return [each for run, low in reversed(self.runs) for each in run.down_to(low)]

    def name(self, pool: RunPool, key: int, low: int, high: int) -> None:
        """The content of blocks ``low`` to ``high`` (exclusive) is known as ``key`` from now on."""
        if self.runs:
            run, _ = self.runs[-1]
            if run.high == low and run.text == key and pool.extend(run, high):
                return
        self.runs.append((pool.enter(key, low, high), low))

    def give_back_up_to(self, pool: RunPool, first: int) -> None:
        """Blocks before ``first`` are no longer held, the last of them free first."""
        runs = self.runs
        if not runs:
            pool.blank += first - self.first
            self.first = first
            return
        run, low = runs[0]
        if run.low == low < first < run.high and run.holders == 1:
            pool.shed(run, first)
            runs[0] = run, first
            pool.blank += low - self.first
            self.first = first
            return
        gone: list[Run] = []
        while runs and (runs[0][1] < first):
            run, low = runs.popleft()
            if run.low > low:  # others split it since
                runs.extendleft([(part, part.low) for part in run.down_to(low)])
            elif run.high <= first:
                gone.append(run)
            else:
                front = pool.split(run, first)
                if run.holders == 1:
                    front.above = run.above = None
                gone.append(front)
                runs.appendleft((run, first))
        known = pool.release([(run, run.low) for run in reversed(gone)])
        pool.blank += first - self.first - known
        self.first = first

    def release(self, pool: RunPool) -> None:
        """No block is held any longer, the last of them free first."""
        known = pool.release(reversed(self.runs))
        pool.blank += self.length - self.first - known


class Holding:
    """The memory of a ``request``: ``tokens`` (of a decoding one less all growth), and its share of
    each group. All before token ``entered`` have been entered in the cache. Requests that begin
    alike want what is kept at the ends of prompts up to ``reach`` tokens, too. Of what lies
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
