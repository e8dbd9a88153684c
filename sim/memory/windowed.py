"""Allocates paged KV memory of models whose layers look back through windows, from one pool.

As ``paged``, for each group of layers (``sim.memory.groups``); but groups with a window give back
the blocks that lie wholly behind it, as tokens are processed. A sequence that has filled its window
takes one block and gives back one in every ``block_size`` iterations. When it gives back depends on
its length modulo ``block_size``, too, so these sequences stand in a second ring; a sequence that
has yet to fill its window, or begins a chunk, is an entry of a heap keyed by iteration.

Of one iteration all sequences are taken together: what some give back is there for the others,
whichever comes first in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Self

from sim.memory.allocator import Allocator
from sim.memory.groups import KvGroup
from sim.request import Request
from sim.specs.window import NEVER

Turn = tuple[int, int, int, Request]


def passed(ring: list[int], grown: int, iterations: int) -> int:
    """The sum of the places of ``ring`` that the next ``iterations`` pass, from -``grown`` down.

    >>> passed([1, 2, 4, 8], 1, 1), passed([1, 2, 4, 8], 2, 7)
    (8, 22)
    """
    if iterations == 1:
        return ring[-grown % len(ring)]
    rounds, rest = divmod(iterations, len(ring))
    last = -grown % len(ring) + 1
    first = last - rest
    found = sum(ring[first:last]) if first >= 0 else sum(ring[:last]) + sum(ring[first:])
    return found + rounds * sum(ring) if rounds else found


class WindowedAllocator(Allocator):
    """``num_blocks`` blocks of ``block_size`` tokens of one group of layers.

    ``most`` is how many blocks a request holds at most in one group of each kind. Tokens of memory
    are those of one group.

    >>> from sim.specs.window import Window
    >>> kv = WindowedAllocator(9, 16, (KvGroup(1, None, 16), KvGroup(1, Window(17), 16)))
    >>> request = Request(1, arrival=0.0, prompt_tokens=64, output_tokens=9)
    >>> kv.allocate(request, 64), kv.free_blocks
    (True, 1)
    >>> kv.join(request); kv.free_blocks  # of four blocks, two are behind the window
    3
    """

    name = "paged"
    about = "blocks as tokens come, as vLLM"
    gives_back = shrinks = True
    growing = ("_decoding", "_grown", "_takes", "_gives", "_fills", "_chunks")

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        groups: Sequence[KvGroup],
        most: Sequence[int] | None = None,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.capacity = num_blocks * block_size
        self.reserved = 0
        self.groups = tuple(groups)
        self._most = tuple(most or [NEVER] * len(self.groups))
        self._number = sum(group.number for group in self.groups)
        self._shortest = min(group.block for group in self.groups)
        self._decoding = 0
        self._grown = 0  # iterations that decoding sequences have been fed since the start
        # (tokens, computed before the last allocation) of each request; of one that decodes, its
        # tokens less ``_grown``, and the number of its entry into decoding
        self._held: dict[Request, tuple[int, int]] = {}
        self._growing: dict[Request, tuple[int, int]] = {}
        self._joins = 0
        # by (tokens - grown) modulo the block: sequences that take a block when that is -grown,
        # and those that give one back; one pair of rings for each kind of group
        self._takes = [[0] * group.block for group in self.groups]
        self._gives = [[0] * group.block for group in self.groups]
        # (grown, number of the entry into decoding, kind of group, request): windows that are full
        # from then on, and chunks that begin then
        self._fills: list[Turn] = []
        self._chunks: list[Turn] = []
        self._cycle = math.lcm(*(group.block for group in self.groups))

    @classmethod
    def of(cls, blocks: int, block_size: int, longest: int) -> Self:
        """The blocks of a model that is one group."""
        return cls(blocks, block_size, (KvGroup(1, None, block_size),))

    # -- requests that do not decode -------------------------------------------------------------

    def _blocks(self, computed: int, tokens: int) -> int:
        """Blocks of all groups that hold ``tokens``, ``computed`` of them before the last
        iteration. What is reserved ahead, before anything is computed, is as much as there will be
        at once."""
        blocks = 0
        if computed:
            for group in self.groups:
                blocks += group.number * group.blocks(computed, tokens)
        else:
            for group, most in zip(self.groups, self._most, strict=True):
                blocks += group.number * min(group.blocks(0, tokens), most)
        return blocks

    def blocks_for(self, tokens: int) -> int:
        """Blocks of all groups that a request has at most at once on its way to ``tokens``."""
        return self._blocks(0, tokens)

    def can_ever_fit(self, tokens: int) -> bool:
        """Whether an empty cache could hold one sequence of that length."""
        return self.blocks_for(tokens) <= self.num_blocks

    def fits(self, request: Request, tokens: int, *, spare: float = 0.0) -> bool:
        """Whether the free blocks could hold ``tokens``."""
        return self._blocks(0, tokens) + int(spare * self.num_blocks) <= self.free_blocks

    def room(self, tokens: int) -> int:
        """Sequences of that length that the free blocks could hold."""
        return self.free_blocks // self._blocks(0, tokens)

    def allocate(self, request: Request, tokens: int) -> bool:
        """Open the blocks that ``tokens`` more need, and give back those behind the windows of
        what has been computed."""
        held, computed = self._held.get(request, (0, 0))
        blocks = self._blocks(held, held + tokens) - self._blocks(computed, held)
        if blocks > self.free_blocks:
            return False
        self.reserved += blocks * self.block_size
        self._held[request] = held + tokens, held
        return True

    def give_back(self, request: Request, tokens: int) -> None:
        """Close the blocks that the last ``tokens`` of ``request`` opened."""
        held, computed = self._held[request]
        self.free(request)
        if held > tokens:
            computed = min(computed, held - tokens)
            self.reserved += self._blocks(computed, held - tokens) * self.block_size
            self._held[request] = held - tokens, computed

    def free(self, request: Request) -> None:
        """Take back the blocks of ``request``."""
        held, computed = self._held.pop(request)
        self.reserved -= self._blocks(computed, held) * self.block_size

    # -- requests that decode --------------------------------------------------------------------

    def join(self, request: Request) -> None:
        """``request`` starts to decode: it has what its last token was computed with."""
        held, computed = self._held.pop(request)
        freed = self._blocks(computed, held) - self._blocks(held - 1, held)
        self.reserved -= freed * self.block_size
        self._joins += 1
        start = held - self._grown
        self._growing[request] = start, self._joins
        self._decoding += 1
        for kind, group in enumerate(self.groups):
            self._takes[kind][start % group.block] += 1
            window = group.window
            if window is None:
                continue
            if window.chunked:
                turn = self._grown + -held % window.size
                heappush(self._chunks, (turn, self._joins, kind, request))
            elif held < window.size:
                turn = self._grown + window.size - held
                heappush(self._fills, (turn, self._joins, kind, request))
            else:
                self._gives[kind][(start - window.size + 1) % group.block] += 1

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        self._settle()
        start, _ = self._growing.pop(request)
        held = start + self._grown
        self._held[request] = held, held - 1
        self._decoding -= 1
        for kind, group in enumerate(self.groups):
            self._takes[kind][start % group.block] -= 1
            window = group.window
            if window is not None and not window.chunked and held >= window.size:
                self._gives[kind][(start - window.size + 1) % group.block] -= 1

    def _settle(self) -> None:
        """Windows that are full by now give back from now on; entries of those that left go."""
        for turns in (self._fills, self._chunks):
            while turns and (turns is self._fills or self._left(turns[0])):
                turn, _, kind, request = turns[0]
                if not self._left(turns[0]):
                    if turn > self._grown:
                        break
                    group = self.groups[kind]
                    assert group.window is not None
                    start, _ = self._growing[request]
                    self._gives[kind][(start - group.window.size + 1) % group.block] += 1
                heappop(turns)

    def _left(self, turn: Turn) -> bool:
        """Whether the sequence of an entry decodes no more, or has begun to once more."""
        known = self._growing.get(turn[3])
        return known is None or known[1] != turn[1]

    def _ahead(self) -> int:
        """Iterations for which the rings say all."""
        self._settle()
        return min([turns[0][0] for turns in (self._fills, self._chunks) if turns] or [NEVER]) - (
            self._grown
        )

    def _net(self, ahead: int) -> int:
        """Blocks that the iteration after that many more takes more than it gives back, chunks that
        begin left out."""
        place, blocks = -self._grown - ahead, 0
        for group, takes, gives in zip(self.groups, self._takes, self._gives, strict=True):
            at = place % group.block
            blocks += group.number * (takes[at] - gives[at])
        return blocks

    def grow(self, iterations: int) -> bool:
        """Open and give back the blocks of the next ``iterations`` decode iterations, if there are
        enough in each of them."""
        if iterations > 1:
            if self.horizon(iterations) < iterations:
                return self._grow_apart(iterations)
            blocks = self._demand(iterations)
            self.reserved += blocks * self.block_size
            self._grown += iterations
            return True
        self._settle()
        begun = self._begun()
        blocks = self._net(0)
        for turn in begun:
            blocks -= self._closed(turn)
        if blocks > self.free_blocks:
            for turn in begun:
                heappush(self._chunks, turn)
            return False
        for due, join, kind, request in begun:
            window = self.groups[kind].window
            assert window is not None
            heappush(self._chunks, (due + window.size, join, kind, request))
        self.reserved += blocks * self.block_size
        self._grown += 1
        return True

    def _begun(self) -> list[Turn]:
        """Take the chunks that begin with the next token off the heap."""
        found: list[Turn] = []
        while self._chunks and self._chunks[0][0] <= self._grown:
            turn = heappop(self._chunks)
            if not self._left(turn):
                found.append(turn)
        return found

    def _closed(self, turn: Turn) -> int:
        """Blocks that a sequence gives back as it begins a chunk."""
        _, _, kind, request = turn
        group, held = self.groups[kind], self._growing[request][0] + self._grown
        return group.number * (group.blocks(held - 1, held) - group.blocks(held, held))

    def _grow_apart(self, iterations: int) -> bool:
        """One iteration after the other; none of them if there is no room for all."""
        counts, gives = (self.reserved, self._grown), [list(ring) for ring in self._gives]
        heaps = list(self._fills), list(self._chunks)
        for _ in range(iterations):
            if not self.grow(1):
                (self.reserved, self._grown), self._gives = counts, gives
                self._fills, self._chunks = heaps
                return False
        return True

    def _demand(self, iterations: int) -> int:
        """Blocks that the next ``iterations`` take more than they give back, which the rings
        know."""
        if iterations == 1:
            return self._net(0)
        blocks, grown = 0, self._grown
        for group, takes, gives in zip(self.groups, self._takes, self._gives, strict=True):
            more = passed(takes, grown, iterations) - passed(gives, grown, iterations)
            blocks += group.number * more
        return blocks

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations take more than they give back,
        in tokens."""
        return self._demand(iterations) * self.block_size if iterations else 0

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks can feed, as far as
        the rings say: until a window is full, or a chunk begins."""
        iterations = min(iterations, self._ahead())
        free = self.free_blocks
        # every sequence takes at most one block of each group in as many iterations
        if self._number * self._decoding * (iterations // self._shortest + 1) <= free:
            return iterations
        taken = peak = 0
        for ahead in range(min(iterations, self._cycle)):
            taken += self._net(ahead)
            peak = max(peak, taken)
            if taken > free:
                return ahead
        if iterations <= self._cycle or taken <= 0:
            return iterations
        fed = (1 + (free - peak) // taken) * self._cycle
        taken *= fed // self._cycle
        while fed < iterations:
            taken += self._net(fed)
            if taken > free:
                break
            fed += 1
        return min(fed, iterations)

    def until_more(self, iterations: int) -> int:
        """Until sequences have given back more than they have taken."""
        iterations = min(iterations, self._ahead())
        taken = 0
        for ahead in range(min(iterations, self._cycle)):
            taken += self._net(ahead)
            if taken < 0:
                return ahead
        return iterations  # a further cycle takes at least as much

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or belongs to one of ``owners``; the rings hold the decoding ones."""
        self._settle()
        growing = {request for request, (_, decodes) in owners.items() if decodes}
        assert self._growing.keys() == growing, (self._growing, owners)
        assert self._held.keys() == owners.keys() - growing, (self._held, owners)
        used = 0
        takes = [[0] * group.block for group in self.groups]
        gives = [[0] * group.block for group in self.groups]
        for request, (tokens, decodes) in owners.items():
            held, computed = (tokens, tokens - 1) if decodes else self._held[request]
            assert tokens == held, (request, held)
            used += self._blocks(computed, tokens)
            if decodes:
                start = tokens - self._grown
                assert self._growing[request][0] == start, (request, tokens)
                for kind, group in enumerate(self.groups):
                    takes[kind][start % group.block] += 1
                    window = group.window
                    if window is not None and not window.chunked and tokens >= window.size:
                        gives[kind][(start - window.size + 1) % group.block] += 1
        assert takes == self._takes, (takes, self._takes)
        assert gives == self._gives, (gives, self._gives)
        assert self.free_blocks + used == self.num_blocks, (self.free_blocks, used, self.num_blocks)
        assert 0 <= self.reserved <= self.capacity
