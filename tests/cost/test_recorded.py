"""Batches that are made again of recorded plans take what they took when they ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.cost.recorded import seconds_of
from sim.loop.clock import Stop
from sim.scenario import load_scenario
from sim.setup import prepare
from sim.simulation import play
from sim.workload import build
from tests.places import CHAT

DRAFTS: dict[str, Any] = {
    "method": "eagle",
    "num_tokens": 3,
    "acceptance": {"rates": [0.8, 0.6, 0.4]},
}


@pytest.mark.parametrize(
    "changes",
    [{}, {"model": "gpt-oss-20b"}, {"speculative": DRAFTS}],
    ids=["plain", "windows", "drafts"],
)
def test_each_recorded_pass_is_timed_as_it_was(changes: dict[str, Any]) -> None:
    scenario = load_scenario(CHAT).override({"run.requests": 60, **changes})
    run = play(prepare(scenario), build(scenario, scenario.seed), leap=True, stop=Stop())
    (part,) = run.parts
    plans = part.plans
    assert part.trail is not None
    chunks, _ = part.trail
    prompts: list[list[tuple[int, int]]] = [[] for _ in plans]
    for at, before, tokens in chunks[["plan", "context", "tokens"]].tolist():
        prompts[at].append((before, tokens))
    rows = np.arange(len(plans))
    seconds = seconds_of(part.pool.cost, plans, rows, prompts, plans["admitted"].tolist())
    assert sum(map(len, prompts)) == plans["prefill_seqs"].sum() >= 60
    assert seconds == pytest.approx(plans["gap"].tolist(), rel=1e-9)
    alone = seconds_of(part.pool.cost, plans, rows)
    mixed = (plans["prefill_seqs"] > 0) & (plans["computed"] > 0)
    assert mixed.any()
    assert (np.array(alone)[mixed] < plans["gap"][mixed]).all()


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-12b"])
def test_a_leap_moves_and_computes_as_much_as_its_passes(model: str) -> None:
    """Contexts of 600 to 1,500 tokens grow past windows of 1,024."""
    scenario = load_scenario(
        {
            "model": model,
            "fleet": {"gpu": "h100-sxm"},
            "workload": {
                "arrivals": {"kind": "constant", "rate": 2},
                "prompt_tokens": {"kind": "fixed", "value": 600},
                "output_tokens": {"kind": "fixed", "value": 900},
            },
            "run": {"requests": 6, "warmup": 0},
        }
    )
    leaps, steps = (
        play(prepare(scenario), build(scenario, scenario.seed), leap=leap, stop=Stop())
        for leap in (True, False)
    )
    assert len(leaps.plans) < len(steps.plans) / 20
    for amount in ("seconds", "bytes", "flops"):
        found, expected = (getattr(run.attribution, amount) for run in (leaps, steps))
        assert found == pytest.approx(expected, rel=1e-9), amount
