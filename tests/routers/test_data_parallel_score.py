"""vLLM's balancing between data ranks, between replicas."""

from __future__ import annotations

import pytest

from sim.request import Request
from sim.routers import DataParallelScore, LeastKv
from sim.routers.data_parallel import score


class Told:
    """A replica as a router sees it."""

    queued_prompt_tokens = 0

    def __init__(self, outstanding: int, queued: int = 0, kv_used: float = 0.0) -> None:
        self.outstanding, self.queued, self.kv_used = outstanding, queued, kv_used


def at(time: float) -> Request:
    return Request(0, time, 10, 5)


@pytest.mark.parametrize(
    ("in_flight", "waiting", "running", "kv_used", "expected"),
    [
        (7, 0, 7, 0.99, 7.0),
        (7, 3, 4, 0.4, 7.0),
        (7, 3, 4, 0.75, 7 + 6 * 3 * 0.25),
        (7, 3, 4, 1.0, 7 + 6 * 3 * 0.5),
        (2, 3, 4, 0.0, 7.0),  # statistics that are older than two answers
        (9, 3, 4, 0.0, 9.0),  # and than two requests
    ],
)
def test_the_score(
    in_flight: int, waiting: int, running: int, kv_used: float, expected: float
) -> None:
    """Requests, and 6 x those waiting x what of the cache is taken beyond a half."""
    assert score(in_flight, waiting, running, kv_used) == expected


def test_those_that_are_alike_take_turns() -> None:
    router, targets = DataParallelScore(), [Told(0), Told(0), Told(0)]
    chosen = []
    for number in range(6):
        chosen.append(router.choose(at(0.2 * number), targets))
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_a_queue_behind_a_full_cache_repels() -> None:
    targets = [Told(10, 2, 0.9), Told(14, 0, 0.9)]  # 10 + 6 x 2 x 0.4 = 14.8
    assert DataParallelScore().choose(at(0.0), targets) == 1


def test_statistics_are_a_tenth_of_a_second_old_and_count_what_was_sent_since() -> None:
    router, targets = DataParallelScore(), [Told(4, 1, 0.75), Told(5, 0, 0.75)]
    assert router.choose(at(1.0), targets) == 1  # 4 + 1.5 against 5
    targets[1].outstanding = 6
    targets[0].queued = 0  # which the router does not know yet: 5.5 against 6 + 1.5
    assert router.choose(at(1.05), targets) == 0
    targets[0].outstanding = 5  # 5 + 2 x 1.5 against 6 + 1.5
    assert router.choose(at(1.09), targets) == 1
    targets[1].outstanding = 7
    assert router.choose(at(1.11), targets) == 0  # now it does: 5 against 7


def test_what_was_sent_since_the_statistics_waits() -> None:
    router, targets = DataParallelScore(), [Told(8, 0, 0.75), Told(6, 0, 0.75)]
    assert router.choose(at(1.0), targets) == 1
    targets[1].outstanding = 7  # and one of them waits: 8 against 7 + 1.5
    assert router.choose(at(1.05), targets) == 0


def test_least_kv_takes_the_emptiest_cache_then_the_fewest_requests() -> None:
    router = LeastKv()
    assert router.choose(at(0), [Told(1, 0, 0.5), Told(9, 0, 0.4)]) == 1
    assert router.choose(at(0), [Told(3, 0, 0.4), Told(2, 0, 0.4), Told(2, 0, 0.4)]) == 1
