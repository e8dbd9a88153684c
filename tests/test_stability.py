"""Does the verdict know a queue that grows from one that fluctuates, and a start from the rest?

One server with exponential gaps and services (M/M/1) stands for a fleet: its queue follows from the
Lindley recursion, and each service is one recorded plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sim
from sim.metrics.stability import Load, load, peak_queue, still_filling, warmup_length
from sim.recorder import PLAN

Floats = NDArray[np.float64]


class Queue(NamedTuple):
    """What one server did: when requests came, when they were served, and its plans."""

    arrivals: Floats
    starts: Floats
    plans: NDArray[np.void]


def serve(arrivals: Floats, services: Floats) -> Queue:
    """First come, first served: a request starts when it has come and the one before is done."""
    done_before = np.concatenate([[0.0], np.cumsum(services)[:-1]])
    starts = np.maximum.accumulate(arrivals - done_before) + done_before
    plans = np.zeros(len(arrivals), PLAN)
    plans["start"], plans["end"] = starts, starts + services
    plans["finished"] = plans["iterations"] = 1
    here = np.searchsorted(arrivals, starts, side="right")
    plans["waiting"] = here - np.arange(1, len(arrivals) + 1)
    return Queue(arrivals, starts, plans)


def mm1(utilisation: float, requests: int, seed: int) -> Queue:
    """Exponential gaps and services of mean 1."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(1 / utilisation, requests))
    return serve(arrivals, random.exponential(1.0, requests))


def judged(queue: Queue, seats: int = 1) -> tuple[Load, bool]:
    found = load(queue.arrivals, queue.starts, queue.plans, 1)
    return found, found.overloaded(seats)


SEEDS = range(12)


@pytest.mark.parametrize("requests", [5000, 20_000])
@pytest.mark.parametrize("utilisation", [0.5, 0.9])
def test_a_queue_that_keeps_up_is_not_overloaded(utilisation: float, requests: int) -> None:
    for seed in SEEDS:
        found, overloaded = judged(mm1(utilisation, requests, seed))
        assert not overloaded
        assert found.utilisation == pytest.approx(utilisation, rel=0.1)


@pytest.mark.parametrize("requests", [5000, 20_000])
@pytest.mark.parametrize("utilisation", [1.1, 1.5])
def test_a_queue_that_cannot_keep_up_is_overloaded(utilisation: float, requests: int) -> None:
    for seed in SEEDS:
        found, overloaded = judged(mm1(utilisation, requests, seed))
        assert overloaded
        assert found.utilisation == pytest.approx(utilisation, rel=0.1)
        left = requests * (1 - 1 / utilisation)
        assert found.backlog == pytest.approx(left, abs=4 * np.sqrt(2 * requests))


def test_close_to_saturation_it_is_seldom_called_overloaded() -> None:
    """0.99: not more often than a test at two standard errors allows."""
    called = sum(judged(mm1(0.99, 5000, seed))[1] for seed in range(60))
    assert called <= 3


def test_utilisation_is_estimated_within_its_error() -> None:
    """The stated standard error covers two thirds, three of them nearly all of the deviations."""
    errors = []
    for seed in range(60):
        found = judged(mm1(1.05, 5000, seed))[0]
        assert found.utilisation is not None
        errors.append(abs(found.utilisation - 1.05) / found.error)
    assert 0.5 < np.mean(np.array(errors) < 1) < 0.95
    assert max(errors) < 4


def test_a_regular_overload_by_hand() -> None:
    """A request every second, 2 s of service each, 101 of them: at the last arrival (100 s) 51 have
    started, 50 wait. The queue is never empty from 2 s on: capacity 0.5/s, utilisation 2."""
    found, overloaded = judged(serve(np.arange(101.0), np.full(101, 2.0)))
    assert overloaded
    assert found.backlog == 50
    assert found.utilisation == pytest.approx(2.0)
    assert found.saturated == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("service", [2.0, 50.0])
def test_what_comes_after_the_last_arrival_does_not_count(service: float) -> None:
    """As above, but for the requests that start at the last arrival, 100 s, or later.

    From 2 s on 49 requests are done in 98 s while a request comes each second: utilisation 2,
    standard error sqrt(1 / 49).
    """
    services = np.where(np.arange(101) < 50, 2.0, service)
    found = judged(serve(np.arange(101.0), services))[0]
    assert found.saturated == pytest.approx(0.98)
    assert found.utilisation == pytest.approx(2.0)
    assert found.error == pytest.approx(1 / 7)
    assert found.backlog == 50


def test_a_service_over_the_last_arrival_counts_up_to_it() -> None:
    """1.9 s each: the one from 98.8 to 100.7 s is not done at 100 s but took 1.2 s until then.

    The first one to leave another behind starts at 3.8 s: 50 of 1.9 s are done at 98.8 s, and the
    last second and a fifth is work, too: 50 in 96.2 s.
    """
    found = judged(serve(np.arange(101.0), np.full(101, 1.9)))[0]
    assert found.utilisation == pytest.approx(96.2 / 50)
    assert found.saturated == pytest.approx(0.962)


def test_without_a_queue_nothing_is_known_of_the_capacity() -> None:
    """A request every second, half a second each: nobody ever waits."""
    found, overloaded = judged(serve(np.arange(100.0), np.full(100, 0.5)))
    assert found == Load(saturated=0.0, utilisation=None, error=0.0, backlog=0)
    assert not overloaded


def test_a_burst_that_is_worked_off_is_no_overload() -> None:
    """200 requests at once, then a trickle: a queue, but it shrinks."""
    arrivals = np.concatenate([np.linspace(0, 1, 200), np.linspace(100, 1000, 100)])
    assert not judged(serve(arrivals, np.full(300, 1.0)))[1]


def test_a_backlog_of_one_batch_is_no_overload() -> None:
    """What the seats could take at once says nothing about the long run."""
    queue = serve(np.arange(101.0), np.full(101, 2.0))
    assert judged(queue, seats=49)[1]
    assert not judged(queue, seats=50)[1]


def test_replicas_share_the_load() -> None:
    """Two servers, each with the regular overload above at half the gap."""
    one = serve(np.arange(101.0), np.full(101, 2.0))
    arrivals = np.sort(np.concatenate([one.arrivals, one.arrivals + 0.5]))
    starts = np.sort(np.concatenate([one.starts, one.starts + 0.5]))
    other = one.plans.copy()
    other["replica"] = 1
    for key in ("start", "end"):
        other[key] += 0.5
    found = load(arrivals, starts, np.concatenate([one.plans, other]), 2)
    assert found.utilisation == pytest.approx(2.0, rel=0.02)
    assert found.backlog == 100


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), min_size=1, max_size=40),
    st.integers(0, 5),
)
def test_peak_queue_by_counting(times: list[tuple[float, float]], never: int) -> None:
    queued = np.array([at for at, _ in times])
    scheduled = np.array([at + wait for at, wait in times])
    scheduled[:never] = np.nan
    expected = 0
    for now in queued:
        waiting = (queued <= now) & ~(scheduled <= now)
        expected = max(expected, int(waiting.sum()))
    assert peak_queue(queued, scheduled) == expected


def chat(rate: float, requests: int = 1500, **changes: object) -> sim.Scenario:
    return sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "max_model_len": 4096,
            "scheduler": {"max_num_seqs": 32},
            "workload": {
                "arrivals": {"kind": "poisson", "rate": rate},
                "prompt_tokens": {"kind": "fixed", "value": 200},
                "output_tokens": {"kind": "uniform", "low": 20, "high": 180},
            },
            "run": {"requests": requests},
        }
    ).override(dict(changes))


def capacity_of_chat() -> float:
    burst = chat(1.0, 1000).override({"workload.arrivals": {"kind": "burst"}})
    throughput = sim.simulate(burst).summary["request_throughput"]
    assert isinstance(throughput, float)
    return throughput


def test_verdicts_of_whole_runs() -> None:
    """Below, near and above what a burst shows the fleet to serve."""
    capacity = capacity_of_chat()
    for share, states in (
        (0.4, {"stable"}),
        (0.97, {"near saturation"}),
        (1.3, {"overloaded"}),
        (3.0, {"overloaded"}),
    ):
        for seed in (1, 2):
            run = sim.simulate(chat(share * capacity, seed=seed))
            assert run.summary["infersim"]["verdict"]["state"] in states, (share, seed)


# -- runs that end before they settle ------------------------------------------------------------


def test_a_system_that_fills_as_long_as_requests_come() -> None:
    """A request a second for 200 s. Each stays as long as it was late in coming: 100 are inside at
    the end. Nobody ever leaves: all are. Each stays 20 s, or ever shorter: no more than 20 are."""
    arrived = np.arange(200.0)
    assert still_filling(arrived, 2 * arrived)
    assert still_filling(arrived, np.full(200, np.nan))
    assert not still_filling(arrived, arrived + 20)
    assert not still_filling(arrived, arrived + 20 - arrived / 20)


@pytest.mark.parametrize("utilisation", [1.5, 3.0])
def test_a_queue_that_cannot_keep_up_is_still_filling(utilisation: float) -> None:
    for seed in SEEDS:
        queue = mm1(utilisation, 2000, seed)
        assert still_filling(queue.arrivals, queue.plans["end"])


def test_a_short_run_into_many_seats_gives_no_verdict() -> None:
    """1.5 times of what 256 seats serve: they swallow all of 200 requests, 2,000 show the truth."""
    wide = {"scheduler.max_num_seqs": 256}
    burst = chat(1.0, 1000, **wide).override({"workload.arrivals": {"kind": "burst"}})
    rate = 1.5 * sim.simulate(burst).summary["request_throughput"]
    for requests, state in ((200, "too short to tell"), (2000, "overloaded")):
        verdict = sim.simulate(chat(rate, requests, **wide)).summary["infersim"]["verdict"]
        assert verdict["state"] == state
    slow = sim.simulate(chat(0.2 * rate, 1000, **wide)).summary["infersim"]["verdict"]
    assert slow["state"] == "stable"


# -- warm-up -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("requests", [1000, 5000])
def test_little_of_a_steady_run_is_cut(requests: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    assert warmup_length(random.exponential(1.0, requests)) <= 0.1 * requests


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cut", [50, 200, 400])
def test_a_start_from_empty_is_cut(cut: int, seed: int) -> None:
    """Latencies that climb to their level over the first ``cut`` of 1,000 requests."""
    random = np.random.default_rng(seed)
    latency = 10 + random.normal(0, 0.5, 1000)
    latency[:cut] -= np.linspace(8, 1, cut)
    assert 0.7 * cut <= warmup_length(latency) <= cut + 60


@pytest.mark.parametrize("rest", [[1.0, 1.1, 0.9, 1.05, 0.95], [1.0], [1.0 / 3.0]])
def test_a_slow_first_batch_is_cut_at_its_end(rest: list[float]) -> None:
    """Also before latencies that are equal, one by one or in their means of 5."""
    latency = np.concatenate([np.full(40, 9.0), np.tile(rest, 300 // len(rest))])
    assert warmup_length(latency) == 40


@pytest.mark.parametrize("rise", [100.0, -100.0])
def test_of_a_run_that_never_settles_nothing_is_cut(rise: float) -> None:
    """The rule would cut up to its limit of half the values: there is no steady part to be kept."""
    random = np.random.default_rng(4)
    assert warmup_length(np.linspace(0, rise, 1000) + 200) == 0
    assert warmup_length(np.linspace(0, rise, 1000) + random.normal(200, 1, 1000)) == 0


@pytest.mark.parametrize(("start", "cut"), [(445, 445), (450, 0), (600, 0)])
def test_cuts_are_up_to_nine_tenths_of_the_half(start: int, cut: int) -> None:
    """1,000 latencies that are 9 s for a while and then about 1 s, 200 means of 5: a cut of 90 of
    them or more lies too near to the limit of 100."""
    steady = np.tile([1.0, 1.1, 0.9, 1.05, 0.95, 1.1, 1.2, 1.0, 1.15, 1.05], 100)
    latency = np.where(np.arange(1000) < start, 9.0, steady)
    assert warmup_length(latency) == cut


def test_short_runs_are_not_cut() -> None:
    assert warmup_length(np.array([])) == 0
    assert warmup_length(np.linspace(9, 1, 49)) == 0


def test_the_cut_is_a_multiple_of_the_batch_and_ignores_units() -> None:
    random = np.random.default_rng(3)
    latency = 10 + random.normal(0, 0.5, 500)
    latency[:60] += 20
    cut = warmup_length(latency)
    assert cut % 5 == 0
    assert 60 <= cut <= 75
    assert warmup_length(latency * 1e-3) == cut


@pytest.mark.parametrize("value", [0.5859, 1.0 / 3.0, 1.0, 1e-3, 7e4])
def test_nothing_is_cut_of_equal_latencies(value: float) -> None:
    """Constant traffic at low load: every request takes the same."""
    assert warmup_length(np.full(1000, value)) == 0


def test_a_regular_run_is_not_cut() -> None:
    """One request a second, each alone in the engine, equal to the last one."""
    quiet = chat(1.0, 300).override(
        {
            "workload.arrivals": {"kind": "constant", "rate": 1.0},
            "workload.output_tokens": {"kind": "fixed", "value": 20},
        }
    )
    assert sim.simulate(quiet).summary["infersim"]["requests"]["warmup"] == 0
