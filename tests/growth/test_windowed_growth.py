"""Sequences seen through windows, against a count of each; runs end where what is seen bends."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sim.growth.window_reads import WindowReads, seen_by_equals
from sim.growth.windowed import Windowed
from sim.loop.batch_timer import BatchTimer
from sim.request import Request
from sim.specs.window import NEVER, Window
from tests.harness import LineTimer

WINDOWS = (Window(4), Window(7), Window(5, chunked=True))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 20), st.integers(1, 30)),
        st.tuples(st.just("leave"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("run"), st.integers(1, 9), st.just(0)),
    ),
    max_size=30,
)


def request(number: int, held: int, output: int = 100) -> Request:
    """One that has got its first token, with so many tokens computed."""
    found = Request(number, 0.0, held, output + 1)
    found.computed, found.generated = held, 1
    return found


def joined(batch: Windowed, *lengths: int) -> list[Request]:
    members = [request(number, held) for number, held in enumerate(lengths)]
    for member in members:
        batch.join(member, 0.0)
    return members


@given(STEPS)
def test_what_is_seen_is_the_sum_of_what_each_member_sees(steps) -> None:
    """Whoever comes and goes, a run never goes beyond the bend that was announced, and until there
    everything grows as it was said to."""
    batch, members = Windowed(WINDOWS), []
    for number, (what, one, other) in enumerate(steps):
        if what == "join":
            members.append(request(number, one, other))
            batch.join(members[-1], float(number))
        elif what == "leave" and members:
            batch.leave(members.pop(one % len(members)))
        elif what == "run" and members:
            seen = batch.seen(batch.size, batch.context)
            times = min(one, seen.left, batch.next_finish - batch.iteration)
            lengths = [r.computed + batch.gained(r) for r in members]
            for place, window in enumerate(WINDOWS):
                for i in range(times):
                    expected = seen.tokens[place] + i * seen.growing[place]
                    assert sum(window.seen(held + i) for held in lengths) == expected
            batch.advance(times, float(number))
            for done in batch.pop_finished():
                members.remove(done)
        lengths = [r.computed + batch.gained(r) for r in members]
        found = batch.seen(batch.size, batch.context)
        for place, window in enumerate(WINDOWS):
            assert found.tokens[place] == sum(map(window.seen, lengths))
            assert found.growing[place] == sum(window.turns(held) < NEVER for held in lengths)
        turns = [window.turns(held) for window in WINDOWS for held in lengths]
        assert found.left == min(turns, default=NEVER)


def test_a_window_that_is_full_grows_no_more() -> None:
    """Of 2 and 9 tokens a window of 4 leaves 2 and 3 to the next one; after one more, 3 and 3."""
    batch = Windowed((Window(4),))
    joined(batch, 2, 9)
    assert batch.seen(2, 11) == WindowReads((5,), (1,), 1)
    batch.advance(1, 1.0)
    assert batch.seen(2, 13) == WindowReads((6,), (0,), NEVER)


def test_a_chunk_begins_anew() -> None:
    """Of 3 and 9 tokens, chunks of 5 leave 3 and 4; the second begins its next chunk after one."""
    batch = Windowed((Window(5, chunked=True),))
    joined(batch, 3, 9)
    assert batch.seen(2, 12) == WindowReads((7,), (2,), 1)
    batch.advance(1, 1.0)
    assert batch.seen(2, 14) == WindowReads((4,), (2,), 1)
    batch.advance(1, 2.0)
    assert batch.seen(2, 16) == WindowReads((1,), (2,), 4)


def test_padded_slots_see_equally_much() -> None:
    """Three slots of six tokens, whichever sequences are in them."""
    batch = Windowed(WINDOWS)
    joined(batch, 6, 2)
    assert (
        batch.seen(3, 18) == seen_by_equals(WINDOWS, 3, 18) == WindowReads((9, 18, 3), (0, 0, 3), 4)
    )
    assert batch.seen(2, 12).tokens == (6, 12, 2)


def test_a_run_ends_at_a_bend_and_where_a_member_changes() -> None:
    batch = Windowed((Window(6),))
    one, _ = joined(batch, 2, 3)
    line = BatchTimer(LineTimer(1.0, 0.0, 0.0, 0.0), batch).line(2, 5)
    assert line[0] == 5 + 2 * 2  # the second fills its window in two iterations
    run = batch.run(0.0, 2, 5, line)
    assert run.left() == 2
    assert run.continues(0.0, 2, 5)
    batch.leave(one)
    batch.join(request(7, 2), 0.0)  # as long as the one that left
    assert not run.continues(0.0, 2, 5)
    assert math.isfinite(run.limit)
