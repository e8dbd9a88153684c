"""Calls that are asked for one by one, in this process and in copies of it."""

import operator
from concurrent.futures import Future
from typing import Any

import pytest

from sim.copies import can_copy
from sim.errors import InfersimError
from sim.planning.points.executors import Crew, crew

JOBS = [1, pytest.param(2, marks=pytest.mark.skipif(not can_copy(), reason="needs to fork"))]


def power(kept: float, times: int) -> float:
    return kept**times


def refuse(_: object) -> Any:
    raise InfersimError("not this one")


@pytest.mark.parametrize("jobs", JOBS)
def test_each_call_begins_with_what_is_kept(jobs: int) -> None:
    with crew(3, jobs) as them:
        asked = [them.begin(power, times) for times in range(5)]
        seen = {call for call in them.as_done(asked) if call.done}
        assert seen == set(asked)
        assert [call.result for call in asked] == [1, 3, 9, 27, 81]
        further = them.begin(operator.sub, 1)  # after others are done
        them.finish([*asked, further])
        assert further.result == 2


@pytest.mark.parametrize("jobs", JOBS)
def test_what_a_call_raises_is_raised_where_its_result_is_wanted(jobs: int) -> None:
    with crew(None, jobs) as them, pytest.raises(InfersimError, match="not this one"):
        print(*(call.result for call in them.as_done([them.begin(refuse)])))


def test_what_is_later_waits_for_the_others() -> None:
    """One process at a time: the first call is made at once, the others in their order."""
    made: list[int] = []
    begun: list[Future[int]] = []

    def submit(make: Any, number: int) -> Future[int]:
        made.append(number)
        begun.append(Future())
        return begun[-1]

    them = Crew(None, 1, submit)
    calls = [them.begin(power, number, later=later) for number, later in enumerate((0.5, 0.2, 0.1))]
    assert made == [0]
    for _ in calls:
        begun[-1].set_result(7)
        next(them.as_done([calls[made[-1]]]))
    assert made == [0, 2, 1]
