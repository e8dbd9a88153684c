"""Front ends that handle one request after the other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from sim import catalog
from sim.loop.front_end import Threads
from sim.result import Result
from sim.results.tables import request_columns, timeseries_columns

HANDLING = 0.01


def ideal(file: Path, more: str) -> Path:
    """An engine that costs nothing but for what ``more`` says of its front end."""
    text = (Path(catalog.__file__).parent / "engines" / "ideal.yaml").read_text()
    file.write_text(f"{text}{more}\n")
    return file


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines")
    return ideal(folder / "thread.yaml", 'per_handled_request: {value: 10ms, source: "a test"}')


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose front end takes a millisecond for each token of a prompt."""
    folder = tmp_path_factory.mktemp("engines")
    return ideal(folder / "reader.yaml", 'per_prompt_token: {value: 1ms, source: "a test"}')


def serve(engine: Path | str, *, leap: bool = True, **changes: Any) -> Result:
    scenario = sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": str(engine),
            "max_model_len": 512,
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": 16},
                "output_tokens": {"kind": "fixed", "value": 2},
            },
            "run": {"requests": 30, "warmup": 0},
        }
    )
    return sim.simulate(scenario.override(changes), leap=leap)


def test_requests_of_a_burst_go_on_one_by_one(engine: Path) -> None:
    """Each reaches the scheduler when those before it have been handled; the pass then takes
    less time than the handling of one, so that none waits for the GPU."""
    rows = serve(engine).record.requests
    reached = np.sort(rows["scheduled"])
    turns = HANDLING * np.arange(len(rows))
    assert (reached >= turns - 1e-9).all()
    assert (reached < turns + HANDLING).all()


def test_clients_get_no_more_than_the_thread_can_handle(engine: Path) -> None:
    clients = {"workload.arrivals": {"kind": "closed", "concurrency": 16}, "run.requests": 200}
    rates = [serve(each, **clients).summary["request_throughput"] for each in (engine, "ideal")]
    assert rates[0] == pytest.approx(1 / HANDLING, rel=0.05)
    assert rates[1] > 2 / HANDLING


def test_each_replica_has_a_thread_of_its_own(engine: Path) -> None:
    clients = {"workload.arrivals": {"kind": "closed", "concurrency": 32}, "run.requests": 400}
    two = serve(engine, **clients | {"fleet.replicas": 2})
    assert two.summary["request_throughput"] == pytest.approx(2 / HANDLING, rel=0.05)


def test_what_is_waited_for_counts_as_the_queue(engine: Path) -> None:
    """The thirty of a burst wait for 0 to 29 others."""
    queue = serve(engine).summary["infersim"]["queue_ms"]
    assert queue["mean"] == pytest.approx(1e3 * HANDLING * 14.5, rel=0.2)


@pytest.mark.parametrize("kind", ["closed", "poisson"])
def test_leaps_are_steps(engine: Path, kind: str) -> None:
    arrivals = {
        "closed": {"kind": "closed", "concurrency": 12},
        "poisson": {"kind": "poisson", "rate": 90},
    }
    changes = {
        "workload.arrivals": arrivals[kind],
        "workload.output_tokens": {"kind": "uniform", "low": 1, "high": 200},
        "run.requests": 120,
    }
    one, other = (serve(engine, leap=leap, **changes) for leap in (True, False))
    assert (one.record.requests == other.record.requests).all()
    leaps, steps = (timeseries_columns(each.record) for each in (one, other))
    assert len(leaps["start_s"]) < len(steps["start_s"])


def test_requests_that_wait_at_the_front_end_may_time_out(engine: Path) -> None:
    """With a timeout of three turns the first ones are served, and all have one fate."""
    result = serve(engine, **{"scheduler.client_timeout": "30ms"})
    status = np.array(request_columns(result.record)["status"])
    assert set(status) == {"completed", "gave up"}
    assert (status == "completed").sum() <= 4


def test_requests_that_come_while_no_replica_serves_are_handled(engine: Path) -> None:
    rows = serve(
        engine,
        **{
            "workload.arrivals": {"kind": "constant", "rate": 10},
            "failures": {"outages": [{"at": "1s", "for": "1s"}], "in_flight": "lost"},
        },
    ).requests
    refused = rows["reason"].notna()
    assert (refused == rows["arrival_s"].between(1.0, 2.0, inclusive="left")).all()
    assert refused.sum() == 10


def test_workers_apart_have_a_front_end_before_both(engine: Path) -> None:
    pools = [
        {"name": role, "role": role, "gpu": "h100-sxm", "replicas": 1}
        for role in ("prefill", "decode")
    ]
    with_thread, ideal = (
        serve(each, fleet=pools).record.requests["finish"] for each in (engine, "ideal")
    )
    assert (with_thread == ideal).all()


def test_a_thread_is_free_when_it_has_handled_a_request() -> None:
    threads = Threads(1.0, 2)
    for sent in (0.0, 0.0, 0.5):
        threads.take(sent)
    assert threads.begins(0.5) == 1.0  # the one that took the second at 0
    assert threads.begins(7.0) == 7.0


def test_threads_that_come_are_free_and_those_that_go_are_the_busiest() -> None:
    threads = Threads(1.0, 1)
    for _ in range(3):
        threads.take(0.0)
    assert threads.begins(0.0) == 3.0
    threads.resize(2)
    assert threads.begins(0.0) == 0.0
    threads.take(0.0)
    threads.resize(1)
    assert threads.begins(0.0) == 1.0


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30), st.integers(1, 4))
def test_no_thread_has_two_at_once(gaps: list[float], count: int) -> None:
    threads, begun = Threads(1.0, count), []
    for sent in np.cumsum(gaps).tolist():
        begun.append(threads.begins(sent))
        threads.take(sent)
    assert begun == sorted(begun)
    for place in range(count, len(begun)):
        assert begun[place] >= begun[place - count] + 1.0
    assert not math.isinf(begun[0])


LENGTHS = {"workload.prompt_tokens": {"kind": "uniform", "low": 1, "high": 60}}
SPREAD = {"workload.arrivals": {"kind": "constant", "rate": 10}}


def test_long_prompts_are_read_longer(reader: Path) -> None:
    """With time between requests, each is scheduled when its own tokens are read."""
    rows = serve(reader, **LENGTHS, **SPREAD).record.requests
    waited = rows["scheduled"] - rows["arrival"]
    assert waited == pytest.approx(1e-3 * rows["prompt_tokens"], abs=1e-12)


@pytest.mark.parametrize(
    "arrivals",
    [
        {"kind": "closed", "concurrency": 6},
        {"kind": "poisson", "rate": 80},
        {"kind": "burst"},
    ],
    ids=["closed", "poisson", "burst"],
)
def test_requests_reach_the_scheduler_in_the_order_they_are_sent_in(
    reader: Path, arrivals: dict[str, Any]
) -> None:
    rows = serve(reader, **LENGTHS, **{"workload.arrivals": arrivals}).record.requests
    assert (np.diff(rows["scheduled"][np.argsort(rows["id"])]) >= 0).all()
    assert (rows["scheduled"] - rows["arrival"] >= 1e-3 * rows["prompt_tokens"] - 1e-9).all()


def test_reading_is_a_part_of_the_latency(reader: Path) -> None:
    rows = serve(reader, **LENGTHS, **SPREAD).requests
    assert rows["front_end_s"].to_numpy() == pytest.approx(1e-3 * rows["prompt_tokens"])


def test_turns_of_a_session_are_read_too(reader: Path) -> None:
    """Every turn sends the whole conversation again."""
    sessions = {"turns": {"kind": "fixed", "value": 3}, "think_time": {"kind": "fixed", "value": 1}}
    rate = {"workload.arrivals": {"kind": "poisson", "rate": 5}, "workload.sessions": sessions}
    requests = serve(reader, **rate).record.requests
    waited = requests["scheduled"] - requests["arrival"]
    assert (waited >= 1e-3 * requests["prompt_tokens"] - 1e-9).all()
    assert requests["prompt_tokens"].max() > 16  # later turns have the earlier ones before them
