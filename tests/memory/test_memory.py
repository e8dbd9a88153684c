"""The allocators against lists of sequences whose blocks are counted one by one."""

from __future__ import annotations

import copy
import doctest
import importlib
import pkgutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import sim.memory
from sim.memory import Allocator, ContiguousAllocator, PagedAllocator
from sim.request import Request

SIZES = st.sampled_from([1, 2, 3, 4, 16])
ANY = st.integers(0, 10_000)
"""Picks a sequence: modulo how many there are."""


class Held:
    """One sequence: the tokens it holds and whether it grows with every iteration."""

    def __init__(self, request: Request, tokens: int) -> None:
        self.request = request
        self.tokens = tokens
        self.decoding = False


def owner() -> Request:
    """Somebody who may have memory; the allocators do not ask how long the prompt is."""
    return Request(0, 0.0, 1, 1)


def blocks_of(tokens: int, size: int) -> int:
    """Blocks that hold ``tokens``, opened one after the other."""
    blocks = 0
    while blocks * size < tokens:
        blocks += 1
    return blocks


def fed(lengths: list[int], size: int, free: int, iterations: int) -> int:
    """How many iterations, one token more for each of ``lengths``, ``free`` blocks can feed."""
    lengths = list(lengths)
    for done in range(iterations):
        free -= sum(tokens % size == 0 for tokens in lengths)  # those whose last block is full
        if free < 0:
            return done
        lengths = [tokens + 1 for tokens in lengths]
    return iterations


def start(kv: Allocator, lengths: list[int]) -> list[Request]:
    """Let sequences of those lengths decode."""
    requests = [owner() for _ in lengths]
    for request, tokens in zip(requests, lengths, strict=True):
        assert kv.allocate(request, tokens)
        kv.join(request)
    return requests


class PagedMachine(RuleBasedStateMachine):
    """Sequences come, are prefilled in chunks, decode, stop and go, in any order."""

    @initialize(size=SIZES, blocks=st.integers(1, 40))
    def build(self, size: int, blocks: int) -> None:
        self.size = size
        self.blocks = blocks
        self.kv = PagedAllocator(blocks, size)
        self.sequences: list[Held] = []

    def free(self) -> int:
        return self.blocks - sum(blocks_of(s.tokens, self.size) for s in self.sequences)

    def demand(self) -> int:
        """Blocks that the next iteration opens."""
        return sum(s.decoding and s.tokens % self.size == 0 for s in self.sequences)

    @rule(tokens=st.integers(1, 70))
    def admit(self, tokens: int) -> None:
        room = blocks_of(tokens, self.size) <= self.free()
        request = owner()
        assert self.kv.fits(request, tokens) == room
        assert self.kv.allocate(request, tokens) == room
        if room:
            self.sequences.append(Held(request, tokens))

    @precondition(lambda self: any(not s.decoding for s in self.sequences))
    @rule(pick=ANY, tokens=st.integers(1, 70))
    def prefill_more(self, pick: int, tokens: int) -> None:
        still = [s for s in self.sequences if not s.decoding]
        chosen = still[pick % len(still)]
        more = blocks_of(chosen.tokens + tokens, self.size) - blocks_of(chosen.tokens, self.size)
        room = more <= self.free()
        assert self.kv.allocate(chosen.request, tokens) == room
        if room:
            chosen.tokens += tokens

    @precondition(lambda self: any(not s.decoding and s.tokens > 1 for s in self.sequences))
    @rule(pick=ANY, back=ANY)
    def undo(self, pick: int, back: int) -> None:
        still = [s for s in self.sequences if not s.decoding and s.tokens > 1]
        chosen = still[pick % len(still)]
        tokens = 1 + back % (chosen.tokens - 1)
        self.kv.give_back(chosen.request, tokens)
        chosen.tokens -= tokens

    @precondition(lambda self: any(not s.decoding for s in self.sequences))
    @rule(pick=ANY)
    def join(self, pick: int) -> None:
        still = [s for s in self.sequences if not s.decoding]
        chosen = still[pick % len(still)]
        self.kv.join(chosen.request)
        chosen.decoding = True

    @rule(iterations=st.integers(1, 50))
    def grow(self, iterations: int) -> None:
        lengths = [s.tokens for s in self.sequences if s.decoding]
        last = fed(lengths, self.size, self.free(), iterations)
        assert self.kv.horizon(iterations) == last
        if not last:
            return
        self.kv.grow(last)
        for sequence in self.sequences:
            sequence.tokens += last * sequence.decoding

    @precondition(lambda self: any(s.decoding for s in self.sequences))
    @rule(pick=ANY)
    def leave(self, pick: int) -> None:
        moving = [s for s in self.sequences if s.decoding]
        chosen = moving[pick % len(moving)]
        self.kv.leave(chosen.request)
        chosen.decoding = False

    @precondition(lambda self: any(not s.decoding for s in self.sequences))
    @rule(pick=ANY)
    def give_back(self, pick: int) -> None:
        still = [s for s in self.sequences if not s.decoding]
        chosen = still[pick % len(still)]
        self.kv.free(chosen.request)
        self.sequences.remove(chosen)

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "kv"):
            return
        assert self.kv.free_blocks == self.free() >= 0
        assert self.kv.reserved == (self.blocks - self.free()) * self.size
        assert (self.kv.horizon(1) == 1) == (self.demand() <= self.free())
        self.kv.check_integrity({s.request: (s.tokens, s.decoding) for s in self.sequences})

    def teardown(self) -> None:
        if not hasattr(self, "kv"):
            return
        for sequence in self.sequences:
            if sequence.decoding:
                self.kv.leave(sequence.request)
            self.kv.free(sequence.request)
        assert self.kv.free_blocks == self.blocks
        self.kv.check_integrity({})


TestPagedAllocator = PagedMachine.TestCase
TestPagedAllocator.settings = settings(stateful_step_count=40)


@given(
    size=SIZES,
    lengths=st.lists(st.integers(1, 60), max_size=8),
    before=st.integers(0, 40),
    iterations=st.integers(1, 200),
)
def test_growth_opens_exactly_the_blocks_that_the_lengths_need(
    size: int, lengths: list[int], before: int, iterations: int
) -> None:
    """For one step of any number of iterations, and as many steps of one."""
    kv = PagedAllocator(100_000, size)
    requests = start(kv, lengths)
    if before:
        kv.grow(before)
    single, requests_too = copy.deepcopy((kv, requests))
    kv.grow(iterations)
    for _ in range(iterations):
        single.grow(1)
    end = [tokens + before + iterations for tokens in lengths]
    used = sum(blocks_of(tokens, size) for tokens in end)
    assert kv.num_blocks - kv.free_blocks == single.num_blocks - single.free_blocks == used
    for books, who in ((kv, requests), (single, requests_too)):
        books.check_integrity({r: (tokens, True) for r, tokens in zip(who, end, strict=True)})


@given(
    size=SIZES,
    lengths=st.lists(st.integers(1, 60), max_size=8),
    before=st.integers(0, 40),
    spare=st.integers(0, 60),
    iterations=st.integers(0, 300),
)
def test_the_horizon_is_the_last_iteration_that_can_be_fed(
    size: int, lengths: list[int], before: int, spare: int, iterations: int
) -> None:
    used = sum(blocks_of(tokens + before, size) for tokens in lengths)
    kv = PagedAllocator(used + spare, size)
    start(kv, lengths)
    if before:
        kv.grow(before)
    assert kv.free_blocks == spare
    now = [tokens + before for tokens in lengths]
    horizon = kv.horizon(iterations)
    assert horizon == fed(now, size, spare, iterations)
    if horizon:
        kv.grow(horizon)
    assert kv.free_blocks >= 0
    if horizon < iterations:
        assert kv.horizon(1) == 0


def test_the_horizon_of_an_empty_batch_is_never_short() -> None:
    kv = PagedAllocator(2, 4)
    assert kv.allocate(owner(), 8)
    assert kv.free_blocks == 0
    assert kv.horizon(1) == 1
    assert kv.horizon(1_000_000) == 1_000_000


@given(
    size=SIZES,
    blocks=st.integers(1, 60),
    held=st.integers(0, 60),
    tokens=st.integers(1, 60),
    sequences=st.integers(1, 5),
    spare=st.sampled_from([0.0, 0.01, 0.25, 0.5]),
)
def test_fits_means_that_they_can_all_be_allocated(
    size: int, blocks: int, held: int, tokens: int, sequences: int, spare: float
) -> None:
    """Blocks are not shared between sequences, and the spare share is left in whole blocks."""
    kv = PagedAllocator(blocks, size)
    if held and not kv.allocate(owner(), held):
        return
    room = kv.room(tokens)
    for number in range(sequences):
        fits = kv.fits(owner(), tokens, spare=spare)
        allocated = kv.allocate(owner(), tokens)
        assert fits == (allocated and kv.free_blocks >= int(spare * blocks))
        assert allocated == (number < room)


def test_what_does_not_fit_changes_nothing() -> None:
    kv = PagedAllocator(num_blocks=3, block_size=4)
    one, two = owner(), owner()
    assert kv.allocate(one, 5)
    assert not kv.allocate(two, 5)
    assert not kv.allocate(one, 8)
    assert kv.free_blocks == 1
    assert kv.allocate(one, 7)
    assert kv.free_blocks == 0
    kv.check_integrity({one: (12, False)})


@pytest.mark.parametrize("kv", [PagedAllocator(3, 4), ContiguousAllocator(30, 10)])
def test_all_given_back_is_all_free(kv: Allocator) -> None:
    request = owner()
    assert kv.allocate(request, 5)
    assert kv.allocate(request, 4)
    kv.give_back(request, 4)
    kv.check_integrity({request: (5, False)})
    kv.give_back(request, 5)
    kv.check_integrity({})
    assert (kv.free_blocks, kv.reserved) == (3, 0)


@pytest.mark.parametrize("kv", [PagedAllocator(3, 4), ContiguousAllocator(30, 10)])
def test_who_has_nothing_cannot_free_it(kv: Allocator) -> None:
    with pytest.raises(KeyError):
        kv.free(owner())
    assert kv.free_blocks == 3


@pytest.mark.parametrize("kv", [PagedAllocator(3, 4), ContiguousAllocator(30, 10)])
def test_plain_memory_remembers_no_prompt(kv: Allocator) -> None:
    request = owner()
    assert kv.allocate(request, 9)
    kv.free(request)
    assert kv.cached(request) == 0


def test_a_chunk_opens_only_the_blocks_that_its_sequence_has_not_got() -> None:
    kv = PagedAllocator(num_blocks=10, block_size=4)
    used = []
    request = owner()
    for tokens in (3, 1, 1, 3, 9):
        assert kv.allocate(request, tokens)
        used.append(10 - kv.free_blocks)
    assert used == [1, 1, 2, 2, 5]
    assert kv.reserved == 20


@pytest.mark.parametrize(("tokens", "ever"), [(12, True), (13, False)])
def test_an_empty_cache_holds_its_capacity_and_no_more(tokens: int, ever: bool) -> None:
    kv = PagedAllocator(num_blocks=3, block_size=4)
    assert kv.capacity == 12
    assert kv.can_ever_fit(tokens) == ever
    assert kv.allocate(owner(), 1)
    assert kv.can_ever_fit(tokens) == ever  # whatever is in it now


@pytest.mark.parametrize(
    "books",
    [
        [],  # a block too many is taken
        [(4, True), (4, False)],  # one too few
        [(4, False)],  # not growing
        [(3, True)],  # growing from another length
        [(5, True)],
    ],
)
def test_check_integrity_sees_books_that_do_not_match(books: list[tuple[int, bool]]) -> None:
    kv = PagedAllocator(num_blocks=8, block_size=4)
    requests = [*start(kv, [4]), owner()]
    kv.check_integrity({requests[0]: (4, True)})
    with pytest.raises(AssertionError):
        kv.check_integrity(dict(zip(requests, books, strict=False)))


@pytest.mark.parametrize("kv", [PagedAllocator(8, 4), ContiguousAllocator(100, 40)])
def test_check_integrity_sees_memory_of_the_wrong_owner(kv: Allocator) -> None:
    kv.allocate(owner(), 4)
    with pytest.raises(AssertionError):
        kv.check_integrity({owner(): (4, False)})


# -- contiguous ----------------------------------------------------------------------------------


@given(
    slab=st.integers(1, 50),
    capacity=st.integers(0, 200),
    operations=st.lists(st.tuples(st.integers(0, 2), ANY, st.integers(1, 60)), max_size=40),
)
def test_every_sequence_has_one_slab_from_its_first_token_to_its_last(
    slab: int, capacity: int, operations: list[tuple[int, int, int]]
) -> None:
    kv = ContiguousAllocator(capacity, slab)
    slabs = 0
    while (slabs + 1) * slab <= capacity:
        slabs += 1
    held: list[tuple[Request, int]] = []
    for kind, pick, tokens in operations:
        if kind == 0:  # a new one
            room = len(held) < slabs and tokens <= slab
            request = owner()
            assert kv.fits(request, tokens) == room
            assert kv.room(tokens) == (slabs - len(held) if tokens <= slab else 0)
            assert kv.allocate(request, tokens) == room
            if room:
                held.append((request, tokens))
        elif held and kind == 1:  # one grows inside its slab
            chosen = pick % len(held)
            request, had = held[chosen]
            room = had + tokens <= slab
            assert kv.allocate(request, tokens) == room
            held[chosen] = request, had + tokens * room
        elif held:
            kv.free(held.pop(pick % len(held))[0])
        assert kv.free_blocks == slabs - len(held)
        assert kv.reserved == len(held) * slab
        kv.check_integrity({request: (tokens, False) for request, tokens in held})
    for request, _ in held:
        kv.free(request)
    assert kv.free_blocks == slabs
    assert kv.reserved == 0


def test_a_slab_is_never_short_once_its_sequence_is_in() -> None:
    kv = ContiguousAllocator(capacity=50, slab=50)
    [request] = start(kv, [10])
    assert kv.horizon(1) == 1
    assert kv.horizon(40) == 40
    kv.grow(40)
    kv.leave(request)
    assert kv.reserved == 50
    kv.free(request)
    assert kv.reserved == 0


@pytest.mark.parametrize(
    ("taken", "spare", "fits"),
    [(1, 0.0, True), (3, 0.0, True), (4, 0.0, False), (2, 0.25, True), (3, 0.25, False)],
)
def test_slabs_for_several_and_some_to_spare(taken: int, spare: float, fits: bool) -> None:
    """Four slabs, some of them taken."""
    kv = ContiguousAllocator(capacity=45, slab=10)
    for _ in range(taken):
        assert kv.allocate(owner(), 1)
    assert kv.fits(owner(), 10, spare=spare) == fits
    assert kv.room(10) == 4 - taken
    assert not kv.fits(owner(), 11)
    assert kv.room(11) == 0


@pytest.mark.parametrize(
    ("capacity", "slab", "tokens", "ever"),
    [(100, 40, 40, True), (100, 40, 41, False), (39, 40, 1, False)],
)
def test_a_slab_holds_its_length_if_there_is_one(
    capacity: int, slab: int, tokens: int, ever: bool
) -> None:
    assert ContiguousAllocator(capacity, slab).can_ever_fit(tokens) == ever


def test_lost_slabs_are_noticed() -> None:
    kv = ContiguousAllocator(capacity=100, slab=40)
    [request] = start(kv, [1])
    kv.check_integrity({request: (1, True)})
    for books in ({}, {request: (1, True), owner(): (1, True)}):
        with pytest.raises(AssertionError):
            kv.check_integrity(books)


# -- examples ------------------------------------------------------------------------------------

MODULES = sorted(info.name for info in pkgutil.iter_modules(sim.memory.__path__, "sim.memory."))


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    found = [
        t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples
    ]
    assert {"sim.memory.contiguous.ContiguousAllocator", "sim.memory.paged.PagedAllocator"} <= {
        test.name for test in found
    }


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_the_docstrings_are_right(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
