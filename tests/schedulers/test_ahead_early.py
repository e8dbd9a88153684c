"""Requests that come while prompts are still being launched: they are in the next plan."""

from __future__ import annotations

import pytest

from sim.result import Result
from sim.simulation import simulate


def run(engine: str, apart: float) -> Result:
    """Two prompts of 8,192 tokens, the second so many seconds after the first."""
    return simulate(
        {
            "version": 1,
            "model": "deepseek-v3",
            "precision": {"weights": "fp8-block", "activations": "fp8", "kv_cache": "bf16"},
            "fleet": {"gpu": "h200-sxm", "tensor_parallel": 8},
            "engine": engine,
            "scheduler": {"max_num_batched_tokens": 8192, "async_scheduling": True},
            "workload": {
                "arrivals": {"kind": "constant", "rate": 1 / apart},
                "prompt_tokens": {"kind": "fixed", "value": 8192},
                "output_tokens": {"kind": "fixed", "value": 8},
            },
            "run": {"requests": 2, "warmup": 0},
        }
    )


def kinds(result: Result) -> list[bool]:
    """Of each plan, whether it has prompts."""
    return (result.record.plans["prefill_seqs"] > 0).tolist()[:3]


@pytest.mark.parametrize(
    ("engine", "apart", "expected"),
    [
        ("sglang", 0.05, [True, True, False]),  # launching takes half of 0.36 s
        ("sglang", 0.29, [True, False, True]),  # the host had planned a decode by then
        ("vllm", 0.05, [True, False, True]),  # plans when the prompt begins
    ],
)
def test_who_comes_during_the_launch_is_in_the_next_plan(
    engine: str, apart: float, expected: list[bool]
) -> None:
    result = run(engine, apart)
    first = result.record.plans[0]
    assert first["end"] - first["start"] > apart
    assert kinds(result) == expected
