"""The host's blocks against a list of them in the order in which they leave, and the second tier of
the prefix cache by hand."""

from __future__ import annotations

import doctest

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import sim.memory.host
from sim.memory.host import HostLink, HostMemory, Move
from sim.memory.tiered import TieredAllocator
from sim.request import Prefix, Request

Block = tuple[int, int]
TEXT = st.integers(0, 3)
PLACE = st.integers(0, 12)
LATER = 1.0
"""After all that is ever written or read."""


class HostMachine(RuleBasedStateMachine):
    """Blocks come, are used, make room, and are set aside, in any order."""

    @initialize(blocks=st.integers(1, 20))
    def build(self, blocks: int) -> None:
        self.host = HostMemory(blocks)
        self.here: list[Block] = []  # in the order in which they leave
        self.aside = 0

    def evict(self, blocks: int) -> int:
        """Free blocks, at most so many, after evicting as few as possible."""
        free = self.host.blocks - self.aside - len(self.here)
        gone = min(max(0, blocks - free), len(self.here))
        del self.here[:gone]
        return min(blocks, free + gone)

    @rule(text=TEXT, low=PLACE, blocks=st.integers(1, 9))
    def keep(self, text: int, low: int, blocks: int) -> None:
        high = low + blocks
        gaps = self.host.missing(text, low, high)
        wanted = [(t, n) for t, first, last in gaps for n in range(first, last)]
        assert wanted == [(text, n) for n in range(low, high) if (text, n) not in self.here]
        taken = self.host.keep(gaps, LATER, 0.0)
        for _, first, last in gaps:
            room = self.evict(last - first)
            self.here += [(text, n) for n in reversed(range(first, first + room))]
            taken -= room
            if room < last - first:
                break
        assert taken == 0

    @rule(text=TEXT, low=PLACE, blocks=st.integers(1, 9))
    def use(self, text: int, low: int, blocks: int) -> None:
        self.host.use(text, low, low + blocks)
        used = [(text, n) for n in reversed(range(low, low + blocks)) if (text, n) in self.here]
        self.here = [block for block in self.here if block not in used] + used

    @rule(text=TEXT, low=PLACE, blocks=st.integers(0, 20))
    def find(self, text: int, low: int, blocks: int) -> None:
        end = low
        while end < low + blocks and (text, end) in self.here:
            end += 1
        assert self.host.find(text, low, low + blocks) == (end, 0.0)

    @rule(blocks=st.integers(0, 8))
    def set_aside(self, blocks: int) -> None:
        room = self.evict(blocks)
        assert self.host.reserve(blocks, LATER) == (room == blocks)
        self.aside += blocks * (room == blocks)

    @rule()
    def take_back(self) -> None:
        self.host.release(self.aside)
        self.aside = 0

    @invariant()
    def every_block_holds_one_thing(self) -> None:
        self.host.check_integrity(self.aside)
        assert self.host.kept == len(self.here)


TestHost = HostMachine.TestCase
TestHost.settings = settings(stateful_step_count=40)


def test_examples() -> None:
    assert doctest.testmod(sim.memory.host).failed == 0


def test_what_is_written_or_read_does_not_leave() -> None:
    host = HostMemory(4)
    assert host.keep([(1, 0, 2)], now=0.0, until=5.0) == 2
    assert host.keep([(2, 0, 2)], now=0.0, until=1.0) == 2
    assert host.make_room(4, now=1.0) == 2
    assert host.find(1, 0, 2) == (2, 5.0)
    assert host.make_room(4, now=5.0) == 4


def made(number: int, prompt: int, prefix: Prefix = ()) -> Request:
    return Request(number, 0.0, prompt, 5, prefix=prefix)


def tiered(blocks: int) -> tuple[TieredAllocator, list[Move]]:
    """A cache of so many blocks, with a second in the host for each, and what moves."""
    moves: list[Move] = []
    link = HostLink(1.0, 0.0)
    link.note = moves.append
    return TieredAllocator(blocks, 16, HostMemory(100), link), moves


def test_only_full_blocks_of_prompts_that_the_host_lacks_are_stored() -> None:
    kv, moves = tiered(20)
    first, second = made(0, 70, ((1, 40),)), made(1, 50, ((1, 40),))
    for request in (first, second):
        assert kv.allocate(request, request.prompt_tokens - kv.cached(request) + 30)
    kv.store(first, 40, now=2.0)
    kv.store(first, 70, now=3.0)
    kv.store(first, 90, now=4.0)  # an answer
    kv.store(second, 50, now=5.0)
    assert [move[2:] for move in moves] == [(2.0, 4.0, 2), (4.0, 6.0, 2), (6.0, 7.0, 1)]
    assert kv.host.kept == 5  # of text 1 two; of the first, two more; of the second, one


def test_a_lookup_goes_on_in_the_host_where_the_gpu_ends() -> None:
    kv, _ = tiered(8)
    first = made(0, 65, ((1, 64),))
    assert kv.allocate(first, 65)
    kv.store(first, 65, now=0.0)
    kv.free(first)
    kv.ended(first)
    again = made(1, 65, ((1, 64),))
    assert (kv.cached(again), kv.in_host(again)) == (64, (0, 0.0))
    assert kv.allocate(made(2, 100), 96)  # takes two of the four
    assert (kv.cached(again), kv.in_host(again)) == (32, (2, 4.0))


def test_what_arrives_is_found_when_it_is_there() -> None:
    kv, _ = tiered(8)
    first, second = made(0, 65, ((1, 64),)), made(1, 65, ((1, 64),))
    kv.await_load(first)
    assert kv.allocate(first, 64)
    assert kv.cached(second) == 0
    kv.check_integrity({first: (64, False)})
    kv.loaded(first)
    assert kv.cached(second) == 64
    kv.check_integrity({first: (64, False)})
