"""Keeps what requests computed of models with windows: vLLM's prefix cache over groups of layers.

As ``windowed`` for memory and as ``caching`` for what is found again, but what is found, and what
is evicted, differs from group to group: each has runs of its own in one pool (``run_pool``). The
rules are those of vLLM 0.32 (``v1/core/kv_cache_coordinator.py`` and
``single_type_kv_cache_manager.py``):

- A prefix is found as far as it is there for all groups (``prefix_search``).
- A request holds of it what its next token sees. Blocks behind a window go back when the next
  tokens are allocated; they stay cached until they are needed, by time of release.
- Where groups have blocks of different sizes, windows keep only the blocks that can be found where
  blocks of all groups end.
- ``ends_only``: of a window stays what can be found before a prompt's last token, and where a
  prompt that begins alike was last found to go on without a window (``reach``); chunks stay
  whole. The default of vLLM since 0.29 (``prefix_cache_retention_interval: 0``,
  ``SlidingWindowManager.reachable_block_mask``).

Sequences are served in order of admission. As long as there are enough blocks for all, those that
decode take theirs together, counted in rings as in ``windowed``; who gives one back is walked in
turn, and what it filled since is entered in the cache then, or when someone asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Self

from sim.memory.groups import KvGroup, places
from sim.memory.held_blocks import HeldBlocks, Holding
from sim.memory.prefix_search import FoundBlocks, PrefixSearch, Span, behind, missed, spans
from sim.memory.run_pool import Run, RunPool
from sim.memory.window_hits import LooksBack, Turns
from sim.memory.windowed import WindowedAllocator, passed
from sim.request import Request
from sim.specs.window import NEVER


class HybridCachingAllocator(WindowedAllocator):
    """``WindowedAllocator`` with a prefix cache.

    A call that finds no room keeps what it gave to the requests before the one that lacks blocks:
    asked again after a preemption, as vLLM asks, it goes on from there.

    >>> from sim.specs.window import Window
    >>> kv = HybridCachingAllocator(9, 16, (KvGroup(1, None, 16), KvGroup(1, Window(17), 16)))
    >>> first, second = (Request(i, 0.0, 49, 9, prefix=((7, 48),)) for i in range(2))
    >>> kv.allocate(first, 49), kv.free_blocks
    (True, 1)
    >>> kv.cached(second), kv.fits(second, 1)  # it needs a block of its own in either group
    (48, False)
    """

    gives_back = True

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        groups: Sequence[KvGroup],
        most: Sequence[int] | None = None,
        *,
        ends_only: bool = False,
    ) -> None:
        super().__init__(num_blocks, block_size, groups, most)
        self._ends_only = ends_only
        self._pool = RunPool(num_blocks)
        self._search = PrefixSearch(self._pool, self.groups)
        self._holdings: dict[Request, Holding] = {}
        self._decodes: dict[Request, Holding] = {}
        self._admitted = 0
        self._owners: dict[int, Request] = {}  # those that decode, by the name of their own text
        self._given: dict[Request, int] = {}  # tokens that are to be asked for again
        self._serving = 0  # who goes on with a prompt now, by number: those before have been served
        self._apart = -1  # the iteration whose blocks are taken one by one, if it is the next
        # blocks that the head of the queue lacks, if that is known
        self._missing: int | None = None
        self._kinds = list(zip(self.groups, self._most, strict=True))
        self._places = places(self.groups)
        self._even = len({group.block for group in self.groups}) == 1
        self._windows = LooksBack(self.groups)
        self._returns = Turns()
        self._found: tuple[Request, FoundBlocks] | None = None
        self._grows = False  # whether whom it was found for goes on with a text that still grows
        self.note: Callable[[Request, int, int], None] | None = None

    @classmethod
    def of(cls, blocks: int, block_size: int, longest: int) -> Self:
        """The blocks of a model that is one group."""
        return cls(blocks, block_size, (KvGroup(1, None, block_size),))

    # -- what is cached ----------------------------------------------------------------------

    def cached(self, request: Request) -> int:
        """Tokens of ``request``, which holds nothing, that it would find."""
        return self._find(request).tokens

    def _find(self, request: Request) -> FoundBlocks:
        if self._found is not None and self._found[0] is request:
            return self._found[1]
        self._grows = False
        for text, _ in request.prefix:
            if text < 0 and self._enter_owner(text, request):
                self._grows = True
        found = self._search.find(request)
        self._found = None if self._grows else (request, found)
        return found

    def _enter_owner(self, text: int, request: Request) -> bool:
        """Enter what the one that decodes and whose own text that is has of it by now; False if
        there is none, or it is ``request``."""
        owner = self._owners.get(text)
        if owner is None or owner is request:
            return False
        held = self._decodes[owner]
        served = held.number < self._serving  # it has the token of the iteration that is planned
        self._enter(held, held.tokens + self._grown + served)
        return True

    def _enter(self, held: Holding, tokens: int) -> None:
        """Makes the owner of ``held`` findable in the cache up to ``tokens`` from now on."""
        align = self._search.align
        tokens = tokens // align * align
        if tokens <= held.entered:
            return
        held.entered = tokens
        pool, search = self._pool, self._search
        for (group, members), share in zip(self._places, held.shares, strict=True):
            full = tokens // group.block
            if full <= share.entered:
                continue
            first = share.first if share.first > share.entered else share.entered
            kept = self._kept(held, group, first, tokens) if full > first else ()
            share.entered = full
            for text, low, high in kept:
                search.texts.add(text)
                share.name(pool, search.key(members[0], text), low, high)

    def _kept(self, held: Holding, group: KvGroup, first: int, tokens: int) -> Sequence[Span]:
        """What the cache keeps of blocks of ``group`` from ``first`` on, up to ``tokens``."""
        request, size, window = held.request, group.block, group.window
        ends = None
        if self._ends_only and window is not None and not window.chunked:
            if first * size >= held.kept:
                return ()
            ends = request.prompt_tokens - 1, held.reach
        elif size == self._search.align:
            known = request.prefix[-1][1] if request.prefix else 0
            if first * size >= known:  # its own text, which no other one enters
                return ((~request.id, first, tokens // size),)
        kept: list[Span] = []
        for text, low, high in spans(request, size, tokens, first):
            if text < 0:
                self._enter_owner(text, request)
            found = self._search.findable(group, low, high, ends)
            kept.extend([(text, at, stop) for at, stop in found])
        return kept

    # -- requests ----------------------------------------------------------------------------

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether there is room for ``tokens`` on top of what is cached."""
        found = self._find(request)
        lack = self._lacking(request, found, tokens, capped=True) + int(spare * self.num_blocks)
        return self._has(lack, request, found.tokens + tokens)

    def _lacking(self, request: Request, found: FoundBlocks, tokens: int, *, capped: bool) -> int:
        """Free blocks that ``request`` takes which finds this and computes ``tokens`` more."""
        return found.lacking(self._kinds, tokens, capped=capped)

    def _has(self, blocks: int, request: Request, tokens: int) -> bool:
        """Whether that many blocks are free, for ``tokens`` of ``request``."""
        lack = blocks - self._pool.free
        if lack > 0:
            whole = tokens == request.prompt_tokens + request.generated and not self._grows
            # where blocks of its prefix are evicted, it lacks no fewer of those than windows show
            seen = self._windows
            self._missing = lack - seen.blocks if whole and not seen.chunked else None
        return lack <= 0

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more need; a request that has nothing also gets what is
        cached of it, another one gives back first what it no longer sees."""
        if self._given.pop(request, 0) == tokens:
            return True
        held = self._holdings.get(request)
        if held is not None:
            self._serving = held.number
            given = self._serve_before(held, tokens) and self._extend(held, held.tokens, tokens)
            self._serving = 0
            held.tokens += tokens * given
            return given
        found = self._find(request)
        lack = self._lacking(request, found, tokens, capped=False)
        if not self._has(lack, request, found.tokens + tokens):
            return False
        if self.note is not None and not request.preemptions:
            self.note(request, *missed(request, self._search.texts, found.tokens))
        self._admitted += 1
        held = self._holdings[request] = self._hold(request, found)
        given = self._extend(held, found.tokens, tokens)
        assert given, request
        held.tokens += tokens
        return True

    def _hold(self, request: Request, found: FoundBlocks) -> Holding:
        """Hold what ``request``, admitted last, has ``found``."""
        shares: list[HeldBlocks] = []
        for group, members in self._places:
            length, pieces = -(-found.tokens // group.block), found.pieces[members[0]]
            share = HeldBlocks(group.number, pieces[0][1] if pieces else length, length)
            for runs, member in zip(share.runs, members, strict=True):
                runs += [(self._pool.hold(piece), piece[1]) for piece in found.pieces[member]]
            shares.append(share)
        held = Holding(request, self._admitted, found.tokens, shares, found.reach)
        if self._ends_only and not self._windows.chunked:
            align = self._search.align
            held.kept = max(request.prompt_tokens - 1, found.reach) // align * align
        return held

    def _extend(self, held: Holding, computed: int, tokens: int) -> bool:
        """Give back what is behind the windows after ``computed`` tokens, and open the blocks of
        ``tokens`` more, if there are enough."""
        pool, end, need = self._pool, computed + tokens, 0
        self._found = None
        for group, share in zip(self.groups, held.shares, strict=True):
            if group.window is not None and (first := behind(group, computed)) > share.first:
                share.give_back_up_to(pool, min(first, share.length))
            more = -(-end // group.block) - share.length
            if more > 0:
                need += more * group.number
        if need > pool.free:
            self._count()
            return False
        if need:
            pool.take(need)
            self._measure(held, end)
        self._enter(held, end)
        self._count()
        return True

    def _count(self) -> None:
        pool, size = self._pool, self.block_size
        self.reserved = (self.num_blocks - pool.blank - pool.idle) * size
        self.shared_tokens, self.several_tokens = pool.shared * size, pool.several * size

    @property
    def idle_tokens(self) -> int:
        """Tokens of the cached blocks that no request holds."""
        return self._pool.idle * self.block_size

    def give_back(self, request: Request, tokens: int) -> None:
        """``tokens`` of ``request`` are to be asked for again; it keeps their blocks until then."""
        self._given[request] = tokens

    def free(self, request: Request) -> None:
        """Take back what ``request`` has, of each group the last block first."""
        held = self._holdings.pop(request)
        self._given.pop(request, None)
        self._found = None
        for share in held.shares:
            share.release(self._pool)
        self._count()

    # -- requests that decode ----------------------------------------------------------------

    def join(self, request: Request) -> None:
        """``request`` starts to decode."""
        held = self._decodes[request] = self._holdings[request]
        self._owners[~request.id] = request
        held.tokens -= self._grown
        self._decoding += 1
        for takes, group in zip(self._takes, self.groups, strict=True):
            takes[held.tokens % group.block] += 1
        held.turn = NEVER
        if self._windows.number:
            held.turn = self._grown  # what its prompt had behind windows
            self._returns.add(held)

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        held = self._decodes.pop(request)
        del self._owners[~request.id]
        for takes, group in zip(self._takes, self.groups, strict=True):
            takes[held.tokens % group.block] -= 1
        held.tokens += self._grown
        held.turn = -1
        self._decoding -= 1
        self._measure(held, held.tokens)
        self._enter(held, held.tokens)

    def _measure(self, held: Holding, tokens: int) -> None:
        """A sequence has blocks for ``tokens``."""
        for group, share in zip(self.groups, held.shares, strict=True):
            share.length = max(share.length, -(-tokens // group.block))

    def grow(self, iterations: int) -> bool:
        """Give each decoding sequence the blocks of the next ``iterations``, in order of admission;
        False at the first that lacks any."""
        self._missing = None
        if self._apart != self._grown:
            blocks = self._demand(iterations)
            if blocks <= self._pool.free:
                if blocks:
                    self._found = None
                    self._pool.take(blocks)
                self._grown += iterations
                self._give_back(self._grown - 1, NEVER)
                self._count()
                return True
        for _ in range(iterations):
            if not self._serve(NEVER):
                return False
            self._give_back(self._grown, NEVER)
            self._grown += 1
        return True

    def _demand(self, iterations: int) -> int:
        """Blocks that the next ``iterations`` take."""
        if self._even:  # all groups take theirs together
            return self._number * passed(self._takes[0], self._grown, iterations)
        return sum(
            group.number * passed(takes, self._grown, iterations)
            for group, takes in zip(self.groups, self._takes, strict=True)
        )

    def _serve_before(self, held: Holding, tokens: int) -> bool:
        """Serve the decoding sequences that were admitted before ``held``, which asks for
        ``tokens``; False at the first that lacks blocks."""
        if self._apart != self._grown:
            need = self._demand(1)
            for group, share in zip(self.groups, held.shares, strict=True):
                more = -(-(held.tokens + tokens) // group.block) - share.length
                need += max(0, more) * group.number
            if need <= self._pool.free:  # there is enough for all, who comes first or last
                self._give_back(self._grown, held.number)
                return True
        return self._serve(held.number)

    def _serve(self, last: int) -> bool:
        """Serve sequences one by one, up to the one admitted as number ``last``, in the next
        iteration; False at the first that lacks blocks. Who is served again gets nothing more."""
        self._apart = grown = self._grown
        for held in sorted(self._decodes.values(), key=lambda held: held.number):
            if held.number > last:
                break
            tokens = held.tokens + grown
            if held.turn > grown and all(tokens % group.block for group in self.groups):
                continue
            self._measure(held, tokens)
            self._enter(held, tokens)
            if not self._extend(held, tokens, 1):
                return False
        return True

    def _give_back(self, until: int, last: int) -> None:
        """Take back what is behind the windows of those whose turn comes up to the iteration
        ``until``, and in that up to the one admitted as number ``last``."""
        pool, kinds = self._pool, self._windows.kinds
        for held in self._returns.due(until, last):
            self._found = None
            tokens, longer, shares = held.tokens + held.turn, NEVER, held.shares
            for size, shown, period, kind in kinds:
                periods = (tokens - shown) // period if tokens > shown else 0
                if (length := shown + period * (periods + 1)) < longer:
                    longer = length
                first = periods * period // size
                if first <= shares[kind].first:
                    continue
                # it would give back what is not entered
                if first * size >= held.entered and held.entered < held.kept:
                    self._enter(held, tokens)
                shares[kind].give_back_up_to(pool, first)
            held.turn = longer - held.tokens

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations take more than they give back,
        in tokens."""
        blocks = 0
        released: dict[tuple[Run, int], int] = {}  # blocks that several hold
        for held in self._decodes.values() if iterations else ():
            tokens = held.tokens + self._grown
            self._measure(held, tokens)
            for group, share in zip(self.groups, held.shares, strict=True):
                more = max(0, -(-(tokens + iterations) // group.block) - share.length)
                first = behind(group, tokens + iterations - 1)
                blocks += group.number * (more - max(0, first - share.first))
                for run in chain(*share.held()) if first > share.first else ():
                    if run.holders > 1:
                        for block in range(run.low, min(run.high, first)):
                            released[run, block] = released.get((run, block), 0) + 1
        blocks += sum(number for (run, _), number in released.items() if number < run.holders)
        blocks += sum(number - 1 for (run, _), number in released.items() if number == run.holders)
        return blocks * self.block_size

    def until_more(self, iterations: int) -> int:
        """Until a sequence gives back a block, if that may be what the head of the queue lacks;
        0 where any iteration may fill one that it finds."""
        if self._grows:
            return 0
        turn = self._returns.next()
        quiet = turn - self._grown if turn < NEVER else NEVER
        if self._missing is not None:
            # each sequence gives back one block at most in as many iterations, of each such group
            rounds = (self._missing - 1) // max(1, self._windows.number * self._decoding)
            quiet = max(quiet, rounds * self._shortest - 1)
        return min(iterations, quiet)

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or held, and known as often as it is held."""
        assert self._holdings.keys() == owners.keys(), (self._holdings, owners)
        assert self._decodes.keys() == {r for r, (_, decodes) in owners.items() if decodes}
        counted: dict[Run, int] = {}
        blank = 0
        for request, (tokens, decodes) in owners.items():
            held = self._holdings[request]
            assert held.tokens + self._grown * decodes == tokens, (request, tokens)
            self._measure(held, tokens)
            for group, share in zip(self.groups, held.shares, strict=True):
                assert share.length == -(-tokens // group.block), (request, tokens, share.length)
                assert len(share.runs) == group.number
                for runs in share.held():
                    at, known = share.length, 0
                    for run in runs:
                        assert share.first <= run.low < run.high <= at, (request, run)
                        at, known = run.low, known + run.high - run.low
                        counted[run] = counted.get(run, 0) + 1
                    blank += share.length - share.first - known
        self._pool.check_integrity(counted)
        known = sum(run.high - run.low for run in counted)
        assert self._pool.free + blank + known == self.num_blocks
        assert self.reserved == (self.num_blocks - self._pool.free) * self.block_size
        assert not self._given
