"""Keeps what requests computed of models with windows: vLLM's prefix cache over groups of layers.

As ``windowed`` for memory and as ``caching`` for what is found again, but blocks are kept one by
one (``BlockPool``): of a text groups hold different blocks, and each group loses others.
The rules are those of vLLM 0.32 (``v1/core/kv_cache_coordinator.py`` and
``single_type_kv_cache_manager.py``):

- A prefix is found as far as it is there for all groups: whole where layers see everything, as far
  back as the next token sees where they look through a window.
- A request holds of it what its next token sees. Blocks behind a window go back when the next
  tokens are allocated; they stay cached until they are needed, by time of release.
- Where groups have blocks of different sizes, a prefix ends where blocks of all of them end, and
  windows keep only the blocks that can be found at such an end.

Sequences are served in order of admission. Each has a turn: the iteration in which it next takes a
block, fills one or gives one back; those with a turn are walked, the others are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Self

from sim.memory.block_pool import BlockPool, KnownBlock
from sim.memory.groups import KvGroup
from sim.memory.windowed import WindowedAllocator
from sim.request import Request
from sim.specs.window import NEVER

Table = list["KnownBlock | Blank | None"]
"""The blocks of a request in one group of layers; None: it holds none at that place."""


class Blank:
    """Stands for a held block whose content is not known."""


BLANK = Blank()


class FoundBlocks(NamedTuple):
    """What a request finds: its first ``tokens``, and of each group the blocks that hold them."""

    tokens: int
    tables: list[list[KnownBlock | None]]


class Holding:
    """What a request holds: ``tokens`` (of a decoding one less all growth), a table for each group,
    and how many blocks of each have been entered in the cache."""

    __slots__ = ("entered", "number", "tables", "tokens", "turn")

    def __init__(self, number: int, tokens: int, tables: list[Table]) -> None:
        self.number = number  # in order of admission
        self.tokens = tokens
        self.tables = tables
        self.entered = [len(table) for table in tables]
        self.turn = -1  # the iteration of its entry among the turns


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
    ) -> None:
        super().__init__(num_blocks, block_size, groups, most)
        self._pool = BlockPool(num_blocks)
        self._holdings: dict[Request, Holding] = {}
        self._decodes: dict[Request, Holding] = {}
        self._turns: list[tuple[int, int, Request]] = []
        self._admitted = 0
        self._given: dict[Request, int] = {}  # tokens that are to be asked for again
        self._align = math.lcm(*(group.block for group in self.groups))
        # of each kind of group, those that see everything first: its own groups by number
        numbers = iter(range(self._number))
        kinds = [(group, [next(numbers) for _ in range(group.number)]) for group in self.groups]
        self._members = [group for group, own in kinds for _ in own]
        self._limits = [
            limit for limit, (_, own) in zip(self._most, kinds, strict=True) for _ in own
        ]
        self._kinds = sorted(kinds, key=lambda kind: kind[0].window is not None)
        self._found: tuple[Request, FoundBlocks] | None = None
        self._texts: set[int] = set()  # all that were ever in the cache
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
        """The longest prefix that all groups hold and that leaves ``request`` a token to
        compute."""
        if self._found is not None and self._found[0] is request:
            return self._found[1]
        tokens = request.prompt_tokens + request.generated - 1
        found: dict[int, list[list[KnownBlock | None]]] = {}
        names = {group.block: list(_texts(request, group.block, tokens)) for group in self.groups}
        simple = len(self._kinds) == 2 and self._kinds[0][0].window is None
        while True:
            hit = tokens
            for place, (group, own) in enumerate(self._kinds):
                if group.window is not None:
                    found[place] = self._search(group, own, names[group.block], hit)
                elif place not in found:
                    found[place] = self._search_whole(group, own, names[group.block], hit)
                hit = min(hit, len(found[place][0]) * group.block)
            if hit >= tokens:
                break
            tokens = hit
            if simple:
                break
        tables: list[list[KnownBlock | None]] = [[] for _ in self._members]
        for place, (group, own) in enumerate(self._kinds):
            for member, table in zip(own, found[place], strict=True):
                tables[member] = table[: -(-tokens // group.block)]
        answer = FoundBlocks(tokens, tables)
        self._found = request, answer
        return answer

    def _copies(self, own: Sequence[int], text: int, block: int) -> list[KnownBlock] | None:
        """That block in each of the groups ``own``; None unless all have it."""
        copies: list[KnownBlock] = []
        for member in own:
            copy = self._pool.find((member, text, block))
            if copy is None:
                return None
            copies.append(copy)
        return copies

    def _search_whole(
        self, group: KvGroup, own: Sequence[int], texts: Sequence[int], most: int
    ) -> list[list[KnownBlock | None]]:
        """From the first block on as far as all are there."""
        tables: list[list[KnownBlock | None]] = [[] for _ in own]
        for block in range(most // group.block):
            copies = self._copies(own, texts[block], block)
            if copies is None:
                break
            for table, copy in zip(tables, copies, strict=True):
                table.append(copy)
        tokens = len(tables[0]) * group.block // self._align * self._align
        return [table[: tokens // group.block] for table in tables]

    def _search(
        self, group: KvGroup, own: Sequence[int], texts: Sequence[int], most: int
    ) -> list[list[KnownBlock | None]]:
        """Up to the last place before which all is there that the window shows."""
        window, size = group.window, group.block
        assert window is not None
        whole = most // size
        tables: list[list[KnownBlock | None]] = [[None] * whole for _ in own]
        if window.chunked:
            end = most // window.size * window.size // size
            while end < whole and (copies := self._copies(own, texts[end], end)) is not None:
                for table, copy in zip(tables, copies, strict=True):
                    table[end] = copy
                end += 1
            return [table[:end] for table in tables]
        need, run = -(-(window.size - 1) // size), 0
        for block in range(whole - 1, -1, -1):
            copies = self._copies(own, texts[block], block)
            if copies is None:
                run = 0
                continue
            if not run and (block + 1) * size % self._align:
                continue
            for table, copy in zip(tables, copies, strict=True):
                table[block] = copy
            run += 1
            if run >= need:
                return [table[: block + run] for table in tables]
        tokens = run * size // self._align * self._align
        return [table[: tokens // size] for table in tables]

    def _enter(self, request: Request, held: Holding, tokens: int) -> None:
        """What ``request`` has up to ``tokens`` is in the cache from now on."""
        tokens = tokens // self._align * self._align
        pool = self._pool
        for member, group in enumerate(self._members):
            full, first, size = tokens // group.block, held.entered[member], group.block
            if full <= first:
                continue
            table = held.tables[member]
            per, need = self._align // size, self._align // size
            if group.window is not None and not group.window.chunked:
                need = -(-(group.window.size - 1) // size)
            for block, text in enumerate(_texts(request, size, tokens, first), first):
                if table[block] is BLANK and block % per >= per - need:
                    table[block] = pool.name((member, text, block))
                    self._texts.add(text)
            held.entered[member] = full

    # -- requests ----------------------------------------------------------------------------

    def _behind(self, group: KvGroup, computed: int) -> int:
        """Blocks that the next token no longer sees when so many are computed."""
        return (
            0 if group.window is None else (computed - group.window.seen(computed)) // group.block
        )

    def _lacking(self, found: FoundBlocks, tokens: int, *, capped: bool) -> int:
        """Free blocks that a request takes which finds that much and computes ``tokens`` more;
        ``capped`` at what it holds at once."""
        blocks = 0
        for group, limit, table in zip(self._members, self._limits, found.tables, strict=True):
            whole, behind = (
                -(-(found.tokens + tokens) // group.block),
                self._behind(group, found.tokens),
            )
            if capped and whole > limit:
                whole = limit
            blocks += max(0, whole - max(behind, len(table)))
            blocks += sum(block is not None and not block.holders for block in table[behind:])
        return blocks

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether there is room for ``tokens`` on top of what is cached."""
        blocks = self._lacking(self._find(request), tokens, capped=True)
        return blocks + int(spare * self.num_blocks) <= self._pool.free

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more need; a request that has nothing also gets what is
        cached of it, another one gives back first what it no longer sees."""
        if self._given.pop(request, 0) == tokens:
            return True
        held = self._holdings.get(request)
        if held is not None:
            if not self._walk(held.number) or not self._extend(request, held, held.tokens, tokens):
                return False
            held.tokens += tokens
            return True
        found = self._find(request)
        if self._lacking(found, tokens, capped=False) > self._pool.free:
            return False
        if self.note is not None and not request.preemptions:
            self.note(request, *self._missed(request, found.tokens))
        self._admitted += 1
        tables: list[Table] = []
        for group, table in zip(self._members, found.tables, strict=True):
            behind = self._behind(group, found.tokens)
            own: Table = [None] * behind
            own += table[behind:]
            tables.append(own)
            for block in table[behind:]:
                if block is not None:
                    self._pool.hold(block)
        held = self._holdings[request] = Holding(self._admitted, found.tokens, tables)
        given = self._extend(request, held, found.tokens, tokens)
        assert given, request
        held.tokens += tokens
        return True

    def _extend(self, request: Request, held: Holding, computed: int, tokens: int) -> bool:
        """Give back what is behind the windows after ``computed`` tokens, and open the blocks of
        ``tokens`` more, if there are enough."""
        pool, end, need = self._pool, computed + tokens, 0
        self._found = None
        for group, table in zip(self._members, held.tables, strict=True):
            place = min(self._behind(group, computed), len(table)) - 1
            while place >= 0 and (block := table[place]) is not None:
                pool.release(block if isinstance(block, KnownBlock) else None)
                table[place] = None
                place -= 1
            need += max(0, -(-end // group.block) - len(table))
        if need > pool.free:
            self._count()
            return False
        if need:
            pool.take(need)
            for group, table in zip(self._members, held.tables, strict=True):
                table.extend([BLANK] * (-(-end // group.block) - len(table)))
        self._enter(request, held, end)
        self._count()
        return True

    def _count(self) -> None:
        pool, size = self._pool, self.block_size
        self.reserved = (self.num_blocks - pool.free) * size
        self.shared_tokens, self.several_tokens = pool.shared * size, pool.several * size

    @property
    def idle_tokens(self) -> int:
        """Tokens of the cached blocks that nobody holds."""
        return self._pool.idle * self.block_size

    def give_back(self, request: Request, tokens: int) -> None:
        """``tokens`` of ``request`` are to be asked for again; it keeps their blocks until then."""
        self._given[request] = tokens

    def free(self, request: Request) -> None:
        """Take back what ``request`` has, of each group the last block first."""
        held = self._holdings.pop(request)
        self._given.pop(request, None)
        self._found = None
        for table in held.tables:
            for block in reversed(table):
                if block is not None:
                    self._pool.release(block if isinstance(block, KnownBlock) else None)
        self._count()

    def _missed(self, request: Request, found: int) -> tuple[int, int]:
        """Of the prefixes of ``request`` behind what is ``found``: tokens of texts that were in the
        cache once, and of those that are new to it."""
        at = known = found
        for text, end in request.prefix:
            if end > at:
                if at == known and text in self._texts:
                    known = end
                at = end
        return known - found, at - known

    # -- requests that decode ----------------------------------------------------------------

    def join(self, request: Request) -> None:
        """``request`` starts to decode."""
        held = self._decodes[request] = self._holdings[request]
        held.tokens -= self._grown
        held.turn = self._grown
        heappush(self._turns, (held.turn, held.number, request))
        self._decoding += 1

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        held = self._decodes.pop(request)
        held.tokens += self._grown
        held.turn = -1
        self._decoding -= 1

    def grow(self, iterations: int) -> bool:
        """Give each decoding sequence the blocks of the next ``iterations``, in order of admission;
        False at the first that lacks any."""
        for _ in range(iterations):
            if not self._walk(self._admitted):
                return False
            self._grown += 1
        return True

    def _walk(self, last: int) -> bool:
        """Serve those whose turn is now, up to the one admitted as number ``last``; False at the
        first that lacks blocks."""
        turns, grown = self._turns, self._grown
        while turns and turns[0][0] <= grown and turns[0][1] <= last:
            _, number, request = turns[0]
            if not self._left(turns[0]):
                held = self._decodes[request]
                tokens = held.tokens + grown
                if not self._extend(request, held, tokens, 1):
                    return False
                heappop(turns)
                held.turn = grown + 1 + self._until_turn(tokens + 1)
                heappush(turns, (held.turn, number, request))
            else:
                heappop(turns)
        return True

    def _left(self, turn: tuple[int, int, Request]) -> bool:  # type: ignore[override]
        """Whether the sequence of an entry decodes no more, or has been admitted once more."""
        held = self._decodes.get(turn[2])
        return held is None or held.number != turn[1] or held.turn != turn[0]

    def _until_turn(self, tokens: int) -> int:
        """Iterations until a sequence of that length takes, fills or gives back a block."""
        soonest = NEVER
        for group in self.groups:
            size, window = group.block, group.window
            soonest = min(soonest, -tokens % size, (-1 - tokens) % size)
            if window is None:
                continue
            if window.chunked:
                soonest = min(soonest, -tokens % window.size)
            else:
                first = max(tokens, window.size - 1 + size)
                soonest = min(soonest, first - tokens + (window.size - 1 - first) % size)
        return soonest

    def _quiet(self) -> int:
        """Iterations before the next turn."""
        while self._turns and self._left(self._turns[0]):
            heappop(self._turns)
        return self._turns[0][0] - self._grown if self._turns else NEVER

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations take more than they give back,
        in tokens."""
        blocks = 0
        released: dict[KnownBlock, int] = {}
        for held in self._decodes.values():
            tokens = held.tokens + self._grown
            for group, table in zip(self._members, held.tables, strict=True):
                if not iterations:
                    continue
                whole = -(-(tokens + iterations) // group.block)
                blocks += max(0, whole - len(table))
                behind = self._behind(group, tokens + iterations - 1)
                blocks -= max(0, behind - len(table))
                for block in table[:behind]:
                    if isinstance(block, KnownBlock):
                        released[block] = released.get(block, 0) + 1
                    elif block is not None:
                        blocks -= 1
        blocks -= sum(number == block.holders for block, number in released.items())
        return blocks * self.block_size

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks feed for certain,
        whatever is given back."""
        size = min(group.block for group in self.groups)
        rounds = self._pool.free // max(1, self._number * self._decoding)
        return min(iterations, max(self._quiet(), rounds * size - 1))

    def until_more(self, iterations: int) -> int:
        """Until a sequence gives back a block, or fills one that is found then."""
        return min(iterations, self._quiet())

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or held, and known as often as it is held."""
        assert self._holdings.keys() == owners.keys(), (self._holdings, owners)
        assert self._decodes.keys() == {r for r, (_, decodes) in owners.items() if decodes}
        counted: dict[KnownBlock, int] = {}
        blank = 0
        for request, (tokens, decodes) in owners.items():
            held = self._holdings[request]
            assert held.tokens + self._grown * decodes == tokens, (request, tokens)
            for group, table in zip(self._members, held.tables, strict=True):
                assert len(table) == -(-tokens // group.block), (request, tokens, len(table))
                for block in table:
                    if isinstance(block, KnownBlock):
                        counted[block] = counted.get(block, 0) + 1
                    elif block is not None:
                        blank += 1
        self._pool.check_integrity(counted)
        assert self._pool.free + blank + len(counted) == self.num_blocks
        assert self.reserved == (self.num_blocks - self._pool.free) * self.block_size
        assert not self._given


def _texts(request: Request, size: int, tokens: int, first: int = 0) -> Iterator[int]:
    """The text to which each full block of ``size`` of the first ``tokens`` belongs, from number
    ``first`` on: the earliest that has not ended before the block does."""
    block, full = first, tokens // size
    for text, end in request.prefix:
        while block < min(end // size, full):
            yield text
            block += 1
    while block < full:
        yield ~request.id
        block += 1
