"""The verdict knows a queue that grows from one that fluctuates, and a start from the rest.

Queues whose utilisation is known exactly are in ``test_verdict_known``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sim
from sim.metrics.load.stability import load
from sim.metrics.record.queues import Growth, drift, longest_growth, peak_queue
from sim.metrics.record.run_record import warmup_length

Floats = NDArray[np.float64]

# -- how the queue moves -------------------------------------------------------------------------


def test_drift_of_a_regular_overload() -> None:
    """A request every second, one served every two: half a request a second too many, and no doubt
    about it: each 100 of the 2,000 s leave 50 more behind."""
    found = drift(np.arange(2001.0), np.arange(0.0, 4002.0, 2.0))
    assert found.per_second == pytest.approx(0.5)
    assert found.error == pytest.approx(0.0, abs=1e-12)


def test_no_drift_where_each_leaves_before_the_next_one_comes() -> None:
    found = drift(np.arange(100.0), np.arange(100.0) + 0.01)
    assert found.per_second == pytest.approx(0.0, abs=0.02)


def test_drift_is_within_its_error() -> None:
    """Poisson arrivals at 1/s, and departures as dense while somebody is there: the queue walks at
    random, and its growth over 2,000 s scatters as the error says."""
    deviations = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        queued = np.cumsum(random.exponential(1.0, 2000))
        left = queued[0] + np.cumsum(random.exponential(1 / 0.7, 2000))
        found = drift(queued, np.maximum.accumulate(np.maximum(left, queued)))
        deviations.append((found.per_second - 0.3) / found.error)
    assert 0.75 < np.std(deviations) < 1.35
    assert abs(np.mean(deviations)) < 0.5


def lines(requests: int, gap: float, service: float) -> tuple[Floats, Floats]:
    """Arrivals every ``gap``, each served for ``service`` in turn: when they come, when begun."""
    arrivals: Floats = gap * np.arange(requests)
    done_before: Floats = service * np.arange(requests)
    begun: Floats = np.maximum.accumulate(arrivals - done_before) + done_before
    return arrivals, begun


def test_growth_of_a_queue_between_quiet_times() -> None:
    """A request every 10 s, then 100 of them at one a second, then every 10 s again; 2 s each.

    From 1,000 s on 100 come in 99 s, and 49 of them have left the queue before the last one comes
    (50 with it, as the server is free at that moment): 50 wait. A tenth, 5, waited 9 s after it
    began."""
    busy = np.concatenate([np.arange(0.0, 1000.0, 10.0), 1000.0 + np.arange(100.0)])
    arrivals = np.concatenate([busy, 1200.0 + 10.0 * np.arange(50)])
    done_before = 2.0 * np.arange(len(arrivals))
    begun = np.maximum.accumulate(arrivals - done_before) + done_before
    found = longest_growth(arrivals, begun)
    assert found.requests == 50
    assert found.until == 1099.0
    assert found.since == pytest.approx(1010.0, abs=1.0)


def test_growth_of_an_overload_is_from_start_to_end() -> None:
    """A request every second, 2 s each: by 99 s 100 have come and 50 are begun, as many wait at
    100 s. Of 11 that have come by 10 s, 6 are begun: 5 wait, a tenth."""
    arrivals, begun = lines(101, 1.0, 2.0)
    assert longest_growth(arrivals, begun) == Growth(since=10.0, until=99.0, requests=50)
    never = np.full(101, np.nan)
    assert longest_growth(arrivals, never) == Growth(since=9.0, until=100.0, requests=101)


def test_growth_where_nobody_waits() -> None:
    arrivals, begun = lines(50, 2.0, 1.0)
    assert longest_growth(arrivals, begun).requests == 0


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


def test_the_rate_of_a_trace_counts_its_gaps(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"{at / 8},100,20" for at in range(17)]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    workload = {"workload": {"trace": {"path": str(path)}}, "run.requests": None}
    assert load(sim.simulate(chat(1.0).override(workload)).record).rate == 8.0


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


def test_newcomers_that_wait_for_the_next_plan_do_not_lower_the_capacity() -> None:
    """vLLM plans one iteration ahead, so that a request that comes waits while a planned one runs:
    no sign of full batches. At a fifth of the load the capacity is that which an overload shows."""

    def run(rate: float, requests: int) -> sim.Result:
        return sim.simulate(
            {
                "model": "llama-3.1-8b",
                "fleet": {"gpu": "h100-sxm"},
                "engine": "vllm",
                "scheduler": {"max_num_seqs": 64},
                "workload": {
                    "arrivals": {"kind": "poisson", "rate": rate},
                    "prompt_tokens": {"kind": "fixed", "value": 500},
                    "output_tokens": {"kind": "uniform", "low": 20, "high": 180},
                },
                "run": {"requests": requests},
            }
        )

    full = run(100.0, 3000)
    served = full.requests.finish_s.between(8.0, 28.0).sum() / 20.0
    calm = run(served / 5, 500)
    assert calm.summary["infersim"]["verdict"]["state"] == "stable"
    for each, rate in ((calm, served / 5), (full, 100.0)):
        capacity = rate / each.summary["infersim"]["verdict"]["utilisation"]
        assert capacity == pytest.approx(served, rel=0.05)
