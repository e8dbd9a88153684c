"""First tokens that wait for the launch of the prompts after theirs."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.scoring.handing_on import Launching, handed_on, launching, waits
from sim.loop.recorder import PLAN, REQUEST
from sim.simulation import simulate


def plans(*rows: tuple[float, float, int, int]) -> np.ndarray:
    """Plans from ``start`` to ``end`` with so many prompts, on a replica."""
    made = np.zeros(len(rows), PLAN)
    for name, column in zip(
        ("start", "end", "prefill_seqs", "replica"), zip(*rows, strict=True), strict=True
    ):
        made[name] = column
    return made


def requests(*rows: tuple[float, int]) -> np.ndarray:
    """Requests with their first token at a time, on a replica."""
    made = np.zeros(len(rows), REQUEST)
    made["first_token"], made["replica"] = zip(*rows, strict=True)
    return made


def test_it_waits_for_a_share_of_the_prompts_that_follow() -> None:
    """Half of the second plan's 2 s; the third plan has no prompts, the fourth comes after a
    pause; and nothing follows the last one."""
    after_each_other = plans((0, 1, 1, 0), (1, 3, 2, 0), (3, 4, 0, 0), (5, 6, 1, 0))
    first = requests((1, 0), (3, 0), (4, 0), (6, 0))
    assert waits(after_each_other, first, Launching(0.1, 0.5)).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_it_waits_for_the_launches_that_did_not_fit_into_its_own_iteration() -> None:
    """0.8 s to launch; of the first second 0.2 are left for the next plan, of the 0.6 s of a short
    one nothing: 0.6 s, and 0.5 of the 0.5 that the last one takes."""
    close = plans((0, 1, 1, 0), (1, 1.6, 1, 0), (1.6, 2.1, 1, 0))
    found = waits(close, requests((1, 0), (1.6, 0)), Launching(0.8, 0.1))
    assert found.tolist() == pytest.approx([0.6, 0.5])


def test_it_waits_for_its_own_replica() -> None:
    side_by_side = plans((0, 1, 1, 0), (0, 1, 1, 1), (1, 5, 1, 1), (1, 2, 0, 0))
    found = waits(side_by_side, requests((1, 0), (1, 1)), Launching(0.0, 0.25))
    assert found.tolist() == [0.0, 1.0]


def served(engine: str, **changes: object) -> dict[str, object]:
    return {
        "version": 1,
        "model": "deepseek-v3",
        "precision": {"weights": "fp8-block", "activations": "fp8", "kv_cache": "bf16"},
        "fleet": {"gpu": "h200-sxm", "tensor_parallel": 8},
        "engine": engine,
        "scheduler": {"max_num_batched_tokens": 8192},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 8192},
            "output_tokens": {"kind": "fixed", "value": 11},
        },
        "run": {"requests": 3, "warmup": 0},
    } | changes


def test_what_a_client_measures() -> None:
    """Three prompts, one after the other: two first tokens wait for 974 of 1,974 launches of the
    next prompt, and the answers end when they did."""
    result = simulate(served("sglang"))
    how = launching(result.record)
    assert how is not None
    assert how == pytest.approx((1974 * 41e-6, 974 / 1974))
    prompt = result.record.plans["end"] - result.record.plans["start"]
    assert prompt[:3].min() > 2 * how.least  # so that the GPU is what the host waits for
    late = 1e3 * how.share * float(prompt[1] + prompt[2]) / 3
    summary = result.summary
    found = handed_on(result.record, summary)
    assert found["mean_ttft_ms"] - summary["mean_ttft_ms"] == pytest.approx(late)
    assert summary["mean_tpot_ms"] - found["mean_tpot_ms"] == pytest.approx(late / 10)


def test_nothing_waits_where_tokens_are_handed_on_first() -> None:
    result = simulate(served("vllm"))
    assert handed_on(result.record, result.summary) == {}


def test_nothing_waits_where_another_pool_decodes() -> None:
    pool = {"gpu": "h200-sxm", "tensor_parallel": 8}
    apart = [
        pool | {"name": "prefill", "role": "prefill"},
        pool | {"name": "decode", "role": "decode"},
    ]
    result = simulate(served("sglang", fleet=apart))
    assert handed_on(result.record, result.summary) == {}
