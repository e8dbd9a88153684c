"""DistServe's question: what prefill and decode apart gain a GPU, for a model of 13 billion
parameters, prompts of 512 and answers of 64 tokens, nine of ten within TTFT 0.4 s and TPOT 40 ms.

Published (A100 80 GB, 2023): 5.6 requests/s of a GPU that only prefills, 10 of one that only
decodes, 1.6 of one that does both, 3.3 with two that prefill for one that decodes. Today's kernels
are faster and chunks of prompts disturb decodes less: here they are about 15, 21, 5 and 7. So the
numbers of a GPU are not compared with the published ones, and the gain is smaller (1.4 against
2.1). What must hold of both is the rule that explains them: apart, the slower side decides, as if
each side were alone.
"""

from __future__ import annotations

from typing import Any

import pytest

import sim

GPU = "a100-sxm-80gb"
PREFILL: dict[str, Any] = {"name": "prompts", "role": "prefill", "gpu": GPU}
DECODE: dict[str, Any] = {"name": "answers", "role": "decode", "gpu": GPU}
BOTH = {"ttft": "400ms", "tpot": "40ms"}


def holds(fleet: Any, slo: dict[str, str], rate: float, **more: Any) -> bool:
    """Whether nine of ten requests are within ``slo`` at so many requests/s."""
    summary = sim.simulate(
        {
            "model": "llama-2-13b",
            "fleet": fleet,
            "max_model_len": 2048,
            "workload": {
                "arrivals": {"kind": "poisson", "rate": rate},
                "prompt_tokens": {"kind": "fixed", "value": 512},
                "output_tokens": {"kind": "fixed", "value": more.pop("output", 64)},
            },
            "slo": {**slo, "attainment": 0.9},
            "run": {"requests": 800, "warmup": 100},
            **more,
        }
    ).summary
    return bool(summary["infersim"]["verdict"]["attainment"] >= 0.9)


def highest(fleet: Any, slo: dict[str, str], most: float, **more: Any) -> float:
    """The highest rate at which it holds, to 2 % of ``most``."""
    low, high = 0.0, most
    while high - low > 0.02 * most:
        rate = (low + high) / 2
        low, high = (rate, high) if holds(fleet, slo, rate, **more) else (low, rate)
    return low


@pytest.mark.slow
def test_apart_the_slower_side_decides() -> None:
    prefill = highest({"gpu": GPU}, {"ttft": "400ms"}, 30.0, output=1)
    decode = highest([{**PREFILL, "replicas": 8}, DECODE], {"tpot": "40ms"}, 40.0)
    apart = [{**PREFILL, "replicas": 2}, DECODE]
    expected = min(2 * prefill, decode)
    assert holds(apart, BOTH, 0.93 * expected)
    assert not holds(apart, BOTH, 1.1 * expected)
    # published: 2.1 times as many of a GPU as with prompts and decodes in one batch after another
    whole = {"scheduler": {"chunked_prefill": False}}
    alone = highest({"gpu": GPU}, BOTH, 10.0, **whole)
    assert 1.2 < expected / 3 / alone < 2.1
