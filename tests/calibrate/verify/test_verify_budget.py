"""How a verification stays within its time: what is planned, what is dropped, what is refused.

A made-up machine takes a made-up time for each part; no clock of a real one is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from calibrate.verify.budget import (
    CALIBRATION,
    EXPECTED,
    RUN,
    Begun,
    Costs,
    Wish,
    fit,
    least_total,
    versions,
)
from calibrate.verify.course import VerifyCourse, check
from sim.errors import UsageError

TRACES = ("burst", "closed", "poisson")
BATCHINGS = ("static", "request", "continuous")


def wish(total: float, traces: tuple[str, ...] = TRACES, repeats: int = 3) -> Wish:
    return Wish(total, traces, BATCHINGS, repeats)


def times(factor: float) -> Costs:
    return Costs(
        factor * EXPECTED.calibration,
        factor * EXPECTED.around,
        {name: factor * seconds for name, seconds in EXPECTED.runs.items()},
    )


@dataclass
class Machine:
    """Does a verification in made-up time; what was done is in ``log``.

    ``costs`` are those of the shortest useful parts; once ``breaks`` parts are done everything
    takes ``factor`` times as long. A calibration ends when its time is over, but is useful.
    """

    costs: Costs
    factor: float = 1.0
    breaks: int = 10**9
    now: float = 0.0
    parts: int = 0
    log: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def drag(self) -> float:
        return self.factor if self.parts >= self.breaks else 1.0

    def spend(self, seconds: float) -> None:
        self.now += seconds
        self.parts += 1

    def verify(self, asked: Wish) -> float:
        """Seconds that it took."""
        course = VerifyCourse(asked, self.said.append, clock=lambda: self.now)
        while (trace := course.next_trace()) is not None:
            self.calibrate(course, trace)
            version = course.opened(
                {name: self.drag * seconds for name, seconds in self.costs.runs.items()}
            )
            if version is None:
                course.finished(trace)
                continue
            length = course.longer(trace) * self.costs.runs[trace]  # times the drag of each run
            number, more = 0, True
            while more:
                number += 1
                for batching in version.batchings:
                    if not course.run(f"{trace}: {batching}"):
                        break
                    self.spend(length * self.drag)
                    self.log.append(f"{trace} {batching} {number}")
                    course.ran()
                self.calibrate(course, trace)
                more = course.closed()
            course.finished(trace)
        return self.now

    def calibrate(self, course: VerifyCourse, trace: str) -> None:
        least = self.costs.calibration * self.drag
        self.spend(max(course.calibration(trace), least))
        course.calibrated(trace, least)
        self.spend(self.costs.around * self.drag)

    def done(self) -> dict[str, int]:
        """Runs by trace."""
        return {name: sum(name in line for line in self.log) for name in TRACES}


def steps(factor: float) -> Machine:
    return Machine(times(factor))


@pytest.mark.parametrize("total", [120.0, 180.0, 300.0, 600.0, 1800.0])
@pytest.mark.parametrize("factor", [0.3, 1.0, 2.0])
def test_all_of_it_takes_no_longer_than_the_total(total: float, factor: float) -> None:
    machine = steps(factor)
    assert machine.verify(wish(total)) <= total
    assert machine.done()["burst"] > 0


def test_time_is_used_and_not_only_kept() -> None:
    machine = steps(1.0)
    assert machine.verify(wish(600.0)) > 0.85 * 600.0
    assert machine.done() == dict.fromkeys(TRACES, 9)
    assert machine.said[-1].endswith(" left")


def test_a_machine_three_times_as_slow_drops_repeats_and_stays_within_the_total() -> None:
    quick, slow = steps(1.0), steps(3.0)
    for machine in (quick, slow):
        assert machine.verify(wish(600.0)) <= 600.0
    assert quick.done()["burst"] == 9
    assert slow.done() == {"burst": 3, "closed": 3, "poisson": 3}
    assert "To stay within 10 min: 1 run of each kind instead of 3." in slow.said


@pytest.mark.parametrize("breaks", [3, 5, 8, 12, 14, 17])
def test_a_machine_that_becomes_slow_midway_drops_what_is_left(breaks: int) -> None:
    machine = Machine(times(1.0), factor=4.0, breaks=breaks)
    assert machine.verify(wish(400.0)) <= 400.0
    steady = steps(1.0)
    steady.verify(wish(400.0))
    assert 3 <= len(machine.log) < len(steady.log)


def test_the_rest_of_a_round_is_left_out_if_the_machine_becomes_slow_within_it() -> None:
    machine = Machine(times(1.0), factor=2.0, breaks=3)
    assert machine.verify(wish(120.0, ("burst",), repeats=1)) <= 120.0
    assert machine.log == ["burst static 1", "burst request 1"]
    assert any(line.startswith("The rest of this round is left out") for line in machine.said)


def test_what_is_dropped_first() -> None:
    found = [
        (one.repeats, len(one.traces), len(one.batchings)) for one in versions(wish(60.0), Begun())
    ]
    assert found == [
        *((3, 3, 3), (2, 3, 3), (1, 3, 3)),
        *((1, 2, 3), (1, 1, 3)),
        *((1, 1, 2), (1, 1, 1)),
    ]
    *_, last = versions(wish(60.0), Begun())
    assert (last.traces, last.batchings) == (("burst",), ("continuous",))


def lefts() -> Iterator[float]:
    left = 900.0
    while left > 40.0:
        yield left
        left *= 0.98


def test_lengths_shrink_before_anything_is_dropped() -> None:
    """With less and less time, what is done never grows, and nothing is dropped while calibrations
    or runs could still be shorter."""
    before = fit(900.0, wish(900.0), EXPECTED)
    for left in lefts():
        now = fit(left, wish(900.0), EXPECTED)
        assert now.seconds <= left * (1 + 1e-9)
        assert EXPECTED.calibration <= now.calibration <= CALIBRATION
        assert all(EXPECTED.runs[name] <= run <= RUN for name, run in now.runs.items())
        size = (now.repeats, len(now.traces), len(now.batchings))
        assert size <= (before.repeats, len(before.traces), len(before.batchings))
        if size != (before.repeats, len(before.traces), len(before.batchings)):
            assert before.calibration < EXPECTED.calibration * 1.3
        before = now


def test_a_trace_that_has_begun_is_finished_with_what_it_began_with() -> None:
    begun = Begun(calibrations=2, runs=2, batchings=("static", "continuous"), run=5.0)
    found = fit(0.0, wish(60.0, ("closed", "poisson")), EXPECTED, begun)
    assert (found.traces, found.batchings) == (("closed",), ("static", "continuous"))
    assert (found.repeats, found.seconds) == (1, pytest.approx(0.0))


def test_after_a_finished_trace_all_others_may_be_dropped() -> None:
    assert fit(0.0, wish(60.0, ("poisson",)), EXPECTED, Begun(finished=1)).traces == ()
    assert fit(0.0, wish(60.0, ("poisson",)), EXPECTED).traces == ("poisson",)


def test_too_little_time_is_refused_with_the_least_that_is_enough() -> None:
    least = least_total(wish(1.0), EXPECTED)
    check(wish(least))
    with pytest.raises(UsageError, match=r"--total-time 20s: too short; .* give --total-time 85s"):
        check(wish(20.0))
    machine = steps(1.0)
    assert machine.verify(wish(least)) <= least
    assert machine.log == ["burst continuous 1"]
    assert machine.said[-1] == "To stay within 42.1 s: no trace closed or poisson."


def test_a_slow_machine_is_refused_once_it_has_shown_that_it_is_slow() -> None:
    machine = steps(3.0)
    with pytest.raises(UsageError, match=r"--total-time 60s: too short; .* 140s"):
        machine.verify(wish(60.0))
    assert machine.log == []
    again = steps(3.0)
    assert again.verify(wish(130.0)) <= 130.0


def test_lengths_that_are_given_stay_and_repeats_are_dropped() -> None:
    given = Wish(300.0, TRACES, BATCHINGS, 3, calibration=20.0, run=8.0)
    found = fit(300.0, given, EXPECTED)
    assert (found.calibration, found.runs["burst"], found.repeats) == (20.0, 8.0, 1)
    free = Wish(float("inf"), TRACES, BATCHINGS, 3, calibration=20.0, run=8.0)
    assert fit(float("inf"), free, EXPECTED).repeats == 3


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.3, 1.9])
def test_the_time_that_a_refusal_names_is_enough(factor: float) -> None:
    """Also on a machine that takes longer than expected: there is no second refusal."""
    with pytest.raises(UsageError, match=r"says so after the first calibration") as refused:
        check(wish(20.0))
    (named,) = re.findall(r"give --total-time (\d+)s", str(refused.value))
    machine = steps(factor)
    assert machine.verify(wish(float(named))) <= float(named)
    assert machine.log


@pytest.mark.parametrize("factor", [2.5, 3.0, 5.0])
def test_what_a_slow_machine_is_told_after_its_first_calibration_is_enough(factor: float) -> None:
    with pytest.raises(UsageError) as refused:
        steps(factor).verify(wish(60.0))
    (named,) = re.findall(r"give --total-time (\d+)s", str(refused.value))
    assert steps(factor).verify(wish(float(named))) <= float(named)
