"""The verdict is right about systems whose utilisation is known.

Every state is asserted exactly, at fixed seeds that stand for many: over 20 seeds of 1,000 and
5,000 requests of each of these systems, and of more, 95 % and more of the verdicts are these.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import sim
from sim.selftest.queues import pollaczek_khinchine
from tests.known_load import System, bursts, exponential, judged, service_times, write_trace
from tests.places import VLLM

STABLE, NEAR, OVER, SHORT = "stable", "near saturation", "overloaded", "too short to tell"


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return exponential(tmp_path_factory.mktemp("lengths"))


# -- one server ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers(lengths: dict[str, Any]) -> dict[str, System]:
    """M/M/1, M/D/1, G/M/1 with bursty arrivals, and M/D/1 whose work is nearly all prompt."""
    rate = 1 / float(service_times(lengths).mean())
    memoryless = {"workload.output_tokens": lengths}
    gamma = {"workload.arrivals": {"kind": "gamma", "rate": 1.0, "cv": 2.0}}
    prompts = {
        "workload.prompt_tokens": {"kind": "fixed", "value": 8000},
        "workload.output_tokens": {"kind": "fixed", "value": 10},
    }
    return {
        "M/M/1": System(memoryless, capacity=rate),
        "M/D/1": System({}),
        "G/M/1": System(memoryless | gamma, capacity=rate),
        "prompts": System(prompts, tokens=10),
    }


SINGLE = [(0.5, STABLE), (0.7, STABLE), (0.9, NEAR), (0.99, NEAR), (1.3, OVER), (2.0, OVER)]


@pytest.mark.parametrize(("utilisation", "state"), SINGLE)
@pytest.mark.parametrize("name", ["M/M/1", "M/D/1", "G/M/1", "prompts"])
def test_one_server(servers: dict[str, System], name: str, utilisation: float, state: str) -> None:
    for seed in (1, 2):
        verdict = judged(servers[name].at(utilisation, 1000, seed))
        assert verdict["state"] == state, verdict
        assert verdict["utilisation"] == pytest.approx(
            utilisation, rel=0.01, abs=3 * verdict["utilisation_error"]
        )


@pytest.mark.parametrize("name", ["M/M/1", "G/M/1"])
def test_a_tenth_too_much_is_overload_once_the_run_is_long_enough(
    servers: dict[str, System], name: str
) -> None:
    """1.1 is 3 standard errors above 1 after 1,000 requests, and 7 after 5,000."""
    for seed in (1, 2, 3):
        assert judged(servers[name].at(1.1, 1000, seed))["state"] in (OVER, NEAR)
    assert judged(servers[name].at(1.1, 5000))["state"] == OVER


def test_where_lengths_are_certain_so_is_the_verdict(servers: dict[str, System]) -> None:
    """Nothing of M/D/1 is a sample but the arrivals, and their rate is known."""
    for seed in (1, 2):
        verdict = judged(servers["M/D/1"].at(1.05, 1000, seed))
        assert verdict["state"] == OVER
        assert verdict["utilisation_error"] == 0.0


def test_just_below_capacity_is_neither_stable_nor_overloaded(servers: dict[str, System]) -> None:
    states = [judged(servers["M/M/1"].at(0.99, 1000, seed))["state"] for seed in range(10, 20)]
    assert states == [NEAR] * 10


@pytest.mark.slow
@pytest.mark.parametrize(("utilisation", "requests"), [(0.5, 3000), (0.9, 12_000)])
def test_waits_are_those_of_queueing_theory(
    servers: dict[str, System], lengths: dict[str, Any], utilisation: float, requests: int
) -> None:
    """M/M/1: rho / (mu - lambda), within 3 % for lengths that are whole and end at 1,659 tokens;
    what Pollaczek and Khinchine say for exactly these, within the 99 % interval of eight runs."""
    times = service_times(lengths)
    mean = float(times.mean())
    rate = utilisation / mean
    theory = pollaczek_khinchine(rate, mean, float((times**2).mean()))
    assert theory == pytest.approx(utilisation / (1 / mean - rate), rel=0.03)
    waits = []
    for seed in range(8):
        rows = sim.simulate(servers["M/M/1"].at(utilisation, requests, seed)).record.requests
        waits.append(float((rows["scheduled"] - rows["arrival"]).mean()))
    half = stats.t.ppf(0.995, len(waits) - 1) * np.std(waits, ddof=1) / np.sqrt(len(waits))
    assert half < 0.4 * theory
    assert np.mean(waits) == pytest.approx(theory, abs=half)


# -- batches, memory, replicas -------------------------------------------------------------------

UNIFORM = {"workload.output_tokens": {"kind": "uniform", "low": 20, "high": 180}}
PROMPT = {"workload.prompt_tokens": {"kind": "fixed", "value": 200}}
SEATS = {"scheduler.max_num_seqs": 8, **PROMPT, **UNIFORM, "engine": VLLM}
LONG_PROMPTS = {
    "scheduler.max_num_seqs": 256,
    "workload.prompt_tokens": {"kind": "lognormal", "mean": 6000, "cv": 0.7, "max": 14000},
    "workload.output_tokens": {"kind": "fixed", "value": 20},
}
MEMORY = {**SEATS, "scheduler.max_num_seqs": 256, "kv_cache.num_gpu_blocks": 400}
SLABS = {
    **MEMORY,
    "kv_cache.allocator": "contiguous",
    "kv_cache.num_gpu_blocks": 2048,
    "max_model_len": 1024,
}

SYSTEMS: dict[str, System] = {
    "8 seats": System(SEATS, tokens=100),
    "8 seats, shortest first": System({**SEATS, "scheduler.order": "sjf"}, tokens=100),
    "prefill first": System({**SEATS, "scheduler.policy": "vllm-v0"}, tokens=100),
    "long prompts": System(LONG_PROMPTS, tokens=20, burst=4000),
    "memory": System(MEMORY, tokens=100),
    "slabs": System(SLABS, tokens=100),
    "request-level": System({**SEATS, "scheduler.batching": "request"}, tokens=100),
    "static": System({**SEATS, "scheduler.batching": "static"}, tokens=100),
    **{
        router: System({**SEATS, "fleet.0.replicas": count, "router": router}, tokens=100)
        for router, count in (
            ("round-robin", 2),
            ("random", 4),
            ("least-outstanding", 4),
            ("power-of-two", 3),
        )
    },
}


@pytest.mark.parametrize("utilisation", [0.5, 0.7, 0.9, 0.99, 1.3])
@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_with_batches(name: str, utilisation: float) -> None:
    state = OVER if utilisation > 1 else NEAR if utilisation > 0.8 else STABLE
    verdict = judged(SYSTEMS[name].at(utilisation, 1200))
    assert verdict["state"] == state, verdict
    assert verdict["utilisation"] == pytest.approx(utilisation, rel=0.06)


@cache
def wide(engine: str = VLLM) -> System:
    """256 seats, none of which is ever short of memory."""
    changes = {"scheduler.max_num_seqs": 256, **PROMPT, **UNIFORM, "engine": engine}
    return System(changes, tokens=100, burst=4000)


@pytest.mark.parametrize(
    ("utilisation", "requests", "state"),
    [(0.5, 1000, STABLE), (0.7, 1000, STABLE), (0.9, 1000, NEAR), (0.99, 1000, NEAR),
     (1.3, 1000, SHORT), (1.3, 4000, OVER), (2.0, 1500, OVER)],
)  # fmt: skip
def test_many_seats(utilisation: float, requests: int, state: str) -> None:
    """Nobody waits at 0.9 in 256 seats, and saturation is near all the same; at 1.3 they need more
    than 1,000 requests until all are taken and a queue forms."""
    verdict = judged(wide().at(utilisation, requests))
    assert verdict["state"] == state, verdict
    assert verdict["utilisation"] == pytest.approx(utilisation, rel=0.04)


def test_memory_that_requests_outgrow_is_seen_in_time() -> None:
    """Long answers preempt each other once memory is full: a tenth of the speed of full batches is
    lost, which their price does not know, and the run shows."""
    growing = System(
        {
            "scheduler.max_num_seqs": 256,
            "workload.prompt_tokens": {"kind": "lognormal", "mean": 800, "p95": 2400, "max": 6000},
            "workload.output_tokens": {"kind": "lognormal", "mean": 220, "p95": 600, "max": 1500},
            "kv_cache.num_gpu_blocks": 2000,
        },
        tokens=218.5,
        burst=5000,
    )
    for utilisation, state in ((0.7, STABLE), (0.9, NEAR), (1.3, OVER)):
        assert judged(growing.at(utilisation, 2500))["state"] == state


# -- rates that change ---------------------------------------------------------------------------


def replayed(arrivals: NDArray[np.float64], outputs: list[int], path: Path) -> dict[str, Any]:
    """The verdict of "8 seats" on a trace with prompts of 200 tokens."""
    rows = [f"{time!r},200,{n}\n" for time, n in zip(arrivals.tolist(), outputs, strict=True)]
    workload = {"trace": {"path": str(write_trace(path / "trace.csv", "".join(rows)))}}
    base = {"model": "llama-3.1-8b", "fleet": {"gpu": "h100-sxm"}, "engine": VLLM}
    knobs = {"scheduler": {"max_num_seqs": 8}, "max_model_len": 4096}
    return judged(sim.load_scenario(base | knobs | {"workload": workload}))


def answers(requests: int) -> list[int]:
    """As long as those of "8 seats"."""
    drawn: list[int] = np.random.default_rng(5).integers(20, 180, requests, endpoint=True).tolist()
    return drawn


TRACES = [(0.5, STABLE), (0.7, STABLE), (0.9, NEAR), (0.99, NEAR), (1.05, OVER), (1.3, OVER)]


@pytest.mark.parametrize(("utilisation", "state"), TRACES)
def test_bursty_traces(utilisation: float, state: str, tmp_path: Path) -> None:
    """Bursts at more than twice the mean rate: the mean decides."""
    outputs = answers(1000)
    service = float(np.mean(outputs[:-1])) / 100 / SYSTEMS["8 seats"].capacity
    verdict = replayed(bursts(1000, utilisation, service, seed=3), outputs, tmp_path)
    assert verdict["state"] == state, verdict
    assert verdict["utilisation"] == pytest.approx(utilisation, rel=0.01)
    assert verdict["utilisation_error"] == 0.0


def test_a_trace_that_ends_while_its_queue_grows(tmp_path: Path) -> None:
    """Half the capacity for most of the time, and 1.5 times the capacity in the last tenth."""
    service = 1 / SYSTEMS["8 seats"].capacity
    slow, fast = np.arange(900) * service / 0.5, np.arange(1, 301) * service / 1.5
    verdict = replayed(np.concatenate([slow, slow[-1] + fast]), answers(1200), tmp_path)
    assert verdict["utilisation"] == pytest.approx(1200 / (1800 + 200), rel=0.03)
    assert verdict["state"] == SHORT
    assert "in its last tenth" in verdict["text"]


@pytest.mark.parametrize(
    ("arrivals", "state", "share", "words"),
    [
        ({"kind": "ramp", "rate": 0.3, "final_rate": 1.3, "duration": 0.5}, OVER, 1.3,
         "at the end of the ramp"),
        ({"kind": "ramp", "rate": 0.3, "final_rate": 0.9, "duration": 0.5}, NEAR, 0.9,
         "at the end of the ramp"),
        ({"kind": "ramp", "rate": 0.3, "final_rate": 0.6, "duration": 0.5}, STABLE, 0.6,
         "at the end of the ramp"),
        ({"kind": "ramp", "rate": 1.4, "final_rate": 0.5, "duration": 0.5}, STABLE, 0.5,
         "The queue was longest"),
        ({"kind": "diurnal", "rate": 0.1, "peak_rate": 0.5, "period": 1.0}, STABLE, 0.3,
         "30% of the capacity on average, 50% at the peak"),
        ({"kind": "diurnal", "rate": 0.1, "peak_rate": 1.3, "period": 0.5}, STABLE, 0.7,
         "after it had grown for"),
        ({"kind": "diurnal", "rate": 0.6, "peak_rate": 1.7, "period": 0.4}, OVER, 1.15,
         "on average"),
    ],
)  # fmt: skip
def test_laws_whose_rate_changes(
    arrivals: dict[str, Any], state: str, share: float, words: str
) -> None:
    """A ramp is judged by where it leads, a day by its mean; what the peak did is told."""
    verdict = judged(SYSTEMS["8 seats"].under(arrivals, 2500))
    assert verdict["state"] == state, verdict
    assert verdict["utilisation"] == pytest.approx(share, rel=0.03)
    assert words in verdict["text"]


# -- the figures ---------------------------------------------------------------------------------


def test_figures_of_a_regular_overload(servers: dict[str, System]) -> None:
    """Twice as much comes as is served: when the last of 1,000 requests comes, 500 are begun."""
    system = servers["M/D/1"]
    verdict = judged(system.under({"kind": "constant", "rate": 2.0}, 1000))
    assert verdict["utilisation"] == pytest.approx(2.0, rel=0.005)
    assert verdict["headroom"] == pytest.approx(-0.5, abs=0.005)
    assert verdict["drift_per_s"] == pytest.approx(system.capacity, rel=0.01)
    assert 0 <= verdict["drift_error_per_s"] < 0.01 * system.capacity
    assert "500 were waiting" in verdict["text"]
    assert "200% of the capacity" in verdict["text"]


def test_no_drift_in_a_stable_queue(servers: dict[str, System]) -> None:
    verdict = judged(servers["M/M/1"].at(0.5, 2000))
    assert abs(verdict["drift_per_s"]) < 2 * verdict["drift_error_per_s"]
    assert verdict["headroom"] == pytest.approx(1 / verdict["utilisation"] - 1, rel=1e-3)


@pytest.mark.parametrize("arrivals", [{"kind": "burst"}, {"kind": "closed", "concurrency": 4}])
def test_no_utilisation_where_the_load_is_not_given(arrivals: dict[str, Any]) -> None:
    scenario = SYSTEMS["8 seats"].scenario.override(
        {"workload.arrivals": arrivals, "run.requests": 50}
    )
    verdict = judged(scenario)
    assert verdict["state"] in ("offline", "closed loop")
    assert verdict["utilisation"] is verdict["headroom"] is verdict["drift_per_s"] is None


def test_refused_requests_are_no_load() -> None:
    """Every other request or so is longer than a sequence may be, at 1.2 times the capacity."""
    limits = {"max_model_len": 300, "workload.prompt_tokens": {"kind": "fixed", "value": 200}}
    verdict = judged(SYSTEMS["8 seats"].at(1.2, 1000).override(limits))
    assert verdict["state"] == STABLE
    assert verdict["utilisation"] < 0.5


def test_few_requests_of_very_different_lengths_tell_little(servers: dict[str, System]) -> None:
    """25 exponential answers have a mean that is 20 % off as a matter of course."""
    verdicts = [judged(servers["M/M/1"].at(1.0, 25, seed)) for seed in range(8)]
    short = [verdict for verdict in verdicts if verdict["state"] == SHORT]
    assert len(short) >= 5
    assert all("between" in verdict["text"] for verdict in short)
    assert OVER not in {verdict["state"] for verdict in verdicts}


def test_more_requests_are_asked_for_where_they_would_tell(servers: dict[str, System]) -> None:
    verdicts = [judged(servers["M/M/1"].at(1.06, 400, seed)) for seed in range(6)]
    assert {verdict["state"] for verdict in verdicts} <= {NEAR, OVER}
    doubtful = [v["text"] for v in verdicts if v["state"] == NEAR and v["utilisation"] > 1.06]
    assert doubtful
    assert all("It may be too much already. Simulate " in text for text in doubtful)
    assert not any("probably" in text for text in doubtful)
