"""Requests that are sent while the simulation runs meet what they would have met as a trace."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import UsageError
from sim.metrics.run_record import RunRecord
from sim.request import PLAIN, Request
from sim.results.result import Result
from sim.scenario import Scenario, load_scenario
from sim.serve.record import Record
from sim.serve.session import LiveSession
from sim.simulation import prepare, simulate
from sim.trails.tokens import token_times

CHAT = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "max_model_len": 8192,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 1},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 100},
    },
}
NGRAM = {"method": "ngram", "num_tokens": 3, "acceptance": {"rates": [0.75, 0.55, 0.38]}}
FLEETS: dict[str, dict[str, Any]] = {
    "one replica": {},
    "every iteration an event": {"run.leap": False},
    "three replicas": {"fleet.replicas": 3, "router": "power-of-two"},
    "too little memory": {"kv_cache.num_gpu_blocks": 400},
    "by rank in too little memory": {"kv_cache.num_gpu_blocks": 400, "scheduler.order": "sjf"},
    "planned ahead": {"scheduler.async_scheduling": True},
    "few slots": {"scheduler.max_num_seqs": 4},
    "sglang": {"engine": "sglang"},
    "whole prompts": {"scheduler.chunked_prefill": False, "scheduler.max_num_batched_tokens": 8192},
    "no front end": {"engine": "ideal"},
    "data ranks": {"model": "qwen3-30b-a3b", "fleet.data_parallel": 2},
    "pipeline": {"fleet.pipeline_parallel": 2},
    "drafts": {"speculative": NGRAM},
    "drafts in too little memory": {"speculative": NGRAM, "kv_cache.num_gpu_blocks": 400},
    "two pools": {
        "fleet": [{"gpu": "h100-sxm", "replicas": 2}, {"name": "old", "gpu": "a100-sxm-80gb"}],
        "router": "least-outstanding",
    },
}

Told = dict[int, list[float]]


def played_live(scenario: Scenario, path: Path, seed: int) -> tuple[RunRecord, Told]:
    """A session of 150 requests, the clock read at random moments, and the times of all tokens."""
    rng, told = random.Random(seed), Told()

    def hear(request: Request, tokens: int, now: float, replica: int) -> None:
        times = told.setdefault(request.id, [])
        times += [now] * (tokens - len(times))

    session = LiveSession(prepare(scenario), hear)
    record, fleet, now = Record(path, scenario, ranked=False, caches=False), session.fleet, 0.0
    for number in range(150):
        prompt, output = rng.randint(1, 3000), rng.choice([1, 2, rng.randint(1, 300)])
        arrival = fleet.send(now, prompt, output, PLAIN, ())
        record.add(arrival, prompt, output, 0, [])
        for _ in range(rng.randint(0, 3)):
            now += rng.expovariate(20)
            fleet.advance(now)
        if number % 10 == 0:  # exactly when something happens
            now = max(now, min(fleet.due, now + 1.0))
            fleet.advance(now)
    while fleet.due < np.inf:
        fleet.advance(fleet.due + 0.01)
    _, replay = record.finish(None)
    return session.record(prepare(replay), now), told


@pytest.mark.parametrize("name", FLEETS)
def test_a_session_is_the_run_of_its_trace(name: str, tmp_path: Path) -> None:
    live, told = played_live(load_scenario(CHAT).override(FLEETS[name]), tmp_path / "run", 7)
    again = simulate(tmp_path / "run" / "scenario.yaml").record
    for table in ("plans", "requests", "gaps"):
        assert getattr(live, table).tobytes() == getattr(again, table).tobytes(), table
    assert live.end == again.end
    assert Result(live).summary == Result(again).summary
    requests, plans = Result(live)._request_columns(), Result(live)._timeseries_columns()
    for number, (times, how) in enumerate(token_times(requests, plans)):
        assert len(told[number]) == live.requests["generated"][number]
        if how == "exact":  # tokens that come together with drafts have one time
            np.testing.assert_allclose(list(dict.fromkeys(told[number])), times, rtol=1e-12)


def test_a_session_that_is_cut_off_is_the_run_with_that_horizon(tmp_path: Path) -> None:
    scenario = load_scenario(CHAT)
    session = LiveSession(prepare(scenario), lambda *_: None)
    record, fleet = Record(tmp_path / "run", scenario, ranked=False, caches=False), session.fleet
    for arrival in (0.0, 0.125, 0.25):
        fleet.advance(arrival - 0.001)
        record.add(fleet.send(arrival, 1000, 200, PLAIN, ()), 1000, 200, 0, [])
    fleet.advance(0.7)
    _, replay = record.finish(0.7)
    live = session.record(prepare(replay), 0.7)
    again = simulate(tmp_path / "run" / "scenario.yaml").record
    assert live.requests["generated"].tolist() == again.requests["generated"].tolist()
    assert 0 < live.requests["generated"].min() < 200
    assert live.plans.tobytes() == again.plans.tobytes()


def test_requests_that_come_too_late_come_as_soon_as_they_can() -> None:
    scenario = load_scenario(CHAT)
    session = LiveSession(prepare(scenario), lambda *_: None)
    fleet = session.fleet
    assert fleet.send(0.0, 10, 10, PLAIN, ()) == 0.0
    fleet.advance(2.0)
    arrival = fleet.send(1.0, 10, 10, PLAIN, ())
    front_end = prepare(scenario).pools[0].deployment.engine.front_end
    assert 2.0 < arrival + front_end < 2.0 + 1e-12
    assert fleet.send(0.5, 10, 10, PLAIN, ()) == arrival


def test_a_fleet_that_scales_itself_is_not_served() -> None:
    scenario = load_scenario(CHAT | {"fleet": {"gpu": "h100-sxm", "replicas": {"max": 2}}})
    with pytest.raises(UsageError, match="with --control"):
        LiveSession(prepare(scenario), lambda *_: None)
