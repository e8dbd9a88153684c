"""Finds what a prefix cache over groups of layers has of a request.

The rules are those of vLLM 0.32 (``v1/core/kv_cache_coordinator.py`` and
``single_type_kv_cache_manager.py``): a prefix is found as far as it is there for all groups, whole
where layers see everything, as far back as the next token sees where they look through a window.
Where groups have blocks of different sizes, it ends where blocks of all of them end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from sim.memory.groups import KvGroup, places
from sim.memory.run_pool import Piece, RunPool
from sim.request import Request

Span = tuple[int, int, int]
"""(text, its first block, the block behind its last one)."""


def behind(group: KvGroup, computed: int) -> int:
    """Blocks that the next token no longer sees when that many are computed."""
    return 0 if group.window is None else (computed - group.window.seen(computed)) // group.block


class FoundBlocks(NamedTuple):
    """The cached part of a request: its first ``tokens``, and of each group the ``pieces`` that the
    next token sees; of all pieces, no request holds ``idle`` blocks.
    ``reach`` is up to where the kind of group that is asked first has it, 0 if no further."""

    tokens: int
    pieces: list[list[Piece]]
    idle: int
    reach: int

    def lacking(self, kinds: Sequence[tuple[KvGroup, int]], tokens: int, *, capped: bool) -> int:
        """Free blocks of all groups, of these ``kinds``, that a request takes which finds this and
        computes ``tokens`` more; ``capped`` at the most of each group that it holds at once."""
        blocks, found = self.idle, self.tokens
        for (number, _, size), most in kinds:
            whole = -(-(found + tokens) // size)
            if capped and whole > most:
                whole = most
            more = whole + -found // size
            if more > 0:
                blocks += number * more
        return blocks


class Search(NamedTuple):
    """A kind of group's cached part: that many first ``blocks``, and pieces for each group."""

    blocks: int
    pieces: list[list[Piece]]


def spans(request: Request, size: int, tokens: int, first: int = 0) -> Iterator[Span]:
    """The texts of the full blocks of ``size`` of the first ``tokens``, from block ``first`` on:
    to a block belongs the earliest text that has not ended before the block does."""
    full = tokens // size
    for text, end in request.prefix:
        stop = min(end // size, full)
        if stop > first:
            yield text, first, stop
            first = stop
    if full > first:
        yield ~request.id, first, full


def missed(request: Request, texts: Container[int], found: int, size: int = 1) -> tuple[int, int]:
    """Tokens of ``request`` behind those ``found``, in whole blocks of ``size``: tokens of
    ``texts``, which were in the cache once, and of those that are new to it. What follows the texts
    that others may share is in neither."""
    at = known = found
    for text, end in request.prefix:
        stop = end // size * size
        if stop > at:
            if at == known and text in texts:
                known = stop
            at = stop
    return known - found, at - known


class PrefixSearch:
    """Looks up requests in ``pool``, where blocks of a group are known by its number among all
    (``key``)."""

    __slots__ = ("_kinds", "_members", "_nothing", "_pool", "align", "texts")

    def __init__(self, pool: RunPool, groups: Sequence[KvGroup]) -> None:
        self._pool = pool
        self.align = math.lcm(*(group.block for group in groups))
        """Tokens after which blocks of all groups end."""
        self.texts: set[int] = set()
        """All that were ever in the cache."""
        # of each kind of group, those that see everything first: its own groups by number
        kinds = places(groups)
        self._members = [group for group, own in kinds for _ in own]
        self._kinds = sorted(kinds, key=lambda kind: kind[0].window is not None)
        self._nothing: FoundBlocks | None = None  # what is found of texts that were never cached
        if self._kinds[0][0].window is None:
            number = len(self._members)
            self._nothing = FoundBlocks(0, [[] for _ in range(number)], 0, 0)

    def key(self, member: int, text: int) -> int:
        """How the pool knows ``text`` of that group."""
        return text * len(self._members) + member

    def findable(
        self, group: KvGroup, low: int, high: int, ends: Collection[int] | None = None
    ) -> Iterator[tuple[int, int]]:
        """Ranges kept of blocks ``low`` to ``high`` (exclusive) of a text: all, but of a window
        only what can be found where blocks of all groups end, or at those of these ``ends``, in
        tokens."""
        per = self.align // group.block
        if group.window is None or group.window.chunked:
            yield low, high
            return
        need = -(-(group.window.size - 1) // group.block)
        last: Iterable[int] = range(low // per * per + per, high + per, per)
        if ends is not None:
            last = sorted({end // self.align * per for end in ends})
        elif need >= per:
            yield low, high
            return
        for end in last:
            at, stop = max(low, end - need), min(high, end)
            if at < stop:
                yield at, stop
                low = stop

    def find(self, request: Request) -> FoundBlocks:
        """The longest prefix that all groups hold and that leaves ``request`` a token to
        compute."""
        if self._nothing is not None and ~request.id not in self.texts:
            for text, _ in request.prefix:
                if text in self.texts:
                    break
            else:
                return self._nothing
        tokens = request.prompt_tokens + request.generated - 1
        found: dict[int, Search] = {}
        reach = 0
        simple = len(self._kinds) == 2 and self._kinds[0][0].window is None
        while True:
            hit = tokens
            for place, (group, own) in enumerate(self._kinds):
                if group.window is None:
                    if place not in found:
                        found[place] = self._whole(group, own, request, hit)
                elif group.window.chunked:
                    found[place] = self._chunk(group, own, request, hit)
                else:
                    found[place] = self._window(group, own, request, hit)
                hit = min(hit, found[place].blocks * group.block)
                reach = max(reach, hit)
            if hit >= tokens:
                break
            tokens = hit
            if simple:
                break
        return self._seen(tokens, found, reach if reach > tokens else 0)

    def _seen(self, tokens: int, found: dict[int, Search], reach: int) -> FoundBlocks:
        """The part of what was found that the token after ``tokens`` sees."""
        idle = 0
        pieces: list[list[Piece]] = [[] for _ in self._members]
        for place, (group, own) in enumerate(self._kinds):
            first, whole = behind(group, tokens), -(-tokens // group.block)
            for member, there in zip(own, found[place].pieces, strict=True):
                kept = pieces[member]
                for run, at, stop in there:
                    low, high = max(at, first), min(stop, whole)
                    if low < high:
                        kept.append((run, low, high))
                        idle += 0 if run.holders else high - low
        return FoundBlocks(tokens, pieces, idle, reach)

    def _copies(self, own: Sequence[int], text: int, block: int) -> list[Piece] | None:
        """The block in each of the groups ``own``; None unless all of them hold it."""
        copies: list[Piece] = []
        find, first = self._pool.find, self.key(0, text)
        for member in own:
            copy = find(first + member, block)
            if copy is None:
                return None
            copies.append(copy)
        return copies

    def _on(
        self, own: Sequence[int], request: Request, size: int, tokens: int, first: int
    ) -> Search:
        """Blocks from ``first`` on, up to the first that is missing."""
        pieces: list[list[Piece]] = [[] for _ in own]
        at = first
        for text, _, stop in spans(request, size, tokens, first):
            while at < stop:
                copies = self._copies(own, text, at)
                if copies is None:
                    return Search(at, pieces)
                high = min(stop, *[high for _, _, high in copies])
                for each, (run, _, _) in zip(pieces, copies, strict=True):
                    if each and each[-1][0] is run:
                        each[-1] = run, each[-1][1], high
                    else:
                        each.append((run, at, high))
                at = high
        return Search(at, pieces)

    def _whole(self, group: KvGroup, own: Sequence[int], request: Request, tokens: int) -> Search:
        """From the first block on, where layers see everything."""
        blocks, pieces = self._on(own, request, group.block, tokens, 0)
        return Search(blocks * group.block // self.align * self.align // group.block, pieces)

    def _chunk(self, group: KvGroup, own: Sequence[int], request: Request, tokens: int) -> Search:
        """From the beginning of the chunk on in which ``tokens`` end."""
        window, size = group.window, group.block
        assert window is not None
        return self._on(own, request, size, tokens, tokens // window.size * window.size // size)

    def _window(self, group: KvGroup, own: Sequence[int], request: Request, tokens: int) -> Search:
        """Up to the last place before which all is there that the window shows."""
        window, size = group.window, group.block
        assert window is not None
        need, end = -(-(window.size - 1) // size), -1
        pieces: list[list[Piece]] = [[] for _ in own]
        for text, low, high in reversed(list(spans(request, size, tokens))):
            block = high - 1
            while block >= low:
                copies = self._copies(own, text, block)
                if copies is None:
                    if end >= 0:
                        end, pieces = -1, [[] for _ in own]
                    block = self._next_below(own, text, block)
                    continue
                if end < 0:
                    if (block + 1) * size % self.align:
                        block -= 1
                        continue
                    end = block + 1
                least = max(low, end - need, *[at for _, at, _ in copies])
                least = min(least, block)
                for each, (run, _, _) in zip(pieces, copies, strict=True):
                    if each and each[0][0] is run:
                        each[0] = run, least, each[0][2]
                    else:
                        each.insert(0, (run, least, block + 1))
                if end - least >= need:
                    return Search(end, pieces)
                block = least - 1
        return Search(max(end, 0), pieces)

    def _next_below(self, own: Sequence[int], text: int, block: int) -> int:
        """The last block before ``block`` that may be there for all."""
        nearest = block - 1
        for member in own:
            key = self.key(member, text)
            if self._pool.find(key, block) is None:
                nearest = min(nearest, self._pool.below(key, block))
        return nearest
