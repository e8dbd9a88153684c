"""vLLM V1 without chunked prefill mixes whole prompts with decodes; V0's rule is a policy apart."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.errors import ScenarioError
from sim.memory import PagedAllocator
from sim.request import Request
from sim.schedulers import ChunkedPrefill, Limits, PrefillFirst, make_scheduler
from tests.golden_scenarios import changed
from tests.places import VLLM

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": VLLM,
    "max_model_len": 400,
    "scheduler": {"max_num_seqs": 64, "max_num_batched_tokens": 400},
    "workload": {
        "arrivals": {"kind": "constant", "rate": 60},
        "prompt_tokens": {"kind": "fixed", "value": 150},
        "output_tokens": {"kind": "fixed", "value": 50},
    },
    "run": {"requests": 200},
}


def served(changes: dict[str, object]) -> sim.Result:
    return sim.simulate(sim.load_scenario(changed(BASE, changes)))


def test_whole_prompts_share_an_iteration_with_decodes_and_stop_at_the_first_that_is_too_long() -> (
    None
):
    limits = Limits(max_num_batched_tokens=50, max_model_len=100, chunked_prefill=False)
    scheduler = make_scheduler("continuous", limits, PagedAllocator(100, 16))
    for number, prompt in enumerate((20, 20, 45, 5)):
        scheduler.submit(Request(number, 0.0, prompt, 9))
    first = scheduler.schedule(0.0)
    assert first is not None
    assert [(c.request.id, c.tokens) for c in first.chunks] == [(0, 20), (1, 20)]
    scheduler.complete(first, 1, 1.0)
    second = scheduler.schedule(1.0)  # of 50 tokens two are decodes, and 45 of the rest a prompt
    assert second is not None
    assert second.decode == 2
    assert [(c.request.id, c.tokens) for c in second.chunks] == [(2, 45)]  # the 5 behind it wait
    assert [r.id for r in scheduler.waiting] == [3]


def test_a_threshold_cuts_prompts_all_the_same() -> None:
    limits = Limits(
        max_num_batched_tokens=50,
        max_model_len=100,
        chunked_prefill=False,
        long_prefill_token_threshold=30,
    )
    scheduler = make_scheduler("continuous", limits, PagedAllocator(100, 16))
    for number in range(2):
        scheduler.submit(Request(number, 0.0, 45, 9))
    plan = scheduler.schedule(0.0)
    assert plan is not None
    assert [(c.request.id, c.tokens) for c in plan.chunks] == [(0, 30)]


def test_one_that_outgrew_the_budget_before_it_was_preempted_is_prefilled_alone() -> None:
    found = served(
        {
            "kv_cache": {"num_gpu_blocks": 22},
            "scheduler": {
                "max_num_seqs": 3,
                "max_num_batched_tokens": 151,
                "chunked_prefill": False,
            },
        }
    ).summary["infersim"]
    assert found["preemptions"] > 5
    assert found["requests"]["completed"] == 200


def test_prompts_that_are_not_cut_stop_decodes_in_v0_alone() -> None:
    """With room in an iteration for every prompt, whole or cut is the same to V1."""
    roomy = {"scheduler.max_num_batched_tokens": 8192}
    cut, whole = (served({**roomy, "scheduler.chunked_prefill": c}) for c in (True, False))
    assert whole.record.requests.tobytes() == cut.record.requests.tobytes()
    older = served({**roomy, "scheduler.policy": "vllm-v0"})
    assert older.summary["mean_e2el_ms"] > 1.2 * whole.summary["mean_e2el_ms"]
    assert not (older.timeseries["prefill_seqs"] * older.timeseries["decode_seqs"]).any()
    assert (whole.timeseries["prefill_seqs"] * whole.timeseries["decode_seqs"]).any()


def test_the_policy_of_v0_has_whole_prompts_unasked() -> None:
    scenario = sim.load_scenario(changed(BASE, {"scheduler.policy": "vllm-v0"}))
    assert not scenario.scheduler.chunked_prefill
    assert scenario.scheduler.policy_class() is PrefillFirst
    plain = sim.load_scenario(changed(BASE, {"scheduler.chunked_prefill": False}))
    assert plain.scheduler.policy_class() is ChunkedPrefill
    pool = {"fleet": [{"gpu": "h100-sxm", "scheduler": {"policy": "vllm-v0"}}]}
    (own,) = sim.load_scenario(changed(BASE, pool)).pools
    assert not own.scheduler.chunked_prefill


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"chunked_prefill": True}, "`policy: vllm-v0` has whole prompts; with chunks"),
        ({"async_scheduling": True}, "`policy: vllm-v0` has no async_scheduling"),
        ({"long_prefill_token_threshold": 9}, "is a key of `policy: vllm`"),
    ],
)
def test_what_v0_does_not_have_is_refused(knobs: dict[str, object], words: str) -> None:
    knobs = {"policy": "vllm-v0", **knobs}
    with pytest.raises(ScenarioError, match=words):
        sim.load_scenario(changed(BASE, {f"scheduler.{key}": v for key, v in knobs.items()}))


def test_a_budget_with_which_vllm_does_not_start_is_said() -> None:
    def told(**knobs: object) -> bool:
        changes = {f"scheduler.{key}": value for key, value in knobs.items()}
        notes = served(changes | {"run.requests": 5}).summary["infersim"]["notes"]
        return any("vLLM starts only with" in note for note in notes)

    assert told(chunked_prefill=False, max_num_batched_tokens=399)
    assert not told(chunked_prefill=False, max_num_batched_tokens=400)
    assert not told(max_num_batched_tokens=399)
    assert not told(policy="vllm-v0", max_num_batched_tokens=399)
