"""Keeps what requests computed of models with a state: vLLM's prefix cache in its mode ``align``.

Attention and the groups of layers with a state have blocks of equally many tokens in one pool. The
state after some tokens is that of the block in which they end. The rules are those of vLLM 0.33
(``MambaManager`` of ``v1/core/single_type_kv_cache_manager.py``), with its default
``prefix_cache_retention_interval: 0``, which 0.32 has, too:

- A request takes one block of each group for the state after a chunk, and none for those between.
  It gives a state back when one in a later block has been computed.
- A state stays findable at the last end of a block before a prompt's last token, and where a
  prompt that begins alike was last found to go on without a state (``reach``).
- Engines with ``checkpoints`` keep the former out of a last chunk that goes on beyond it, in one
  more block of each group. Others end a chunk there (``schedulers/state_chunks``).
- A prefix is found as far as attention holds it all and every group the state at its end. It is
  not used in the step that computes that state.

Left out: hits within a block (``prefix_match_unit``), states kept at intervals, and kernels of Kimi
Delta Attention that export states. Releases before 0.32, which may keep more states, follow the
same rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

from sim.memory.groups import KvGroup
from sim.memory.held_blocks import HeldBlocks, Holding
from sim.memory.hybrid import HybridCachingAllocator
from sim.memory.prefix_search import FoundBlocks, PrefixSearch, spans
from sim.memory.run_pool import Run
from sim.request import Request
from sim.specs.window import NEVER, Window

STATE = Window(2)
"""A state as a window: the next token needs the block of the last one."""

HELD_ON = 3
"""Iterations after which a decoding sequence that has filled a block has surely given back its
state there: when the token behind it is computed, one more with a token in flight, and one in which
the next is planned."""


class HeldStates(Holding):
    """A request's memory: its attention, and ``states`` as the number of a block and the runs of
    all groups there, None where the content stays unknown.

    The last ``chunk`` of its prompt was planned in ``step``. The next token of a decoding one is
    planned with the last ``flight`` tokens in flight.
    """

    __slots__ = ("chunk", "flight", "states", "step")

    def __init__(
        self, request: Request, number: int, tokens: int, shares: list[HeldBlocks], reach: int
    ) -> None:
        super().__init__(request, number, tokens, shares, reach)
        self.states: deque[tuple[int, list[Run] | None]] = deque()
        self.chunk = self.flight = self.step = 0


class StateCachingAllocator(HybridCachingAllocator):
    """``num_blocks`` blocks of attention and of ``states`` groups of layers with a state.

    With ``ahead`` a step is planned while the one before runs: what that reads stays.

    >>> kv = StateCachingAllocator(9, 16, states=1)
    >>> first, second = (Request(i, 0.0, 50, 9, prefix=((7, 49),)) for i in range(2))
    >>> kv.allocate(first, 48), kv.free_blocks, kv.cached(second), kv.allocate(second, 2)
    (True, 5, 48, False)
    >>> kv.begin_step(); kv.allocate(second, 2)
    True
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        states: int,
        *,
        checkpoints: bool = False,
        ahead: bool = False,
        states_first: bool = True,
    ) -> None:
        attention = KvGroup(1, None, block_size)
        super().__init__(num_blocks, block_size, (attention,))
        self._search = PrefixSearch(self._pool, (attention, KvGroup(states, STATE, block_size)))
        self._states = states
        self.checkpoints = checkpoints
        self._plans_ahead = ahead
        self._states_first = states_first  # what a request gives back is freed group by group
        self._step = 0
        self._fresh: set[tuple[int, int]] = set()  # texts and blocks whose state this step computes
        self.unknown = 0
        """Tokens last computed of a request that stops to decode, if not known yet."""

    def begin_step(self) -> None:
        """The next iteration is planned."""
        self._step += 1
        self._fresh.clear()
        self.gives_back = False

    def blocks_for(self, tokens: int) -> int:
        """Blocks of all groups that a request has at most at once on its way to ``tokens``."""
        return -(-tokens // self.block_size) + self._states * (2 + self.checkpoints)

    def room(self, tokens: int) -> int:
        """Sequences of that length that the free blocks could hold."""
        return self.free_blocks // self.blocks_for(tokens)

    def reach(self, request: Request) -> int:
        """Tokens up to which attention holds a prefix of ``request`` that has no state there; 0 if
        it is found whole."""
        held = self._holdings.get(request)
        return self._find(request).reach if held is None else held.reach

    # -- requests ----------------------------------------------------------------------------

    def _taken(self, request: Request, computed: int, end: int, more: int) -> int:
        """Blocks of one group of states that a request takes which computes up to ``end``, where
        attention takes ``more``."""
        if more > 1 and self.checkpoints and computed % self.block_size == 0:
            needed = max(request.prompt_tokens, request.prompt_tokens + request.generated - 1)
            return 1 + (end >= needed)
        return min(more, 1)

    def _lacking(self, request: Request, found: FoundBlocks, tokens: int, *, capped: bool) -> int:
        size = self.block_size
        more = -(-(found.tokens + tokens) // size) + -found.tokens // size
        states = self._taken(request, found.tokens, found.tokens + tokens, more)
        return found.idle + more + self._states * states

    def _has(self, blocks: int, request: Request, tokens: int) -> bool:
        found = self._find(request)
        if found.tokens and self._fresh:
            last = found.tokens // self.block_size - 1
            *_, (text, _, _) = spans(request, self.block_size, found.tokens)
            if (text, last) in self._fresh:
                return False
        enough = blocks <= self._pool.free
        if not enough or self._grows:
            self.gives_back = True
        return enough

    def _hold(self, request: Request, found: FoundBlocks) -> HeldStates:
        whole, pool = -(-found.tokens // self.block_size), self._pool
        attention = HeldBlocks(1, 0, whole)
        attention.runs[0] += [(pool.hold(piece), piece[1]) for piece in found.pieces[0]]
        held = HeldStates(request, self._admitted, found.tokens, [attention], found.reach)
        if whole:
            runs = [pool.hold(piece) for (piece,) in found.pieces[1:]]
            held.states.append((whole - 1, runs))
        self.state_tokens += self._states * self.block_size
        return held

    def _extend(self, held: Holding, computed: int, tokens: int) -> bool:
        assert isinstance(held, HeldStates)
        flight = held.chunk if self._plans_ahead and held.step == self._step - 1 else 0
        if not self._serve_one(held, computed, tokens, flight):
            return False
        held.chunk, held.step = tokens, self._step
        return True

    def _serve_one(self, held: HeldStates, computed: int, tokens: int, flight: int) -> bool:
        """Give back the states behind the tokens that are not in ``flight``, and open the blocks of
        ``tokens`` more, if there are enough."""
        pool, size, end = self._pool, self.block_size, computed + tokens
        request, self._found = held.request, None
        self._give_back_up_to(held, (computed - flight - 1) // size)
        share, states = held.shares[0], held.states
        more = -(-end // size) - share.length
        if more > 0:
            taken = self._taken(request, computed, end, more)
            need = more + self._states * taken
            if need > pool.free:
                self._count()
                return False
            pool.take(need)
            share.length += more
            states.extend([(share.length - taken + each, None) for each in range(taken)])
        if request not in self._decodes:
            self._enter(held, end)
            self._keep(held, computed, end)
        self._count()
        return True

    def _keep(self, held: HeldStates, computed: int, end: int) -> None:
        """Enter those of the states of a chunk in the cache that are to be found again."""
        size, groups, request = self.block_size, range(1, 1 + self._states), held.request
        for tokens in {(request.prompt_tokens - 1) // size * size, held.reach}:
            if not computed < tokens <= end:
                continue
            block = tokens // size - 1
            for place, (number, runs) in enumerate(held.states):
                if number == block and runs is None:
                    *_, (text, _, _) = spans(request, size, tokens)
                    enter, key = self._pool.enter, self._search.key
                    entered = [enter(key(each, text), block, block + 1) for each in groups]
                    held.states[place] = block, entered
                    self._fresh.add((text, block))

    def _give_back_up_to(self, held: HeldStates, first: int) -> None:
        """States of blocks before ``first`` are no longer held."""
        states, gone = held.states, list[list[Run]]()
        while states and states[0][0] < first:
            _, runs = states.popleft()
            if runs is None:
                self._pool.blank += self._states
            else:
                gone.append(runs)
        self._release(gone)

    def _release(self, gone: list[list[Run]]) -> None:
        """One request less holds these states, each of all groups: of a group the last is free
        first."""
        if gone:
            order = [runs[each] for each in range(self._states) for runs in reversed(gone)]
            self._pool.release([(run, run.low) for run in order])

    def free(self, request: Request) -> None:
        """Take back what ``request`` has, of each group the last block first."""
        held = self._holdings[request]
        assert isinstance(held, HeldStates)
        self.state_tokens -= self._states * self.block_size
        if self._states_first:
            self._give_back_up_to(held, NEVER)
        super().free(request)
        if not self._states_first:
            self._give_back_up_to(held, NEVER)
            self._count()

    # -- requests that decode ----------------------------------------------------------------

    def join(self, request: Request) -> None:
        """``request`` starts to decode."""
        held = self._holdings[request]
        assert isinstance(held, HeldStates)
        self._decodes[request] = held
        self._owners[~request.id] = request
        held.flight = held.chunk * self._plans_ahead
        held.turn = self._grown
        held.tokens -= self._grown
        self._decoding += 1
        self._returns.add(held)

    def leave(self, request: Request) -> None:
        """``request`` stops growing."""
        held = self._decodes.pop(request)
        del self._owners[~request.id]
        held.tokens += self._grown
        held.turn = -1
        self._decoding -= 1
        self._enter(held, held.tokens - self.unknown)

    def _serve_until(self, until: int, last: int) -> bool:
        """Serve those whose turn comes up to the iteration ``until``, and in that up to the one
        admitted as number ``last``; False at the first that lacks blocks."""
        size = self.block_size
        for held in self._returns.due(until, last):
            assert isinstance(held, HeldStates)
            tokens = held.tokens + held.turn
            if not self._serve_one(held, tokens, 1, held.flight):
                return False
            held.flight = int(self._plans_ahead)
            held.turn += 1 if len(held.states) > 1 else size - tokens % size
        return True

    def _serve_before(self, held: Holding, tokens: int) -> bool:
        return self._serve_until(self._grown, held.number - 1)

    def grow(self, iterations: int) -> bool:
        """Give each decoding sequence the blocks of the next ``iterations``, in order of admission;
        False at the first that lacks any."""
        if not self._serve_until(self._grown + iterations - 1, NEVER):
            return False
        self._grown += iterations
        return True

    def _offsets(self) -> list[int]:
        """Iterations until each decoding sequence takes its next blocks."""
        size, grown = self.block_size, self._grown
        return [-(held.tokens + grown) % size for held in self._decodes.values()]

    def growth(self, iterations: int) -> int:
        """The blocks that the next ``iterations`` decode iterations take more than they give back,
        in tokens."""
        blocks, size = 0, self.block_size
        for held in self._decodes.values() if iterations else ():
            assert isinstance(held, HeldStates)
            tokens, length = held.tokens + self._grown, held.shares[0].length
            more = -(-(tokens + iterations) // size) - length
            flight = held.flight if iterations == 1 else self._plans_ahead
            first = (tokens + iterations - 1 - flight - 1) // size
            kept = [(number, None) for number in range(length, length + more)]
            for number, runs in (*held.states, *kept):
                free = [run.holders == 1 for run in runs] if runs else [True] * self._states
                blocks -= sum(free) if number < first else 0
            blocks += more * (1 + self._states)
        return blocks * size

    def horizon(self, iterations: int) -> int:
        """How many of the next ``iterations`` decode iterations the free blocks feed for certain:
        as if states were given back ``HELD_ON`` iterations later."""
        free, size, states = self._pool.free, self.block_size, self._states
        if self._decoding * (1 + states) * (iterations // size + 1) <= free:
            return iterations
        offsets = sorted(self._offsets())
        taken, at = 0, list[int]()
        while True:
            for offset in offsets:
                if offset >= iterations:
                    return iterations
                at = [each for each in at if each + HELD_ON > offset] + [offset]
                taken += 1
                if taken + states * len(at) > free:
                    return offset
            offsets = [offset + size for offset in offsets]

    def until_more(self, iterations: int) -> int:
        """Until a sequence takes or gives back a block; 0 where any iteration may fill one that the
        head of the queue finds."""
        return 0 if self._grows else min(iterations, self._returns.next() - self._grown)

    def check_integrity(self, owners: Mapping[Request, tuple[int, bool]]) -> None:
        """Every block is free or held, and known as often as it is held."""
        assert self._holdings.keys() == owners.keys(), (self._holdings, owners)
        assert self._decodes.keys() == {r for r, (_, decodes) in owners.items() if decodes}
        counted: dict[Run, int] = {}
        blank = 0
        for request, (tokens, decodes) in owners.items():
            held = self._holdings[request]
            assert isinstance(held, HeldStates)
            assert held.tokens + self._grown * decodes == tokens, (request, tokens)
            share, states = held.shares[0], held.states
            assert share.length == -(-tokens // self.block_size), (request, tokens, share.length)
            assert all(first < then for (first, _), (then, _) in pairwise(states))
            assert states[-1][0] == share.length - 1
            known = [run for _, runs in states if runs for run in runs]
            (own,) = share.held()
            blank += self._states * len(states) - len(known) + share.length
            for run in (*known, *own):
                counted[run] = counted.get(run, 0) + 1
            blank -= sum(run.high - run.low for run in own)
        self._pool.check_integrity(counted)
        used = sum(run.high - run.low for run in counted)
        assert self._pool.free + blank + used == self.num_blocks
        assert self.reserved == (self.num_blocks - self._pool.free) * self.block_size
        assert self.state_tokens == len(owners) * self._states * self.block_size
        assert not self._given
