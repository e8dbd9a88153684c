"""Blocks behind windows: the allocator against sequences whose blocks are counted one by one."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.memory import PagedAllocator
from sim.memory.groups import KvGroup
from sim.memory.windowed import WindowedAllocator
from sim.request import Request
from sim.specs.window import Window

ANY = st.integers(0, 10_000)
KINDS = st.lists(
    st.builds(
        KvGroup,
        st.integers(1, 3),
        st.one_of(st.none(), st.builds(Window, st.integers(1, 30), st.booleans())),
        st.just(0),
    ),
    min_size=1,
    max_size=3,
)


def blocks_of(group: KvGroup, computed: int, tokens: int) -> int:
    """Blocks with a token that the next one after ``computed``, or a later one, sees."""
    window, first = group.window, 0
    if window is not None and window.chunked:
        first = computed // window.size * window.size
    elif window is not None:
        first = max(0, computed - window.size + 1)
    return group.number * len({*range(-(-tokens // group.block))} - {*range(first // group.block)})


def owner() -> Request:
    return Request(0, 0.0, 1, 1)


class Sequence:
    """One request: its tokens, those computed before the last iteration, whether it grows."""

    def __init__(self, request: Request, tokens: int, computed: int = 0) -> None:
        self.request, self.tokens, self.computed = request, tokens, computed
        self.decoding = False


class WindowedMachine(RuleBasedStateMachine):
    """Sequences come, are prefilled in chunks, decode, stop and go, in any order."""

    @initialize(
        kinds=KINDS,
        size=st.sampled_from([1, 2, 3, 4, 16]),
        blocks=st.integers(1, 90),
        shorter=st.sampled_from([1, 1, 8]),
    )
    def build(self, kinds: list[KvGroup], size: int, blocks: int, shorter: int) -> None:
        """Blocks of groups are of one or two sizes, and may be shorter than what a block counts."""
        self.groups = [group._replace(block=size * (1 + i % 2)) for i, group in enumerate(kinds)]
        self.blocks = blocks
        self.kv = WindowedAllocator(blocks, size * shorter, self.groups)
        self.sequences: list[Sequence] = []

    def used(self, sequences: list[Sequence] | None = None) -> int:
        return sum(
            blocks_of(group, s.computed, s.tokens)
            for group in self.groups
            for s in (self.sequences if sequences is None else sequences)
        )

    def grown(self) -> list[Sequence]:
        """The sequences one iteration on."""
        found = copy.copy(self.sequences)
        for place, s in enumerate(found):
            if s.decoding:
                found[place] = Sequence(s.request, s.tokens + 1, s.tokens)
                found[place].decoding = True
        return found

    @rule(tokens=st.integers(1, 70))
    def admit(self, tokens: int) -> None:
        new = Sequence(owner(), tokens)
        room = self.used([*self.sequences, new]) <= self.blocks
        assert self.kv.fits(new.request, tokens) == room
        assert self.kv.allocate(new.request, tokens) == room
        if room:
            self.sequences.append(new)

    @precondition(lambda self: any(not s.decoding for s in self.sequences))
    @rule(pick=ANY, tokens=st.integers(1, 70), undo=st.booleans())
    def prefill_more(self, pick: int, tokens: int, undo: bool) -> None:
        still = [s for s in self.sequences if not s.decoding]
        chosen = still[pick % len(still)]
        new = Sequence(chosen.request, chosen.tokens + tokens, chosen.tokens)
        others = [s for s in self.sequences if s is not chosen]
        room = self.used([*others, new]) <= self.blocks
        assert self.kv.allocate(chosen.request, tokens) == room
        if not room:
            return
        if undo:
            self.kv.give_back(chosen.request, tokens)
            new.tokens -= tokens
        self.sequences[self.sequences.index(chosen)] = new

    @precondition(lambda self: any(not s.decoding for s in self.sequences))
    @rule(pick=ANY)
    def join(self, pick: int) -> None:
        still = [s for s in self.sequences if not s.decoding]
        chosen = still[pick % len(still)]
        if chosen.computed == chosen.tokens:  # given back: nothing was computed since
            return
        self.kv.join(chosen.request)
        chosen.decoding, chosen.computed = True, chosen.tokens - 1

    @rule(iterations=st.integers(1, 60))
    def grow(self, iterations: int) -> None:
        fed, turned = self.kv.horizon(iterations), self.kv._ahead()
        before, alone = self.kv.reserved, copy.deepcopy(self.kv)
        promised, level = self.kv.growth(fed), self.kv.until_more(fed)
        done = 0
        for done in range(iterations):
            assert self.kv.reserved == self.used() * self.kv.block_size
            coming = self.grown()
            room = self.used(coming) <= self.blocks
            assert self.kv.grow(1) == room
            if not room:
                break
            self.sequences = coming
            if done < level:
                assert self.kv.reserved >= before
            elif done == level < fed:
                assert self.kv.reserved < before
            if done + 1 == fed:
                assert self.kv.reserved - before == promised
                leapt = copy.deepcopy(alone)
                assert leapt.grow(fed)
                assert leapt.reserved == self.kv.reserved
        else:
            done = iterations
        assert fed == min(done, max(turned, 0))
        assert copy.deepcopy(alone).grow(iterations) == (done == iterations)

    @precondition(lambda self: any(s.decoding for s in self.sequences))
    @rule(pick=ANY)
    def leave(self, pick: int) -> None:
        decoding = [s for s in self.sequences if s.decoding]
        chosen = decoding[pick % len(decoding)]
        self.kv.leave(chosen.request)
        chosen.decoding = False

    @precondition(lambda self: any(not s.decoding for s in self.sequences))
    @rule(pick=ANY)
    def free(self, pick: int) -> None:
        still = [s for s in self.sequences if not s.decoding]
        chosen = still[pick % len(still)]
        self.kv.free(chosen.request)
        self.sequences.remove(chosen)

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "kv"):
            return
        assert self.kv.free_blocks == self.blocks - self.used()
        self.kv.check_integrity({s.request: (s.tokens, s.decoding) for s in self.sequences})


TestWindowedMachine = WindowedMachine.TestCase
TestWindowedMachine.settings = settings(stateful_step_count=30)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=8), st.integers(1, 80))
def test_one_group_that_sees_everything_is_the_paged_allocator(
    lengths: list[int], iterations: int
) -> None:
    plain = PagedAllocator(60, 16)
    windowed = WindowedAllocator.of(60, 16, 1000)
    for tokens in lengths:
        request = owner()
        taken = plain.allocate(request, tokens)
        assert windowed.allocate(request, tokens) == taken
        if taken:
            plain.join(request)
            windowed.join(request)
    assert windowed.room(20) == plain.room(20)
    assert windowed.can_ever_fit(961) == plain.can_ever_fit(961) is False
    fed = plain.horizon(iterations)
    assert windowed.horizon(iterations) == fed
    assert windowed.growth(fed) == plain.growth(fed)
    assert windowed.grow(iterations) == plain.grow(iterations)
    assert windowed.reserved == plain.reserved


def test_a_sequence_that_has_filled_its_window_holds_as_many_blocks_for_ever() -> None:
    """A window of 64 in blocks of 16: 64 tokens lie in four blocks or five."""
    kv = WindowedAllocator(100, 16, (KvGroup(1, Window(64), 16),))
    request = owner()
    assert kv.allocate(request, 100)
    assert kv.reserved == 7 * 16  # the prompt is computed as a whole
    kv.join(request)
    held = []
    for _ in range(64):
        assert kv.grow(1)
        held.append(kv.reserved // 16)
    # the token at position 100 sees those from 37 on, in blocks 2 to 6; that at 111 from 48 on, in
    # blocks 3 to 6; that at 112 opens block 7
    assert held[:13] == [5] * 11 + [4] + [5]
    assert set(held) == {4, 5}
    assert held[16:32] == held[32:48]


def test_a_chunk_that_begins_gives_back_the_last_one() -> None:
    """Chunks of 32 in blocks of 16: with the token of position 64 both blocks before it go."""
    kv = WindowedAllocator(100, 16, (KvGroup(2, Window(32, chunked=True), 16),))
    request = owner()
    assert kv.allocate(request, 60)
    kv.join(request)
    held = []
    for _ in range(8):
        assert kv.horizon(50) == max(0, 4 - len(held)) or len(held) > 4
        assert kv.grow(1)
        held.append(kv.reserved // 32)
    assert held == [2, 2, 2, 2, 1, 1, 1, 1]


def test_what_is_reserved_ahead_is_what_there_will_be_at_once() -> None:
    """4,096 tokens: 256 blocks of the layers that see all, and of the others 257 at most."""
    groups = (KvGroup(1, None, 16), KvGroup(1, Window(512), 16))
    most = [group.most(4096, 1024) for group in groups]
    assert most == [256, 97]  # 511 + 1,024 = 1,535 tokens lie in 96 blocks, and one more
    kv = WindowedAllocator(1000, 16, groups, most)
    assert kv.room(4096) == 1000 // (256 + 97)
    request = owner()
    assert kv.allocate(request, 4096)
    assert kv.reserved == (256 + 97) * 16
    kv.free(request)
    assert kv.reserved == 0
    assert not replace_blocks(kv, 352).can_ever_fit(4096)
    assert replace_blocks(kv, 353).can_ever_fit(4096)


def replace_blocks(kv: WindowedAllocator, blocks: int) -> WindowedAllocator:
    return WindowedAllocator(blocks, kv.block_size, kv.groups, kv._most)
