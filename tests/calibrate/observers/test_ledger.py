"""Rows written from nothing but who was computed are those that the simulator writes of itself."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need PyTorch")

from calibrate.engine.log import Phases
from calibrate.observers.ledger import Ledger, LedgerRow
from sim.loop.recorder import PLAN
from sim.pools import make_replica_scheduler
from sim.request import Request
from sim.scenario import Scenario, load_scenario
from sim.schedulers import Plan, Scheduler
from sim.setup import prepare
from sim.simulation import simulate

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "ideal",
    "max_model_len": 240,
    "scheduler": {"max_num_seqs": 6, "max_num_batched_tokens": 48},
    "kv_cache": {"num_gpu_blocks": 100, "block_size": 16},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "uniform", "low": 3, "high": 120},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
    },
    "run": {"requests": 25},
}
NOT_ITS_OWN = {"prefill_attention", "slope"}  # what only a cost model knows


def run_of(plan: Plan, scheduler: Scheduler, preempted: tuple[int, ...]) -> LedgerRow:
    """What an engine would tell of ``plan``, which ``scheduler`` has just made."""
    decoding = [r for r in scheduler.members() if r.joined >= 0] if plan.decode else []
    tokens = dict.fromkeys((r.id for r in decoding), 1)
    before = {r.id: r.computed + scheduler.steps(r) for r in decoding}
    sampled = {r.id: [7] for r in decoding}
    for chunk in plan.chunks:
        number, complete = chunk.request.id, chunk.context + chunk.tokens
        tokens[number], before[number] = chunk.tokens, chunk.context
        sampled[number] = [7] if complete == chunk.request.tokens_to_prefill() else []
    return LedgerRow(
        tokens=tokens,
        before=before,
        sampled=sampled,
        preempted=preempted,
        running=plan.running,
        waiting=len(scheduler.waiting),
        reserved=scheduler.kv.reserved,
    )


def write_again(scenario: Scenario, predicted: Any) -> Ledger:
    """The batches of ``scenario``'s burst at the times that were ``predicted``."""
    scheduler, ledger = make_replica_scheduler(prepare(scenario).only), Ledger()
    requests = []
    for row in predicted.requests:
        prompt, output = int(row["prompt_tokens"]), int(row["output_tokens"])
        requests.append(Request(int(row["id"]), float(row["arrival"]), prompt, output))
        scheduler.submit(requests[-1])
        ledger.arrive(Request(int(row["id"]), float(row["arrival"]), prompt, output))
    for row in predicted.plans:
        start, end = float(row["start"]), float(row["end"])
        lost = [request.preemptions for request in requests]
        plan = scheduler.schedule(start)
        assert plan is not None
        pairs = zip(requests, lost, strict=True)
        preempted = tuple(r.id for r, before in pairs if r.preemptions > before)
        ran = run_of(plan, scheduler, preempted)
        done = ledger.write(ran, start, end, Phases(0.0, 0.0, end - start, 0.0))
        ended = scheduler.complete(plan, 1, end)
        assert sorted(r.id for r in done) == sorted(r.id for r in ended)
    return ledger


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_cache.num_gpu_blocks": 18},
        {"kv_cache.num_gpu_blocks": 18, "scheduler.long_prefill_token_threshold": 10},
        {"kv_cache.num_gpu_blocks": 20, "scheduler.max_num_batched_tokens": 512},
    ],
    ids=["plain", "tight", "threshold", "whole-prompts"],
)
def test_the_rows_are_those_of_the_simulator(changes: dict[str, Any]) -> None:
    scenario = load_scenario(SCENARIO).override(changes)
    predicted = simulate(scenario, leap=False).record
    ledger = write_again(scenario, predicted)
    recorder = ledger.log.recorder
    for name in set(PLAN.names or ()) - NOT_ITS_OWN:
        mine, theirs = recorder.plan_rows()[name], predicted.plans[name]
        assert mine == pytest.approx(theirs, rel=1e-9), name
    mine, theirs = recorder.request_rows(), predicted.requests
    for name in theirs.dtype.names:
        assert mine[name] == pytest.approx(theirs[name], rel=1e-12), name
    gaps, expected = recorder.gap_rows(), predicted.gaps
    assert counted(gaps) == counted(expected)
    assert predicted.trail is not None
    for mine, theirs in zip(recorder.trail_rows(), predicted.trail, strict=True):
        assert sorted(mine.tolist()) == sorted(theirs.tolist())
    assert ("num_gpu_blocks" in str(changes)) == (predicted.plans["preemptions"].sum() > 3)


def counted(gaps: Any) -> dict[float, int]:
    """How often each gap was noted."""
    counts: dict[float, int] = {}
    for row in gaps:
        gap = round(float(row["gap"]), 12)
        counts[gap] = counts.get(gap, 0) + int(row["count"])
    return counts


def test_answers_and_iterations_name_who_was_served() -> None:
    scenario = load_scenario(SCENARIO).override({"kv_cache.num_gpu_blocks": 18})
    predicted = simulate(scenario, leap=False).record
    ledger = write_again(scenario, predicted)
    assert not ledger.alive
    lengths = {number: len(tokens) for number, tokens in ledger.answers.items()}
    rows = predicted.requests
    assert lengths == dict(zip(rows["id"].tolist(), rows["output_tokens"].tolist(), strict=True))
    times = ledger.log.token_times()
    for row in rows:
        mine = times[int(row["id"])]
        assert (len(mine), mine[0], mine[-1]) == (
            row["output_tokens"], row["first_token"], row["finish"],
        )  # fmt: skip
    thrown_out = sum(len(iteration.preempted) for iteration in ledger.log.iterations)
    assert thrown_out == predicted.plans["preemptions"].sum()
