"""DistServe's question: what prefill and decode apart gain a GPU, for a model of 13 billion
parameters, prompts of 512 and answers of 64 tokens, nine of ten within TTFT 0.4 s and TPOT 40 ms.

Published (A100 80 GB, 2023): 5.6 requests/s of a GPU that only prefills, 10 of one that only
decodes, 1.6 of one that does both, 3.3 with two that prefill for one that decodes. Today's kernels
are faster and chunks of prompts disturb decodes less: here they are 15.9, 21.9, 5.2 and 7.2. So
the numbers of a GPU are not compared with the published ones, and the gain is smaller (1.4 against
2.1). What must hold of both is the rule that explains them: apart, the slower side decides, as if
each side were alone. And with an engine that computes and reads as slowly as the first two figures
say, the others must follow.
"""

from __future__ import annotations

from math import exp, factorial
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
    assert [prefill, decode] == pytest.approx(
        [15.9, 21.9], rel=0.08
    )  # quoted in sim/loop/README.md
    apart = [{**PREFILL, "replicas": 2}, DECODE]
    expected = min(2 * prefill, decode)
    assert holds(apart, BOTH, 0.93 * expected)
    assert not holds(apart, BOTH, 1.1 * expected)
    # published: 2.1 times as many of a GPU as with prompts and decodes in one batch after another
    whole = {"scheduler": {"policy": "vllm-v0"}}
    alone = highest({"gpu": GPU}, BOTH, 10.0, **whole)
    assert 1.2 < expected / 3 / alone < 2.1


def waits_at_most(time: float, rate: float, served: float) -> float:
    """The share of customers that wait no longer than ``time`` for a server that takes ``served``
    for each (M/D/1, Erlang 1909)."""
    terms = range(int(time // served) + 1)
    ahead = [rate * (number * served - time) for number in terms]
    total = sum(x**n / factorial(n) * exp(-x) for n, x in zip(terms, ahead, strict=True))
    return (1 - rate * served) * total


def test_what_the_published_prefill_says_of_its_engine() -> None:
    """5.6 requests/s with nine of ten first tokens in 400 ms are a server that takes 115 ms for a
    prompt: 64 % busy, at 116 TFLOP/s, 37 % of the peak of an A100. Alone, a prompt takes 59 ms
    here, 227 TFLOP/s or 73 %, as measured kernels do."""
    assert waits_at_most(0.4 - 0.115, 5.6, 0.115) == pytest.approx(0.9, abs=0.002)
    flops = 2 * 13.016e9 * 512
    assert flops / 0.115 / 312e12 == pytest.approx(0.37, abs=0.005)
    alone = sim.simulate(
        {
            "model": "llama-2-13b",
            "fleet": {"gpu": GPU},
            "max_model_len": 2048,
            "workload": {
                "arrivals": {"kind": "constant", "rate": 0.5},
                "prompt_tokens": {"kind": "fixed", "value": 512},
                "output_tokens": {"kind": "fixed", "value": 1},
            },
            "run": {"requests": 4, "warmup": 0},
        }
    ).record.requests
    took = alone["first_token"] - alone["scheduled"]
    assert flops / took.mean() / 312e12 == pytest.approx(0.73, abs=0.03)


@pytest.mark.slow
def test_an_engine_as_slow_as_the_published_one_holds_as_much() -> None:
    """With 45 % of the compute and 84 % of the bandwidth that prefill alone and decode alone ask
    for, 2P1D is as published; one GPU that does both holds a quarter more."""
    slow = {"assume": {"compute": 0.45, "bandwidth": 0.84}}
    prefill = highest({"gpu": GPU}, {"ttft": "400ms"}, 10.0, output=1, **slow)
    decode = highest([{**PREFILL, "replicas": 8}, DECODE], {"tpot": "40ms"}, 15.0, **slow)
    apart = highest([{**PREFILL, "replicas": 2}, DECODE], BOTH, 15.0, **slow) / 3
    assert [prefill, decode, apart] == pytest.approx([5.6, 10, 3.3], rel=0.05)
    whole = {"scheduler": {"policy": "vllm-v0"}, **slow}
    assert highest({"gpu": GPU}, BOTH, 3.0, **whole) == pytest.approx(1.6 * 1.26, rel=0.05)
