"""Drafts where prompts are computed apart: what comes over the link, and what waits for room."""

from __future__ import annotations

import pytest

import sim
from sim.assembly import costs_of
from sim.growth.courses import DraftCourses
from sim.memory.drafted import DraftedAllocator
from sim.request import Request
from sim.scenario.sections.transfer import Transfer
from sim.setup import prepare
from sim.specs.speculation import Speculation
from tests.feature_pairs import check_together

APART = {
    "model": "llama-3.1-8b",
    "fleet": [
        {"name": "prompts", "role": "prefill", "gpu": "h100-sxm"},
        {"name": "answers", "role": "decode", "gpu": "h100-sxm"},
    ],
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 1},
        "prompt_tokens": {"kind": "fixed", "value": 500},
        "output_tokens": {"kind": "fixed", "value": 10},
    },
    "run": {"requests": 3, "warmup": 0},
}


def drafts(method: str) -> dict[str, object]:
    return {"method": method, "num_tokens": 2, "acceptance_rate": 1}


def test_the_first_iteration_brings_one_token_and_the_others_what_is_accepted() -> None:
    result = sim.simulate(sim.load_scenario(APART | {"speculative": drafts("eagle")}))
    series = result.timeseries[result.timeseries["replica"] == 1]
    decoding = series[series["decode_seqs"] > 0]
    assert int(decoding["iterations"].sum()) == 3 * 3  # 9 tokens by threes, of each request
    assert int(decoding["decode_tokens"].sum()) == 3 * 9
    assert int(series[series["prefill_seqs"] > 0]["decode_tokens"].sum()) == 0


def test_what_the_drafter_keeps_of_a_prompt_goes_over_the_link_too() -> None:
    costs = {}
    for method in (None, "ngram", "eagle"):
        given = {} if method is None else {"speculative": drafts(method)}
        pools = prepare(sim.load_scenario(APART | given)).pools
        costs[method] = costs_of(pools[1], Transfer()).token
    assert costs["ngram"] == costs[None]
    assert costs["eagle"] == pytest.approx(costs[None] * 33 / 32)  # a layer more


def test_room_for_drafts_is_kept_free_while_prompts_are_on_their_way() -> None:
    """Blocks of 4, prompts of 8, and a pass of 3 tokens with 2 slots more: 7 + 5 = 12 are 3
    blocks, one more than the prompt."""
    courses = DraftCourses(Speculation("eagle", 2, (1.0, 1.0)), seed=1)
    kv = DraftedAllocator(8, 4, 100, courses)
    first, second, third = (Request(i, 0.0, 8, 9) for i in range(3))
    assert kv.allocate_for_load(first, 8)
    assert kv.allocate_for_load(second, 8)  # 2 + 1 of it and 1 of the first, of 6
    assert not kv.allocate_for_load(third, 8)  # 3 and 2, of 4
    assert kv.reserved == 16
    assert kv.resume_from_host(first)
    assert kv.reserved == 20
    kv.check_integrity({first: (8, False), second: (8, False)})
    other = Request(3, 0.0, 10, 9)
    assert kv.allocate(other, 10)  # 10 and 2 slots: 3 blocks, which nobody kept for the second
    assert not kv.resume_from_host(second)
    kv.free(other)
    assert kv.resume_from_host(second)
    kv.free(first)
    kv.free(second)
    assert kv.reserved == 0


@pytest.mark.parametrize("method", ["ngram", "eagle"])
@pytest.mark.parametrize("role", ["roles", "pushed"])
def test_little_memory_apart_loses_nothing(role: str, method: str) -> None:
    happened = check_together((role, method, "tiny-memory"))
    assert happened["completed"] == 20
    assert happened["preempted"]
