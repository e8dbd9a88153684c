"""``policy: guaranteed-no-evict``, worked out by hand: blocks of 16, ten of them."""

from __future__ import annotations

import pytest

from sim.memory import PagedAllocator
from sim.request import Request
from sim.schedulers import Limits
from sim.schedulers.no_evict import NoEvict, NoEvictOverlap

Step = tuple[list[int], int, list[int]]


def steps(policy: NoEvict, lengths: list[tuple[int, int]]) -> list[Step]:
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


@pytest.mark.parametrize(("chunked", "first"), [(True, [40, 40, 10]), (False, [40, 40])])
def test_a_prompt_runs_whole_or_waits_unless_it_may_be_cut(chunked: bool, first: list[int]) -> None:
    limits = Limits(max_num_batched_tokens=90, max_model_len=64, chunked_prefill=chunked)
    assert steps(NoEvict(limits, PagedAllocator(10, 16)), LENGTHS)[0][0] == first


def test_who_asks_for_more_than_there_is_is_refused() -> None:
    limits = Limits(max_model_len=1000, max_tokens=130)
    policy = NoEvict(limits, PagedAllocator(10, 16))
    assert policy.refusal(Request(0, 0.0, 31, 5)) == "larger than the KV cache"
    assert policy.refusal(Request(0, 0.0, 30, 5)) is None
