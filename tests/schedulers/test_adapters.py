"""LoRA adapters by the rules of vLLM and SGLang: who waits for a slot, who passes, and what is
copied, by hand."""

from __future__ import annotations

from sim import catalog
from sim.memory import PagedAllocator
from sim.request import Request
from sim.schedulers import Adapted, AdapterPrefill, AdapterSlots, Limits
from sim.schedulers.adapters import AdapterSglang, AdapterSglangOverlap, AsyncAdapterPrefill

LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=1000, max_model_len=1000)


def scheduler(slots: int, kind: type[Adapted] = AdapterPrefill, *, blocks: bool = False) -> Adapted:
    """A replica whose loads take half a second each."""
    return kind(LIMITS, PagedAllocator(100, 16), AdapterSlots(slots, 0.5, blocks))


def asking(number: int, adapter: int, output: int) -> Request:
    request = Request(number, 0.0, 10, output)
    request.adapter = adapter
    return request


def step(scheduler: Adapted, now: float) -> tuple[list[int], int, int, float]:
    """An iteration of a second: requests with chunks, adapters, loads, and when it can run."""
    plan = scheduler.schedule(now)
    assert plan is not None
    scheduler.complete(plan, 1, max(now, scheduler.starts) + 1)
    scheduler.check_integrity()
    chunks = [chunk.request.id for chunk in plan.chunks]
    return chunks, scheduler.adapters, scheduler.loads, scheduler.starts


def test_a_request_without_a_slot_waits_and_later_ones_pass() -> None:
    one = scheduler(slots=2)
    for number, (adapter, output) in enumerate([(7, 2), (8, 4), (9, 1), (7, 1), (8, 9)]):
        one.submit(asking(number, adapter, output))
    assert step(one, 0.0) == ([0, 1, 3, 4], 2, 2, 1.0)  # 2 has a third adapter
    assert [request.id for request in one.waiting] == [2]
    assert step(one, 2.0) == ([], 2, 0, 1.0)  # 3 has ended, 0 ends now, and 7 is free for 9
    assert step(one, 3.0) == ([2], 2, 1, 3.5)
    assert list(one.slots.loaded) == [8, 9]


def test_those_passed_over_keep_their_order() -> None:
    one = scheduler(slots=1)
    for number, adapter in enumerate([5, 6, 7, 5, 6]):
        one.submit(asking(number, adapter, 1))
    assert step(one, 0.0)[0] == [0, 3]
    assert [request.id for request in one.waiting] == [1, 2, 4]
    assert step(one, 2.0)[0] == [1, 4]
    assert step(one, 4.0)[0] == [2]


def test_an_arrival_matters_behind_one_that_lacks_a_slot() -> None:
    one = scheduler(slots=1)
    one.submit(asking(0, 5, 9))
    step(one, 0.0)
    assert one.submit(asking(1, 6, 1))
    step(one, 1.0)
    assert one.submit(asking(2, 5, 1))  # not the head of the queue, and yet it enters
    assert step(one, 2.0)[0] == [2]


def test_a_preempted_request_gives_its_slot_up() -> None:
    one = AdapterPrefill(LIMITS, PagedAllocator(2, 16), AdapterSlots(2, 0.5))
    one.submit(asking(0, 5, 9))
    one.submit(asking(1, 6, 9))
    assert step(one, 0.0)[1] == 2
    while not one.preempted:
        adapters = step(one, 1.0)[1]
    assert adapters == 1
    assert [request.id for request in one.waiting] == [1]


def test_planned_ahead_an_ended_request_keeps_its_slot_for_a_plan() -> None:
    one = scheduler(1, AsyncAdapterPrefill)
    one.submit(asking(0, 5, 2))
    one.submit(asking(1, 6, 1))
    assert step(one, 0.0)[0] == [0]
    assert step(one, 1.5)[0] == []
    assert step(one, 2.5)[0] == [1]


FIVE = [(7, 2), (8, 4), (9, 1), (7, 1), (8, 9)]
"""Adapters and output tokens of five requests, for two slots."""


def test_under_sglang_an_iteration_needs_the_adapters_that_are_in_it() -> None:
    one = scheduler(2, AdapterSglang)
    for number, (adapter, output) in enumerate(FIVE):
        one.submit(asking(number, adapter, output))
    assert step(one, 0.0) == ([0, 1, 3, 4], 2, 2, 1.0)  # 2 has a third adapter
    assert [request.id for request in one.waiting] == [2]
    assert step(one, 2.0) == ([], 2, 0, 1.0)
    assert step(one, 3.0) == ([2], 1, 1, 3.5)  # decodes, which need 8, wait
    assert list(one.slots.loaded) == [8, 9]


def test_before_sglang_0_5_9_a_request_without_a_slot_blocks() -> None:
    one = scheduler(2, AdapterSglang, blocks=True)
    for number, (adapter, output) in enumerate(FIVE):
        one.submit(asking(number, adapter, output))
    assert step(one, 0.0)[0] == [0, 1]
    assert step(one, 2.0)[0] == []  # 0 ends
    assert step(one, 3.0)[0] == [2]  # and 3 lacks a slot
    assert [request.id for request in one.waiting] == [3, 4]


def test_under_sglang_with_overlap_an_ended_request_keeps_its_slot_for_a_plan() -> None:
    one = scheduler(1, AdapterSglangOverlap)
    one.submit(asking(0, 5, 2))
    one.submit(asking(1, 6, 1))
    assert step(one, 0.0)[0] == [0]
    assert step(one, 1.5)[0] == []
    assert step(one, 2.5)[0] == [1]


def test_the_release_of_sglang_says_who_blocks() -> None:
    old, new = (catalog.engine(f"sglang@{release}") for release in ("0.5.6", "0.5.9"))
    assert (old.adapters_block, new.adapters_block) == (True, False)
