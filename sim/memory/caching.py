"""Keeps what finished requests computed: paged blocks with vLLM's prefix cache.

A full block is found again by all the tokens up to its end. The simulator has no tokens; it has
``Request.prefix``: the texts with which a prompt begins, after which comes the request's own. Two
blocks are the same if they are the same block of the same text, counted from the start of the
sequence, so a block is known by (text, number).

As in vLLM (``v1/core/block_pool.py`` of 0.32):

- A request looks blocks up when it holds nothing: when it is admitted, and again after a
  preemption. It finds the longest chain of full blocks that leaves it a token to compute.
- A block counts as cached as soon as it is full at allocation, before the iteration has run.
- A block that was computed twice is there twice; the older copy is the one that is found.
- Freed blocks stay cached until they are needed. Those without a full block's content go first,
  then the others by time of release, of one request the last block first.

Blocks are not kept one by one but as *runs*: consecutive blocks of one text that were computed by
one request and have the same holders. Admission and release cost a step for each run, a decode
iteration nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from sim.memory.paged import PagedAllocator
from sim.memory.run_pool import FoundRuns, Run, take_oldest
from sim.request import Request


class CachingAllocator(PagedAllocator):
    """``PagedAllocator`` with a prefix cache: blocks held by no request are free, and still cached.

    >>> kv = CachingAllocator(num_blocks=4, block_size=16)
    >>> first, second = (Request(i, 0.0, 40, 9, prefix=((7, 32),)) for i in range(2))
    >>> kv.allocate(first, 40)             # two blocks that others may share, and one of its own
    True
    >>> kv.cached(second), kv.allocate(second, 8), kv.free_blocks
    (32, True, 0)
    """

    __slots__ = (
        "_cached",
        "_found",
        "_gone",
        "_holders",
        "_holds",
        "_idle",
        "_queue",
        "_registered",
        "grown_in",
        "note",
    )

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._cached: dict[int, list[Run]] = {}  # of each text, the oldest copy first
        self._gone: set[int] = set()  # texts that were cached, and have left altogether
        # who keeps what ``_missed`` says of each request that is admitted for the first time
        self.note: Callable[[Request, int, int], None] | None = None
        self._holders: dict[int, Request] = {}  # by the name of their own text
        # of each holder: cached runs by place, and the first of their blocks that it holds
        self._holds: dict[Request, list[tuple[Run, int]]] = {}
        self._registered: dict[Request, int] = {}  # blocks of a holder that are in the cache
        self._idle = 0  # cached blocks that no request holds
        self._queue = end = Run(0, 0, 0, 0)
        end.before = end.after = end
        self._found: tuple[Request, FoundRuns] | None = None  # the latest answer, if it still holds
        self.grown_in: Callable[[Request], int] | None = None
        """How many tokens a decoding request has grown by, where not all grow together (``Lanes``);
        None: all by ``_grown``."""
        self.shared_tokens = 0
        self.several_tokens = 0
        self.gives_back = False  # whether the latest answer may change as its owners grow

    computes_last_found: bool = False
    """Whether a request computes the last block that it finds anew."""

    @classmethod
    def of(cls, blocks: int, block_size: int, longest: int) -> Self:
        """The blocks, for sequences of any length."""
        return cls(blocks, block_size)

    def cached(self, request: Request) -> int:
        """Tokens of ``request``, which holds nothing, in the blocks that it would find."""
        return self._find(request).blocks * self.block_size

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether there is room for ``tokens`` on top of what is cached. Blocks that it finds and
        no request holds are no longer free then."""
        found = self._find(request)
        blocks = -(-tokens // self.block_size) + found.idle
        return blocks + int(spare * self.num_blocks) <= self.free_blocks

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more need; a request that has nothing also gets what is
        cached of it."""
        size = self.block_size
        held = self._held.get(request)
        if held is None:
            found = self._find(request)
            blocks = -(-tokens // size)
            if (found.idle + blocks) * size > self.capacity - self.reserved:
                return False
            if self.note is not None and not request.preemptions:
                self.note(request, *self._missed(request, found.blocks + found.left))
            held = self._take(request, found)
            self.reserved += blocks * size
            self._held[request] = held + tokens
        else:
            reserved = self.reserved + (-(-(held + tokens) // size) + (-held // size)) * size
            if reserved > self.capacity:
                return False
            self.reserved = reserved
            self._held[request] = held + tokens
        self._found = None
        full = (held + tokens) // size
        if full > self._registered[request]:
            self._register(request, full)
        return True

    def give_back(self, request: Request, tokens: int) -> None:
        """Close the blocks that the last ``tokens`` of ``request`` opened, and forget them."""
        size = self.block_size
        held = self._held[request] - tokens
        self._found = None
        self._forget(request, held // size)
        self.reserved -= (-(-(held + tokens) // size) - -(-held // size)) * size
        self._held[request] = held

    def free(self, request: Request) -> None:
        """Take back what ``request`` has. What no other holds is free, and stays cached until it is
        needed."""
        size = self.block_size
        if self.reserved + self._idle * size > self.capacity:
            self._settle()
        held = self._held[request]
        full = self._known(request, held) // size
        self._register(request, full, own=True)
        del self._held[request], self._registered[request], self._holders[~request.id]
        self.reserved -= (-(-held // size) - full) * size
        self._found = None
        end, idle = self._queue, 0
        for last, low in reversed(self._holds.pop(request)):
            for run in last.down_to(low):
                run.holders -= 1
                blocks = run.high - run.low
                if run.holders:
                    self.shared_tokens -= blocks * size
                    if run.holders == 1:
                        self.several_tokens -= blocks * size
                else:
                    run.insert(end.before)
                    idle += blocks
        self._idle += idle
        self.reserved -= idle * size

    def _known(self, request: Request, held: int) -> int:
        """Of the tokens that ``request`` holds, which gives them back, those that may be cached."""
        return held

    def _lack(self) -> None:
        """The sequences that come first have used up what was free."""
        self._evict(self._idle)

    @property
    def idle_tokens(self) -> int:
        """Tokens of the cached blocks that no request holds, without those taken since the cache
        was last asked."""
        return min(self._idle * self.block_size, self.capacity - self.reserved)

    # -- what is cached ----------------------------------------------------------------------

    def _find(self, request: Request) -> FoundRuns:
        """The longest chain of cached blocks that leaves ``request`` a token to compute."""
        size, cached = self.block_size, self._cached
        if self.reserved + self._idle * size > self.capacity:
            self._settle()
        if self._found is not None and self._found[0] is request:
            return self._found[1]
        most = (request.prompt_tokens + request.generated - 1) // size
        found = FoundRuns()
        self.gives_back = False
        at = 0
        texts = request.prefix
        if request.generated or request.preemptions:  # else no request has had any of its own text
            texts = (*texts, (~request.id, request.longest_sequence()))
        for text, end in texts:
            stop = end // size
            if stop > most:
                stop = most
            if stop <= at:
                continue
            if text < 0 and self._enter_owner(text, request):
                self.gives_back = True
            while at < stop and (run := _copy(cached.get(text, ()), at)) is not None:
                high = min(run.high, stop)
                found.runs.append((run, at, high))
                if not run.holders:
                    found.idle += high - at
                at = high
            if at < stop:
                break
        found.blocks = at
        if at and self.computes_last_found:
            found.leave_last()
        self._found = None if self.gives_back else (request, found)
        return found

    def _missed(self, request: Request, first: int) -> tuple[int, int]:
        """Of the blocks of ``request`` from the one numbered ``first`` on: tokens of those that
        were in the cache and have left, and of those that are new to it. What follows the texts
        that others may share is in neither."""
        at = known = first
        for text, end in request.prefix:
            stop = end // self.block_size
            if stop > at:
                if at == known and (text in self._cached or text in self._gone):
                    known = stop
                at = stop
        return (known - first) * self.block_size, (at - known) * self.block_size

    def until_more(self, iterations: int) -> int:
        """As of every cache; where the one that waits goes on with the text of one that decodes,
        any iteration may complete a block that it finds."""
        return 0 if self.gives_back else iterations

    def _enter_owner(self, text: int, request: Request) -> bool:
        """Enter what the one whose own text that is has of it by now; False if it holds nothing, or
        is ``request``."""
        owner = self._holders.get(text)
        if owner is None or owner is request:
            return False
        grown = self._grown if self.grown_in is None else self.grown_in(owner)
        tokens = self._held[owner] + grown * (owner.joined >= 0)
        self._register(owner, tokens // self.block_size, own=True)
        return True

    def _take(self, request: Request, found: FoundRuns) -> int:
        """Let ``request`` hold what it found; returns how many tokens that is."""
        holds = self._holds[request] = []
        for run, low, high in found.runs:
            taken = run
            if taken.low < low:
                self._split(taken, low)
            if taken.high > high:
                taken = self._split(taken, high)
            blocks = taken.high - taken.low
            if taken.holders:
                self.shared_tokens += blocks * self.block_size
                if taken.holders == 1:
                    self.several_tokens += blocks * self.block_size
            else:
                taken.remove()
                self._idle -= blocks
                self.reserved += blocks * self.block_size
            taken.holders += 1
            holds.append((taken, low))
        self._registered[request] = found.blocks
        self._holders[~request.id] = request
        return found.blocks * self.block_size

    def _split(self, run: Run, at: int) -> Run:
        """Split off the blocks of ``run`` before ``at``; returns the run of those."""
        front = Run(run.text, run.low, at, run.holders)
        front.above, run.above = run.above, front
        run.low = at
        copies = self._cached[run.text]
        copies.insert(copies.index(run), front)
        if not run.holders:
            front.insert(run)  # of one request, the last blocks go first
        return front

    def _register(self, request: Request, full: int, *, own: bool = False) -> None:
        """Enter the first ``full`` blocks of ``request`` in the cache, those of its own text only
        on demand: no other request can look for them before it is known to have ended."""
        at = self._registered[request]
        if full <= at:
            return
        size, holds = self.block_size, self._holds[request]
        for text, end in request.prefix:
            stop = end // size
            if stop > full:
                stop = full
            if stop > at:
                if text < 0:
                    self._enter_owner(text, request)
                self._enter(holds, Run(text, at, stop, 1))
                at = stop
        if own and full > at:
            self._enter(holds, Run(~request.id, at, full, 1))
            at = full
        self._registered[request] = at

    def _enter(self, holds: list[tuple[Run, int]], run: Run) -> None:
        self._cached.setdefault(run.text, []).append(run)
        holds.append((run, run.low))

    def _forget(self, request: Request, full: int) -> None:
        """Take blocks of ``request`` from the first ``full`` on out of the cache again; they were
        entered a moment ago, and no request has found them."""
        holds = self._holds[request]
        while holds and holds[-1][0].high > full:
            run, low = holds[-1]
            if low >= full:
                self._drop(run)
                holds.pop()
            else:
                run.high = full
        self._registered[request] = min(self._registered[request], full)

    def _drop(self, run: Run) -> None:
        copies = self._cached[run.text]
        copies.remove(run)
        if not copies:
            del self._cached[run.text]
            self._gone.add(run.text)

    # -- eviction ----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Evict as many blocks as were taken since the cache was last asked: until then it does not
        matter which ones."""
        blocks = self.reserved // self.block_size + self._idle - self.num_blocks
        if blocks > 0:
            self._evict(blocks)

    def _evict(self, blocks: int) -> None:
        """Take ``blocks`` that no request holds out of the cache, in the order of freeing."""
        self._idle -= blocks
        self._found = None
        take_oldest(self._queue, blocks, self._drop)

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or held, once; the runs and their holders match."""
        self._settle()
        size = self.block_size
        held = {r: tokens - self._grown * decoding for r, (tokens, decoding) in owners.items()}
        assert self._held == held, (self._held, held)
        counted: dict[Run, int] = {}
        open_blocks = 0
        for request, (tokens, _) in owners.items():
            places = 0
            for run in [r for last, low in self._holds[request] for r in last.down_to(low)]:
                counted[run] = counted.get(run, 0) + 1
                places += run.high - run.low
            assert places == self._registered[request] <= tokens // size, (request, places, tokens)
            open_blocks += -(-tokens // size) - places
        cached = [run for copies in self._cached.values() for run in copies]
        assert all(run.low < run.high for run in cached), cached
        assert {run: run.holders for run in cached if run.holders} == counted
        used = open_blocks + sum(run.high - run.low for run in counted)
        assert self.reserved == used * size, (self.reserved, used)
        twice = sum((run.holders - 1) * (run.high - run.low) for run in counted)
        assert self.shared_tokens == twice * size, (self.shared_tokens, twice)
        several = sum(run.high - run.low for run in counted if run.holders > 1)
        assert self.several_tokens == several * size, (self.several_tokens, several)
        queue, run = [], self._queue.after
        while run is not self._queue:
            queue.append(run)
            run = run.after
        assert set(queue) == {run for run in cached if not run.holders}
        assert len(set(queue)) == len(queue)
        assert self._idle == sum(run.high - run.low for run in queue)
        assert used + self._idle <= self.num_blocks, (used, self._idle)
        self._check_ring(owners)


def _copy(copies: list[Run] | tuple[()], block: int) -> Run | None:
    """The oldest copy of that block, or None."""
    for run in copies:
        if run.low <= block < run.high:
            return run
    return None
