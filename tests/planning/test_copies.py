"""Calls in copies of a process, and searches that play several runs at a time."""

import os
import signal
import threading
import time

import pytest

from sim.copies import LOOK_EVERY, Workers, can_copy, result_of
from sim.errors import InfersimError
from sim.metrics.bands.end_times import EndTimes
from sim.metrics.slo.objectives import slo_objectives
from sim.planning.load.advance import USUAL, Advance, PlanSteps, Simulated
from sim.planning.load.find import _end_in_copy, find
from sim.planning.load.find_document import document
from sim.planning.load.finder import Finder
from sim.planning.load.played import Player
from sim.setup import prepare
from tests.planning.test_find import found_steep, steep

pytestmark = pytest.mark.skipif(not can_copy(), reason="needs a system that forks, and one thread")


def _sum(kept: list[int], number: int) -> tuple[int, int]:
    return sum(kept) + number, os.getpid()


def _killed(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _refused(_: object) -> None:
    raise InfersimError("not this one")


def test_a_copy_has_what_there_was_when_it_was_made() -> None:
    kept, threads = [1, 2], threading.active_count()
    with Workers(kept, 1) as copies:
        kept.append(4)
        first, where = result_of(copies.submit(_sum, 10))
        kept.append(8)
        second, again = result_of(copies.submit(_sum, 10))
    assert (first, second) == (17, 17)
    assert where == again != os.getpid()
    assert threading.active_count() == threads  # nothing of it is left


def test_what_a_copy_raises_is_raised_and_what_kills_it_is_told() -> None:
    with Workers(None, 1) as copies, pytest.raises(InfersimError, match="not this one"):
        result_of(copies.submit(_refused))
    with Workers(None, 1) as copies, pytest.raises(InfersimError, match="memory ran out"):
        result_of(copies.submit(_killed))


def test_a_process_of_several_threads_is_not_copied() -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        assert not can_copy()
    finally:
        done.set()
        other.join()


@pytest.mark.usefixtures("brief_answers")
def test_runs_side_by_side_give_the_same_answer() -> None:
    alone, _ = found_steep()
    together = find(steep(), "rate", jobs=3)
    assert document(together) == document(alone)


def test_what_was_begun_and_not_asked_for_changes_nothing() -> None:
    finder = Finder(steep(), "rate", slo_objectives(steep()))
    alone = finder.probe(20.0, 1)
    other = Finder(steep(), "rate", finder.objectives)
    with other.side_by_side(2):
        other.ahead(20.0, 1)
        other.ahead(25.0, 1, whole=True)
        assert other.probe(20.0, 1).document() == alone.document()
    assert other.probe(25.0, 1).document() == finder.probe(25.0, 1).document()


def test_a_search_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    advance = Advance(lambda done, total: told.append((done, total)))
    for _ in range(100):  # more than is usual
        advance.played(400, 2)
    advance.expect(1200)
    for _ in range(3):
        advance.played(400, 1)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert all(done <= total for done, total in told)
    assert told[0] == (400, 400 + USUAL * 200 - 400)


def test_what_is_simulated_beyond_the_loads_shortens_what_is_expected() -> None:
    told: list[tuple[int, int]] = []
    advance = Advance(lambda done, total: told.append((done, total)))
    assert advance.simulated is not None
    advance.expect(10_000)
    run = advance.simulated.run()
    for done in (2000, 8000, 30_000):  # as at the ends of the band, which are no loads
        run(done, 30_000)
    assert told == [(2000, 10_000), (8000, 10_000), (30_000, 31_000)]


def test_runs_at_the_ends_of_the_band_are_counted() -> None:
    scenario, counted = steep(), Simulated()
    finder = Finder(scenario, "rate", slo_objectives(scenario))
    player = Player(prepare(scenario), finder.objectives, counted)
    found = _end_in_copy(player, finder.axis, finder.objectives, EndTimes(1.06), 20.0, 0.05, 1)
    assert found
    assert counted.requests >= 2 * (scenario.run.requests or 0)


def test_requests_are_counted_while_others_play_them() -> None:
    """Of work in copies the one that waits sees how far it is, before any of it is done."""
    seen: list[float] = []
    simulated = Simulated(lambda: seen.append(simulated.requests))
    with Workers(simulated, 2) as copies:
        begun = copies.submit(_slowly)
        assert result_of(begun, simulated.look) == 3
    assert simulated.requests == 3000
    assert simulated.usual == 3000
    assert any(0 < each < 3000 for each in seen)
    assert seen == sorted(seen)


def _slowly(simulated: Simulated) -> int:
    tell = simulated.run()
    for done in range(4):
        tell(1000 * done, 3000)
        time.sleep(1.2 * LOOK_EVERY)
    return 3


def test_a_long_step_tells_how_far_it_is() -> None:
    told: list[tuple[float, float]] = []
    steps = PlanSteps(lambda done, total: told.append((done, total)))
    steps.expect(3)
    assert steps.simulated is not None
    first = steps.simulated.run()
    for done in (0, 2000, 4000):
        first(done, 4000)
    shares = [done for done, _ in told]
    assert shares[0] == 0.0
    assert 0 < shares[1] < shares[2] < 1
    steps.did()
    assert told[-1] == (1, 3)
    second = steps.simulated.run()
    second(4000, 4000)  # as many as the first step took
    assert told[-1] == (1.5, 3)
    steps.drop(1)
    assert told[-1] == (1.5, 2), "what is not needed says nothing of the pace"
    steps.did()
    assert told[-1] == (2, 2)


def test_a_search_tells_how_far_its_first_runs_are() -> None:
    told: list[tuple[float, float]] = []
    advance = Advance(lambda done, total: told.append((done, total)))
    assert advance.simulated is not None
    run = advance.simulated.run()
    run(0, 5000)
    run(4096, 5000)
    advance.played(5000, 1)
    assert [done for done, _ in told] == [0, 4096, 5000]
    assert told[0][1] == USUAL * 5000
    assert all(0 <= done < total for done, total in told)
