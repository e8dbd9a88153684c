"""Requests that are sent while the simulation runs meet what they would have met as a trace."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.loop.recorder import COMPLETED, GAVE_UP
from sim.loop.steering import Action
from sim.metrics.record.run_record import RunRecord
from sim.request import PLAIN, Request
from sim.result import Result
from sim.scenario import Scenario, load_scenario
from sim.schedulers.roles import Prompt
from sim.serve.names import Names
from sim.serve.record import Record
from sim.serve.session import LiveSession
from sim.setup import prepare
from sim.simulation import simulate
from sim.trails.tokens import token_times
from sim.workload.classes import classes_of
from tests.places import VLLM

CHAT = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": VLLM,
    "max_model_len": 8192,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 1},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 100},
    },
}
NGRAM = {"method": "ngram", "num_tokens": 3, "acceptance": {"rates": [0.75, 0.55, 0.38]}}
PHASES: list[dict[str, Any]] = [
    {"name": "prompts", "role": "prefill", "gpu": "h100-sxm", "replicas": 2},
    {"name": "answers", "role": "decode", "gpu": "h100-sxm", "kv_cache": {"num_gpu_blocks": 600}},
]
FLEETS: dict[str, dict[str, Any]] = {
    "one replica": {},
    "every iteration an event": {"run.leap": False},
    "three replicas": {"fleet.replicas": 3, "router": "power-of-two"},
    "too little memory": {"kv_cache.num_gpu_blocks": 400},
    "by rank in too little memory": {"kv_cache.num_gpu_blocks": 400, "scheduler.order": "sjf"},
    "planned ahead": {"scheduler.async_scheduling": True},
    "as vLLM chooses": {"engine": "vllm"},
    "few slots": {"scheduler.max_num_seqs": 4},
    "sglang": {"engine": "sglang"},
    "whole prompts": {"scheduler.chunked_prefill": False, "scheduler.max_num_batched_tokens": 8192},
    "prompts first": {"scheduler.policy": "vllm-v0", "scheduler.max_num_batched_tokens": 8192},
    "no front end": {"engine": "ideal"},
    "data ranks": {"model": "qwen3-30b-a3b", "fleet.data_parallel": 2},
    "pipeline": {"fleet.pipeline_parallel": 2},
    "drafts": {"speculative": NGRAM},
    "drafts in too little memory": {"speculative": NGRAM, "kv_cache.num_gpu_blocks": 400},
    "two pools": {
        "fleet": [{"gpu": "h100-sxm", "replicas": 2}, {"name": "old", "gpu": "a100-sxm-80gb"}],
        "router": "least-outstanding",
    },
    "pools of one phase": {"fleet": PHASES},
    "layers pushed, drafts": {
        "fleet": PHASES,
        "speculative": NGRAM,
        "transfer": {"mode": "push-layerwise", "min_prompt": 100, "per_block": "1ms"},
    },
    "prompts cached where they are computed": {
        "fleet": [{**PHASES[0], "kv_cache": {"enable_prefix_caching": True}}, PHASES[1]],
    },
    "scaled by itself": {
        "fleet.replicas": {"min": 1, "max": 4},
        "scheduler.max_num_seqs": 8,
        "autoscaling": {
            **{"metric": "running", "target": 4, "interval": "300ms", "cold_start": "200ms"},
            "stabilisation": "500ms",
        },
    },
    "failing": {
        "fleet.replicas": 3,
        "failures": {"mtbf": "2s", "repair": "300ms", "in_flight": "lost"},
    },
    "prefix cache": {"kv_cache": {"enable_prefix_caching": True, "num_gpu_blocks": 700}},
    "sglang's tree": {"engine": "sglang", "kv_cache.enable_prefix_caching": True},
    "classes and a prefix cache": {
        "kv_cache.enable_prefix_caching": True,
        "scheduler.order": "priority",
        "scheduler.max_num_seqs": 4,
        "workload.classes": [
            {"name": "chat", "share": 0.5},
            {"name": "batch", "share": 0.5, "priority": 2},
        ],
    },
}

Told = dict[int, list[float]]
Steered = tuple[()] | tuple[Sequence[Action], Sequence[int]]


def played_live(
    scenario: Scenario, path: Path, seed: int, *, cancels: float = 0.0, steered: Steered = ()
) -> tuple[RunRecord, Told]:
    """A session of 150 requests, the clock read at random moments, and the times of all tokens. So
    large a share of the clients goes away; in a tenth of the moments one of the replicas is
    ``steered``: what may be done, and to which."""
    rng, told = random.Random(seed), Told()
    open_: dict[int, float] = {}

    def hear(request: Request, tokens: int, now: float, replica: int) -> None:
        if isinstance(request, Prompt):
            return
        times = told.setdefault(request.id, [])
        times += [now] * (tokens - len(times))
        if tokens == request.output_tokens:
            open_.pop(request.id, None)

    session = LiveSession(
        prepare(scenario), hear, lambda request, _: open_.pop(request.id, None) and None
    )
    caches = any(pool.kv_cache.enable_prefix_caching for pool in scenario.pools)
    classes, names = classes_of(scenario) or (PLAIN,), Names()
    record = Record(path, scenario, ranked=classes != (PLAIN,), caches=caches)
    fleet, now = session.fleet, 0.0
    for number in range(150):
        prompt, output = rng.randint(1, 3000), rng.choice([1, 2, rng.randint(1, 300)])
        start, kind = rng.choice([0, 10_000, 20_000]), rng.choice(classes)
        blocks, prefix = names.of(range(start, start + prompt)) if caches else ([], ())
        arrival = fleet.send(now, prompt, output, kind, prefix)
        record.add(arrival, prompt, output, kind.priority, blocks)
        open_[number] = arrival
        for _ in range(rng.randint(0, 3)):
            now += rng.expovariate(20)
            fleet.advance(now)
            if open_ and rng.random() < cancels:
                gone = rng.choice(list(open_))
                record.cancelled(gone, fleet.leave(gone, open_.pop(gone), now))
            if steered and rng.random() < 0.1:
                actions, places = steered
                session.steer(rng.choice(actions), rng.choice(places), now)
        if number % 10 == 0:  # exactly when something happens
            now = max(now, min(fleet.due, now + 1.0))
            fleet.advance(now)
    while fleet.outstanding or (fleet.due < np.inf and not session.lasts):
        now = fleet.due + 0.01
        fleet.advance(now)
    _, replay = record.finish(session.horizon(now), session.steps)
    return session.record(prepare(replay)), told


@pytest.mark.parametrize("cancels", [0.0, 0.3], ids=["all wait", "some go away"])
@pytest.mark.parametrize("name", FLEETS)
def test_a_session_is_the_run_of_its_trace(name: str, cancels: float, tmp_path: Path) -> None:
    scenario = load_scenario(CHAT).override(FLEETS[name])
    live, told = played_live(scenario, tmp_path / "run", 7, cancels=cancels)
    again = simulate(tmp_path / "run" / "scenario.yaml").record
    for table in ("plans", "requests", "gaps", "handed", "held", "lookups"):
        mine, theirs = getattr(live, table), getattr(again, table)
        assert mine.tobytes() == theirs.tobytes(), table
    assert live.end == again.end
    assert Result(live).summary == Result(again).summary
    gave_up = int((live.requests["status"] == GAVE_UP).sum())
    assert (gave_up > 20) == (cancels > 0) or name == "failing"
    if cancels or name == "failing":
        assert live.attempts is not None
        assert again.attempts is not None
        for table in ("failed", "outages", "chunks"):
            mine, theirs = getattr(live.attempts, table), getattr(again.attempts, table)
            assert mine.tobytes() == theirs.tobytes(), table
        return
    requests, plans = Result(live)._request_columns(), Result(live)._timeseries_columns()
    for number, (times, how) in enumerate(token_times(requests, plans)):
        assert len(told[number]) == live.requests["generated"][number]
        if how == "exact":  # tokens that come together with drafts have one time
            np.testing.assert_allclose(list(dict.fromkeys(told[number])), times, rtol=1e-12)


STEERED: dict[str, tuple[str, Sequence[Action], Sequence[int]]] = {
    "replicas": ("three replicas", ("drain", "start", "start", "fail"), range(3)),
    "in too little memory": ("too little memory", ("drain", *["start"] * 3, "fail"), [0]),
    "pools": ("two pools", ("drain", "start", "start", "fail"), range(3)),
    "pools of one phase": ("pools of one phase", ("drain", "start", "start"), range(3)),
    "data ranks": ("data ranks", ("drain", *["start"] * 3, "fail"), [0]),
    "a pipeline": ("pipeline", ("drain", "start"), [0]),
    "with caches": ("prefix cache", ("drain", "start", "start", "fail"), [0]),
    "drafts": ("drafts", ("drain", "start", "start", "fail"), [0]),
    "while they scale themselves": ("scaled by itself", ("fail",), range(4)),
    "while they fail": ("failing", ("drain", "start", "start"), range(3)),
}
"""A fleet of ``FLEETS``, what operators do, and to which of its replicas."""


@pytest.mark.parametrize("cold", ["0s", "300ms"])
@pytest.mark.parametrize("name", STEERED)
def test_a_session_whose_replicas_are_steered_is_the_run_of_its_trace(
    name: str, cold: str, tmp_path: Path
) -> None:
    fleet, actions, places = STEERED[name]
    scenario = load_scenario(CHAT).override(FLEETS[fleet])
    if name != "while they scale themselves":  # which has a cold start of its own
        scenario = scenario.override(
            {
                "steering": {
                    "steps": [{"at": "1s", "do": "drain", "pool": scenario.pools[0].name}],
                    "cold_start": cold,
                }
            }
        )
    live, told = played_live(scenario, tmp_path / "run", 11, cancels=0.1, steered=(actions, places))
    result = simulate(tmp_path / "run" / "scenario.yaml")
    again = result.record
    steps = again.scenario.steering
    assert steps is not None
    assert len(steps.steps) > 15
    for table in ("plans", "requests", "gaps", "handed", "held", "lookups"):
        mine, theirs = getattr(live, table), getattr(again, table)
        assert mine.tobytes() == theirs.tobytes(), table
    assert live.attempts is not None
    assert again.attempts is not None
    for table in ("failed", "outages", "chunks"):
        assert getattr(live.attempts, table).tobytes() == getattr(again.attempts, table).tobytes()
    assert Result(live).summary == result.summary
    status = live.requests["status"].tolist()
    assert status.count(COMPLETED) > 10
    assert status.count(GAVE_UP) > 3
    if "fail" in actions:
        assert len(live.attempts.outages) > 1
    for number in np.flatnonzero(live.requests["status"] == COMPLETED).tolist():
        assert len(told[number]) >= live.requests["generated"][number]


def test_a_session_that_is_cut_off_is_the_run_with_that_horizon(tmp_path: Path) -> None:
    scenario = load_scenario(CHAT)
    session = LiveSession(prepare(scenario), lambda *_: None)
    record, fleet = Record(tmp_path / "run", scenario, ranked=False, caches=False), session.fleet
    for arrival in (0.0, 0.125, 0.25):
        fleet.advance(arrival - 0.001)
        record.add(fleet.send(arrival, 1000, 200, PLAIN, ()), 1000, 200, 0, [])
    fleet.advance(0.7)
    _, replay = record.finish(session.horizon(0.7))
    live = session.record(prepare(replay))
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
    front_end = fleet.passing(10)
    assert 2.0 < arrival + front_end < 2.0 + 1e-12
    assert fleet.send(0.5, 10, 10, PLAIN, ()) == arrival


def test_what_happens_between_two_events_happens_then() -> None:
    """A replica fails in the middle of a leap, and comes back when nothing else is due: what it had
    delivered is lost, no more, and it was gone from the one moment to the other."""
    told = Told()
    session = LiveSession(
        prepare(load_scenario(CHAT)),
        lambda request, tokens, now, _: told.setdefault(request.id, []).append(now),
    )
    fleet, clients = session.fleet, session.clients
    fleet.send(0.0, 100, 400, PLAIN, ())
    fleet.advance(1.0)
    used = fleet.replicas[0].kv_used
    fleet.advance(1.5)
    assert fleet.replicas[0].kv_used > used > 0  # in one leap
    clients.fail(0)
    fleet.advance(4.25)
    clients.revive(0)
    fleet.send(5.0, 100, 10, PLAIN, ())
    fleet.advance(9.0)
    rows = clients.rows.rows()
    assert rows.failed["generated"].tolist() == [len(told[0])]
    assert len(told[0]) > 100
    assert rows.outages[["since", "until"]].tolist() == [(1.5, 4.25)]
    assert len(told[1]) == 10
    assert fleet.close() == told[1][-1]  # the run ends with its last event, whenever it was asked
