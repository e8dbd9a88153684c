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
from sim.memory.prefix_search import missed
from sim.memory.run_pool import CachedRuns, Piece, Run
from sim.request import Request


class FoundRuns:
    """A request's cached blocks: for each of ``runs``, those from ``low`` up to ``high``;
    ``blocks`` in all, ``idle`` ones held by no request, and ``left`` more that it found and does
    not use."""

    __slots__ = ("blocks", "idle", "left", "runs")

    def __init__(self) -> None:
        self.runs: list[Piece] = []
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
        "_found",
        "_holders",
        "_holds",
        "_registered",
        "_runs",
        "grown_in",
        "note",
    )

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._runs = CachedRuns()
        # who keeps what ``missed`` says of each request that is admitted for the first time
        self.note: Callable[[Request, int, int], None] | None = None
        self._holders: dict[int, Request] = {}  # by the name of their own text
        # of each holder: cached runs by place, and the first of their blocks that it holds
        self._holds: dict[Request, list[tuple[Run, int]]] = {}
        self._registered: dict[Request, int] = {}  # blocks of a holder that are in the cache
        self._texts: set[int] = set()  # all that were ever cached and that others may ask for
        self._found: tuple[Request, FoundRuns] | None = None  # the latest answer, if it still holds
        self.grown_in: Callable[[Request], int] | None = None
        """How many tokens a decoding request has grown by, where not all grow together (``Lanes``);
        None: all by ``_grown``."""
        self.unknown = 0  # tokens last computed of the request that is freed, if not known yet
        self.shared_tokens = 0
        self.several_tokens = 0
        self.gives_back = False  # whether the latest answer may change as its owners grow

    computes_last_found: bool = False
    """Whether a request computes the last block that it finds anew."""

    hashes_ahead: int = 0
    """Tokens after a block that it is known by, too: it is of the text that has all of them."""

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
                self.note(
                    request,
                    *missed(request, self._texts, (found.blocks + found.left) * size, size),
                )
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
        if request.prefix and full > self._registered[request]:
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
        if self.reserved + self._runs.idle * size > self.capacity:
            self._settle()
        held = self._held[request]
        full = max(self._known(request, held) // size, self._registered[request])
        self._register(request, full, own=True)
        del self._held[request], self._registered[request], self._holders[~request.id]
        self.reserved -= (-(-held // size) - full) * size
        self._found = None
        runs, idle = self._runs, self._runs.idle
        runs.release(reversed(self._holds.pop(request)))
        self.reserved -= (runs.idle - idle) * size
        self._count_shared()

    def _count_shared(self) -> None:
        self.shared_tokens = self._runs.shared * self.block_size
        self.several_tokens = self._runs.several * self.block_size

    def _known(self, request: Request, held: int) -> int:
        """The tokens that ``request`` gives back and that may be cached."""
        return held - self.unknown

    def _lack(self) -> None:
        """The sequences that come first have used up what was free."""
        self._evict(self._runs.idle)

    @property
    def idle_tokens(self) -> int:
        """Tokens of the cached blocks that no request holds, without those taken since the cache
        was last asked."""
        idle, free = self._runs.idle * self.block_size, self.capacity - self.reserved
        return idle if idle < free else free

    # -- what is cached ----------------------------------------------------------------------

    def _find(self, request: Request) -> FoundRuns:
        """The longest chain of cached blocks that leaves ``request`` a token to compute."""
        size, runs = self.block_size, self._runs
        if self.reserved + self._runs.idle * size > self.capacity:
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
            stop = (end - self.hashes_ahead) // size
            if stop > most:
                stop = most
            if stop <= at:
                continue
            if text < 0 and self._enter_owner(text, request):
                self.gives_back = True
            at, idle = runs.chain(text, at, stop, found.runs)
            found.idle += idle
            if at < stop:
                break
        found.blocks = at
        if at and self.computes_last_found:
            found.leave_last()
        self._found = None if self.gives_back else (request, found)
        return found

    def until_more(self, iterations: int) -> int:
        """Iterations until a waiting request may find more; 0 if it goes on with the text of a
        request that decodes, of which any iteration may complete a block."""
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
        holds: list[tuple[Run, int]] = []
        if found.runs:
            runs, idle = self._runs, self._runs.idle
            holds += [(runs.hold(piece), piece[1]) for piece in found.runs]
            self.reserved += (idle - runs.idle) * self.block_size
            self._count_shared()
        self._holds[request] = holds
        self._registered[request] = found.blocks
        self._holders[~request.id] = request
        return found.blocks * self.block_size

    def _register(self, request: Request, full: int, *, own: bool = False) -> None:
        """Enter the first ``full`` blocks of ``request`` in the cache, those of its own text only
        on demand: no other request can look for them before it is known to have ended."""
        at = self._registered[request]
        if full <= at:
            return
        size, holds, enter = self.block_size, self._holds[request], self._runs.enter
        for text, end in request.prefix:
            stop = min((end - self.hashes_ahead) // size, full)
            if stop > at:
                if text < 0:
                    self._enter_owner(text, request)
                holds.append((enter(text, at, stop), at))
                self._texts.add(text)
                at = stop
        if own and full > at:
            holds.append((enter(~request.id, at, full), at))
            if request.session >= 0:
                self._texts.add(~request.id)
            at = full
        self._registered[request] = at

    def _forget(self, request: Request, full: int) -> None:
        """Take blocks of ``request`` from the first ``full`` on out of the cache again; they were
        entered a moment ago, and no request has found them."""
        holds = self._holds[request]
        while holds and holds[-1][0].high > full:
            run, low = holds[-1]
            if low >= full:
                self._runs.drop(run)
                holds.pop()
            else:
                run.high = full
        self._registered[request] = min(self._registered[request], full)

    # -- eviction ----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Evict as many blocks as were taken since the cache was last asked: until then it does not
        matter which ones."""
        blocks = self.reserved // self.block_size + self._runs.idle - self.num_blocks
        if blocks > 0:
            self._evict(blocks)

    def _evict(self, blocks: int) -> None:
        """Take ``blocks`` that no request holds out of the cache, in the order of freeing."""
        self._found = None
        self._runs.evict(blocks)

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
        runs = self._runs
        runs.check_integrity(counted)
        used = open_blocks + sum(run.high - run.low for run in counted)
        assert self.reserved == used * size, (self.reserved, used)
        assert self.shared_tokens == runs.shared * size
        assert self.several_tokens == runs.several * size
        assert used + runs.idle <= self.num_blocks, (used, runs.idle)
        self._check_ring(owners)
