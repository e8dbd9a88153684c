"""Waits that move, the order of a tie, and the parts of SimPy that both are made of."""

from __future__ import annotations

import math
import signal
from collections.abc import Generator
from itertools import permutations
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.loop.clock import ARRIVAL, SCHEDULING, Alarm, Process, Stop, due_now, run

Log = list[tuple[float, str]]


def sleeper(env: simpy.Environment, alarm: Alarm, waits: list[float], log: Log) -> None:
    """Starts a process that writes down when each of its waits ends."""

    def process() -> Process:
        for time in waits:
            yield alarm.at(time, 0)
            log.append((env.now, "awake"))
        yield alarm.at(math.inf, 0)

    alarm.start(process())


def mover(env: simpy.Environment, alarm: Alarm, at: float, to: float, log: Log) -> Process:
    yield env.timeout(at)
    log.append((env.now, f"move to {to:g}"))
    alarm.move(to, 0)


def test_waits_until_an_absolute_time() -> None:
    env, log = simpy.Environment(), Log()
    sleeper(env, Alarm(env), [3.0, 3.5, 10.0], log)
    env.run()
    assert log == [(3.0, "awake"), (3.5, "awake"), (10.0, "awake")]


def test_the_time_is_not_a_delay_and_is_not_rounded() -> None:
    """Seven steps of 0.1 added up miss 0.7 by a bit; an absolute time does not."""
    env, log = simpy.Environment(), Log()
    times = [j * 0.1 for j in range(1, 8)]
    sleeper(env, Alarm(env), times, log)
    env.run()
    assert [time for time, _ in log] == times


def test_a_wait_moves_to_an_earlier_time_and_the_old_event_pops_unheard() -> None:
    env, log = simpy.Environment(), Log()
    alarm = Alarm(env)
    sleeper(env, alarm, [10.0, 12.0], log)
    env.process(mover(env, alarm, 3.0, 5.0, log))
    env.run()
    assert log == [(3.0, "move to 5"), (5.0, "awake"), (12.0, "awake")]


def test_the_old_event_does_not_end_the_next_wait() -> None:
    """Woken early, the process waits again beyond the time of the old event."""
    env, log = simpy.Environment(), Log()
    alarm = Alarm(env)
    sleeper(env, alarm, [4.0, 6.0], log)
    env.process(mover(env, alarm, 1.0, 1.0, log))
    env.run(until=5.0)
    assert log == [(1.0, "move to 1"), (1.0, "awake")]
    env.run()
    assert log[2:] == [(6.0, "awake")]


def test_a_wait_can_be_moved_again_and_again() -> None:
    env, log = simpy.Environment(), Log()
    alarm = Alarm(env)
    sleeper(env, alarm, [10.0], log)
    for at, to in [(1.0, 8.0), (2.0, 6.0), (3.0, 3.0)]:
        env.process(mover(env, alarm, at, to, log))
    env.run()
    assert log == [(1.0, "move to 8"), (2.0, "move to 6"), (3.0, "move to 3"), (3.0, "awake")]
    assert env.now == 10.0  # the old events are still in the queue until their time comes


def test_an_infinite_wait_never_ends_and_never_keeps_the_run_alive() -> None:
    env, log = simpy.Environment(), Log()
    sleeper(env, Alarm(env), [math.inf], log)
    env.timeout(7.0)
    env.run()
    assert env.now == 7.0
    assert log == []


def test_an_infinite_wait_can_be_moved() -> None:
    env, log = simpy.Environment(), Log()
    alarm = Alarm(env)
    sleeper(env, alarm, [math.inf, math.inf], log)
    env.process(mover(env, alarm, 2.0, 2.5, log))
    env.run()
    assert log == [(2.0, "move to 2.5"), (2.5, "awake")]
    assert env.now == 2.5


def test_two_alarms_do_not_disturb_each_other() -> None:
    env, log, other = simpy.Environment(), Log(), Log()
    alarms = [Alarm(env), Alarm(env)]
    sleeper(env, alarms[0], [5.0], log)
    sleeper(env, alarms[1], [5.0], other)
    env.process(mover(env, alarms[1], 1.0, 2.0, []))
    env.run()
    assert (log, other) == ([(5.0, "awake")], [(2.0, "awake")])


@given(
    wait=st.integers(1, 20),
    moves=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6),
)
def test_a_wait_ends_once_at_the_earliest_time_asked_for(
    wait: int, moves: list[tuple[int, int]]
) -> None:
    env, log = simpy.Environment(), Log()
    alarm = Alarm(env)
    sleeper(env, alarm, [float(wait)], log)

    due = wait
    useful = []
    for at, to in sorted(moves):
        if at < due and at <= to < due:  # moves go forward, to the future, while it waits
            useful.append((at, to))
            due = to
    for at, to in useful:
        env.process(mover(env, alarm, float(at), float(to), []))
    env.run()
    assert log == [(due, "awake")]


EVENTS = [
    (0, "completion of replica 0"),
    (1, "completion of replica 1"),
    (ARRIVAL, "arrival"),
    (SCHEDULING, "scheduling of replica 0"),
    (SCHEDULING + 1, "scheduling of replica 1"),
]


def test_at_one_instant_completions_come_first_then_arrivals_then_scheduling() -> None:
    """Whatever was inserted first, and whether an event was placed there or moved there."""
    names = [name for _, name in EVENTS]
    for order in permutations(EVENTS):
        env = simpy.Environment()
        log: list[str] = []

        def wait(alarm: Alarm, priority: int, name: str, log: list[str]) -> Process:
            yield alarm.at(1.0, priority)
            log.append(name)
            yield alarm.at(math.inf, 0)

        for priority, name in order:
            alarm = Alarm(env)
            alarm.start(wait(alarm, priority, name, log))
        env.run()
        assert log == names


def test_a_moved_wait_takes_its_place_in_the_tie() -> None:
    env = simpy.Environment()
    log: list[str] = []
    alarms = {name: Alarm(env) for _, name in EVENTS}

    def wait(name: str) -> Process:
        yield alarms[name].at(math.inf, 0)
        log.append(name)
        yield alarms[name].at(math.inf, 0)

    def move() -> Process:
        yield env.timeout(1.0)
        for priority, name in reversed(EVENTS):
            alarms[name].move(2.0, priority)

    for _, name in EVENTS:
        alarms[name].start(wait(name))
    env.process(move())
    env.run()
    assert log == [name for _, name in EVENTS]


def test_priorities_leave_room_for_a_million_replicas() -> None:
    assert ARRIVAL > 1_000_000
    assert SCHEDULING > ARRIVAL


def test_due_now_sees_events_of_this_instant_only() -> None:
    env = simpy.Environment()
    seen: list[tuple[float, bool]] = []

    alarm = Alarm(env)

    def look() -> Process:
        for time in (1.0, 2.0, 3.0):
            yield alarm.at(time, 0)
            seen.append((env.now, due_now(env)))
        yield alarm.at(math.inf, 0)

    assert not due_now(env)
    alarm.start(look())
    assert due_now(env)  # the start of the process
    env.timeout(2.0)
    env.timeout(2.5)
    env.run()
    assert seen == [(1.0, False), (2.0, True), (3.0, False)]


# -- what ``sim.loop.clock`` relies on inside SimPy ------------------------------------------------


def test_simpy_queue_holds_time_priority_number_event() -> None:
    env = simpy.Environment()
    late = env.timeout(3.0, value="late")
    soon = env.timeout(2.0)
    assert env._now == env.now == 0.0
    assert isinstance(env._queue, list)
    assert env._queue == [(2.0, 1, 1, soon), (3.0, 1, 0, late)]  # a heap; 1 is SimPy's NORMAL
    assert next(env._eid) == 2  # counts insertions


def test_simpy_steps_the_smallest_entry_and_calls_its_callbacks() -> None:
    env = simpy.Environment()
    event = simpy.Event(env)
    calls: list[simpy.Event] = []
    assert event.callbacks == []
    event.callbacks = [calls.append]
    event._ok = True
    event._value = None
    entry: Any = (4.0, 7, next(env._eid), event)  # a priority that SimPy has no name for
    env._queue.append(entry)
    env.step()
    assert calls == [event]
    assert (event.triggered, event.ok, event.value) == (True, True, None)
    assert env.now == 4.0
    assert event.callbacks is None


def test_processes_start_before_anything_else_that_is_due_in_their_order() -> None:
    env = simpy.Environment()
    log: list[str] = []

    def begin(alarm: Alarm, name: str) -> Process:
        log.append(name)
        yield alarm.at(math.inf, 0)

    early = Alarm(env)
    early.at(0.0, 0)
    for name in ("one", "two"):
        alarm = Alarm(env)
        alarm.start(begin(alarm, name))
    assert log == []
    run(env, 0.0, Stop())
    assert log == ["one", "two"]


def test_what_goes_wrong_in_a_process_is_raised_as_it_is() -> None:
    env = simpy.Environment()
    alarm = Alarm(env)
    mistake = KeyError("which")

    def process() -> Process:
        yield alarm.at(1.0, 0)
        raise mistake

    alarm.start(process())
    with pytest.raises(KeyError) as caught:
        run(env, math.inf, Stop())
    assert caught.value is mistake


@pytest.mark.parametrize("heeded", [True, False])
def test_a_failed_event_is_raised_unless_somebody_heeds_it(heeded: bool) -> None:
    env = simpy.Environment()
    log: list[str] = []
    event = env.event()

    def wait() -> Generator[simpy.Event, None, None]:
        try:
            yield event
        except KeyError:
            log.append("heeded")

    if heeded:
        env.process(wait())
    event.fail(KeyError("which"))
    env.timeout(1.0).callbacks.append(lambda _: log.append("later"))
    if heeded:
        run(env, math.inf, Stop())
        assert log == ["heeded", "later"]
    else:
        with pytest.raises(KeyError):
            run(env, math.inf, Stop())
        assert log == []


def test_run_leaves_what_lies_behind_the_horizon_for_the_next_one() -> None:
    env, log = simpy.Environment(), Log()
    sleeper(env, Alarm(env), [1.0, 2.0, 3.0], log)
    run(env, 2.5, Stop())
    assert (env.now, env.peek()) == (2.0, 3.0)
    run(env, 3.0, Stop())
    assert log == [(1.0, "awake"), (2.0, "awake"), (3.0, "awake")]


def test_moving_a_wait_that_is_over_is_refused() -> None:
    env = simpy.Environment()
    alarm = Alarm(env)
    with pytest.raises(AssertionError):
        alarm.move(1.0, 0)
    alarm.at(1.0, 0)
    env.run()
    with pytest.raises(AssertionError):
        alarm.move(2.0, 0)


def test_run_ends_behind_the_horizon_with_everything_of_that_instant_done() -> None:
    env = simpy.Environment()
    log: list[float] = []

    def tick() -> Process:
        while True:
            yield env.timeout(0.5)
            log.append(env.now)

    env.process(tick())
    run(env, 1.5, Stop())
    assert log == [0.5, 1.0, 1.5]


def test_an_interrupt_waits_for_the_end_of_the_event() -> None:
    env = simpy.Environment()
    log: list[str] = []

    def work() -> Process:
        yield env.timeout(1.0)
        log.append("begun")
        signal.raise_signal(signal.SIGINT)
        log.append("ended")
        yield env.timeout(1.0)
        log.append("never")

    before = signal.getsignal(signal.SIGINT)
    env.process(work())
    with Stop() as stop:
        run(env, math.inf, stop)
    assert stop.requested
    assert log == ["begun", "ended"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_does_not_wait() -> None:
    with Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
