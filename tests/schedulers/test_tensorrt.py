"""TensorRT-LLM's rules, worked out by hand from its source: blocks of 16, ten of them.

A sequence is what ``PyCapacityScheduler`` and ``PyMicroBatchScheduler`` choose
(tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py @ 002f3cc), iteration by iteration.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

import sim
from sim.errors import UsageError
from sim.memory import PagedAllocator
from sim.request import Request
from sim.scenario.sections.deployment import SchedulerSettings
from sim.schedulers import Limits
from sim.schedulers.tensorrt import MaxUtilization, MaxUtilizationOverlap, NoEvict, NoEvictOverlap
from tests.places import MODELS

NO_EVICT = "guaranteed-no-evict"

Step = tuple[list[int], int, list[int]]


def steps(policy: MaxUtilization, lengths: list[tuple[int, int]]) -> list[Step]:
    """(prompt tokens by request, decodes, who finished) of each iteration of a burst."""
    for number, (prompt, output) in enumerate(lengths):
        policy.submit(Request(number, 0.0, prompt, output))
    log: list[Step] = []
    while (plan := policy.schedule(float(len(log)))) is not None:
        prompts = [chunk.tokens for chunk in plan.chunks]
        finished = policy.complete(plan, 1, float(len(log) + 1))
        log.append((prompts, plan.decode, [request.id for request in finished]))
    policy.check_integrity()
    assert policy.kv.reserved == 0
    return log


LENGTHS = [(40, 2), (40, 4), (40, 2), (8, 1)]


def test_a_request_enters_when_all_that_it_asks_for_fits() -> None:
    """40 tokens and 24 more are four blocks: two requests at a time, and none behind the third."""
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=100, max_model_len=64, max_tokens=24)
    assert steps(NoEvict(limits, PagedAllocator(10, 16)), LENGTHS) == [
        ([40, 40], 0, []),
        ([], 2, [0]),
        ([40, 8], 1, [3]),
        ([], 2, [1, 2]),
    ]


def test_room_is_made_an_iteration_later_with_overlap() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=100, max_model_len=64, max_tokens=24)
    assert steps(NoEvictOverlap(limits, PagedAllocator(10, 16)), LENGTHS) == [
        ([40, 40], 0, []),
        ([], 2, [0]),
        ([], 1, []),
        ([40, 8], 1, [1, 3]),
        ([], 1, [2]),
    ]


@pytest.mark.parametrize(("chunked", "first"), [(True, [40, 40, 16]), (False, [40, 40])])
def test_a_prompt_runs_whole_or_waits_unless_it_may_be_cut(chunked: bool, first: list[int]) -> None:
    limits = Limits(max_num_batched_tokens=100, max_model_len=64, chunked_prefill=chunked)
    assert steps(NoEvict(limits, PagedAllocator(10, 16)), LENGTHS)[0][0] == first


def test_who_asks_for_more_than_there_is_is_refused() -> None:
    limits = Limits(max_model_len=1000, max_tokens=130)
    policy = NoEvict(limits, PagedAllocator(10, 16))
    assert policy.refusal(Request(0, 0.0, 31, 5)) == "larger than the KV cache"
    assert policy.refusal(Request(0, 0.0, 30, 5)) is None


def test_a_chunk_is_whole_blocks_unless_it_ends_its_prompt() -> None:
    """60 tokens: 40 and the first block of the next prompt; 4 are left, too few for another block.
    Then its other 24, and 32 of the 40 of the third; its last 8 go with the fourth prompt."""
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=60, max_model_len=64)
    assert steps(NoEvict(limits, PagedAllocator(20, 16)), LENGTHS) == [
        ([40, 16], 0, []),
        ([24, 32], 1, [0]),
        ([8, 8], 1, [3]),
        ([], 2, [2]),
        ([], 1, [1]),
    ]


def test_without_reserving_answers_more_run_at_once_and_the_newest_is_paused() -> None:
    """Three prompts of 40 take nine of ten blocks. At 48 tokens two of them want a block, and one
    is left: the newest is paused, and computes its 49 tokens again when the others have ended."""
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=200, max_model_len=64, max_tokens=24)
    lengths = [(40, 10), (40, 10), (40, 12)]
    found = steps(MaxUtilization(limits, PagedAllocator(10, 16)), lengths)
    assert found[:9] == [([40, 40, 40], 0, []), *[([], 3, [])] * 8]
    assert found[9:] == [([], 2, [0, 1]), ([49], 0, []), ([], 1, []), ([], 1, [2])]
    reserved = steps(NoEvict(limits, PagedAllocator(10, 16)), lengths)
    assert [decodes for _, decodes, _ in reserved][:3] == [0, 2, 2]


def test_with_overlap_a_pause_comes_at_the_same_step() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=200, max_model_len=64)
    lengths = [(40, 10), (40, 10), (40, 12)]
    found = steps(MaxUtilizationOverlap(limits, PagedAllocator(10, 16)), lengths)
    assert found[9:11] == [([], 2, [0, 1]), ([49], 0, [])]


def waiting(iterations: int, share: float = 0.5, *, chunked: bool = True) -> Limits:
    return Limits(
        max_num_seqs=2,
        max_num_batched_tokens=100,
        max_model_len=64,
        chunked_prefill=chunked,
        batch_wait_timeout_iters=iterations,
        batch_wait_max_tokens_ratio=share,
    )


@pytest.mark.parametrize("policy", [NoEvict, MaxUtilization])
def test_a_prompt_is_passed_by_so_many_times_at_most(policy: type[MaxUtilization]) -> None:
    """A slot is free after the second iteration; 30 tokens and a decode are not half of 100."""
    lengths = [(40, 8), (40, 2), (30, 2)]
    alone = [([], 1, [])]
    assert steps(policy(waiting(3), PagedAllocator(20, 16)), lengths) == [
        ([40, 40], 0, []),
        ([], 2, [1]),
        *(alone * 3),
        ([30], 1, []),
        ([], 2, [2]),
        ([], 1, [0]),
    ]


def test_a_prompt_that_fills_the_share_does_not_wait() -> None:
    """49 tokens and a decode are half of 100."""
    found = steps(NoEvict(waiting(3), PagedAllocator(20, 16)), [(40, 8), (40, 2), (49, 2)])
    assert found[2] == ([49], 1, [])


def test_nothing_waits_where_nothing_decodes() -> None:
    found = steps(NoEvict(waiting(3), PagedAllocator(20, 16)), [(40, 2), (40, 2), (30, 2)])
    assert found[1:3] == [([], 2, [0, 1]), ([30], 0, [])]


def test_only_what_has_room_counts_as_waiting() -> None:
    """Four blocks each of nine: the third request has none before one of the others ends."""
    limits = replace(waiting(2, share=1.0), max_num_seqs=3)
    found = steps(NoEvict(limits, PagedAllocator(9, 16)), [(50, 8), (50, 4), (50, 2)])
    assert [prompts for prompts, _, _ in found] == [[50, 50], [], [], [], [], [], [50], []]


def test_a_wait_has_both_its_ends() -> None:
    settings = SchedulerSettings(policy="max-utilization", batch_wait_timeout_iters=0)
    assert settings.batch_wait_timeout_iters is None  # as TensorRT-LLM writes it
    with pytest.raises(ValidationError, match="no prompt waits without batch_wait_max_tokens_r"):
        SchedulerSettings(policy="max-utilization", batch_wait_timeout_iters=20)
    with pytest.raises(ValidationError, match="is a key of `policy: guaranteed-no-evict`"):
        SchedulerSettings(batch_wait_timeout_iters=20, batch_wait_max_tokens_ratio=0.9)


def test_a_user_is_told_of_whole_prompts_that_leave_no_room_for_decodes() -> None:
    """Prompts that fill an iteration wait until nothing decodes; in chunks, or with a few tokens
    more, they do not."""
    asked = {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "engine": "tensorrt-llm",
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 4},
            "prompt_tokens": {"kind": "fixed", "value": 2048},
            "output_tokens": {"kind": "fixed", "value": 100},
        },
        "run": {"requests": 100, "warmup": 0},
    }

    def found(budget: int, *, cut: bool) -> tuple[float, bool]:
        limits = {"max_num_batched_tokens": budget, "chunked_prefill": cut}
        summary = sim.simulate(asked | {"scheduler": limits | {"policy": NO_EVICT}}).summary
        notes = summary["infersim"]["notes"]
        return summary["mean_ttft_ms"], any(
            "tokens, which is max_num_batched_tokens" in note for note in notes
        )

    late, told = found(2048, cut=False)
    assert told
    for budget, cut in ((2048, True), (2304, False)):
        soon, told = found(budget, cut=cut)
        assert soon < late / 3
        assert not told


@pytest.mark.parametrize("policy", ["guaranteed-no-evict", "max-utilization", "sglang"])
@pytest.mark.parametrize("model", ["tiny-mamba", "tiny-linear"])
def test_an_iteration_that_takes_no_whole_block_is_refused(policy: str, model: str) -> None:
    """A block is as large as the state of the model: prompts that are cut into such are never."""

    def prepared(tokens: int) -> int:
        scenario = sim.load_scenario(
            {
                "model": str(MODELS / model),
                "fleet": {"gpu": "l40s"},
                "scheduler": {
                    "policy": policy,
                    "max_num_seqs": 6,
                    "max_num_batched_tokens": tokens,
                },
                "workload": {
                    "arrivals": {"kind": "burst"},
                    "prompt_tokens": {"kind": "fixed", "value": 200},
                    "output_tokens": {"kind": "fixed", "value": 9},
                },
                "run": {"requests": 4},
            }
        )
        return int(sim.simulate(scenario).summary["completed"])

    with pytest.raises(UsageError, match=r"max_num_batched_tokens: .*give it 48 or more"):
        prepared(47)
    assert prepared(48) == 4


def test_what_no_evict_counts_comes_back_wherever_a_request_leaves() -> None:
    kv = PagedAllocator(10, 16)
    policy = NoEvict(Limits(max_model_len=64, max_tokens=40), kv)
    requests = [Request(number, 0.0, 40, 9) for number in range(2)]
    for request in requests:
        policy.submit(request)
    plan = policy.schedule(0.0)
    assert plan is not None
    policy.complete(plan, 1, 1.0)
    policy.check_integrity()
    assert policy.withdraw(requests[0])
    policy.check_integrity()
    assert kv.free_blocks == 10 - 3
