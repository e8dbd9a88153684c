"""Requests wait for their blocks, go to the host and come back: by hand, and in any combination."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import sim
from sim.memory import PagedAllocator
from sim.memory.host import HostLink, HostMemory
from sim.memory.tiered import TieredAllocator
from sim.request import Prefix, Request
from sim.schedulers import Limits, OffloadedPrefill, Offloading
from sim.setup import prepare
from tests.feature_pairs import BASE, check_tokens, played
from tests.golden_scenarios import changed

LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=1000, max_model_len=1000)


def made(number: int, prompt: int, output: int = 1, prefix: Prefix = ()) -> Request:
    return Request(number, 0.0, prompt, output, prefix=prefix)


def offloading(overlap: bool = True, swap: bool | None = False) -> Offloading:
    """A host of 100 blocks, each a second away; a token computed again takes a tenth of one."""
    return Offloading(
        HostMemory(100), HostLink(1.0, 0.0), overlap, swap, lambda tokens, _: tokens / 10
    )


def cached(overlap: bool) -> OffloadedPrefill:
    host = offloading(overlap)
    return OffloadedPrefill(LIMITS, TieredAllocator(8, 16, host.memory, host.link), host)


def step(scheduler: OffloadedPrefill, now: float) -> list[tuple[int, int, int]]:
    """An iteration of a second: the chunks it has, as (request, tokens, context)."""
    plan = scheduler.schedule(now)
    assert plan is not None
    scheduler.complete(plan, 1, max(now, scheduler.starts) + 1)
    scheduler.check_integrity()
    return [(chunk.request.id, chunk.tokens, chunk.context) for chunk in plan.chunks]


def evicted(overlap: bool) -> OffloadedPrefill:
    """The text 1 is in the host from 5 s on, and no longer on the GPU, at 2 s."""
    scheduler = cached(overlap)
    scheduler.submit(made(0, 65, prefix=((1, 64),)))
    assert step(scheduler, 0.0) == [(0, 65, 0)]
    scheduler.submit(made(1, 128))
    assert step(scheduler, 1.0) == [(1, 128, 0)]
    return scheduler


def test_a_request_waits_until_its_blocks_are_written_and_then_loaded() -> None:
    scheduler = evicted(overlap=True)
    scheduler.submit(made(2, 65, prefix=((1, 64),)))
    assert scheduler.schedule(2.0) is None
    assert scheduler.wakeup(2.0) == 5.0  # the store of four blocks began when they were computed
    assert [request.id for request in scheduler.coming] == [2]
    assert scheduler.schedule(5.0) is None
    assert scheduler.wakeup(5.0) == 9.0
    assert scheduler.kv.reserved == 64
    scheduler.check_integrity()
    scheduler.submit(made(3, 20))
    assert step(scheduler, 6.0) == [(3, 20, 0)]  # others run meanwhile
    assert step(scheduler, 9.0) == [(2, 1, 64)]


def test_without_overlap_the_batch_waits() -> None:
    scheduler = evicted(overlap=False)
    scheduler.submit(made(2, 65, prefix=((1, 64),)))
    assert scheduler.schedule(2.0) is None
    scheduler.submit(made(3, 20))
    assert step(scheduler, 5.0) == [(2, 1, 64), (3, 20, 0)]
    assert scheduler.starts == 9.0


def test_what_another_one_loads_is_waited_for_and_shared() -> None:
    scheduler = evicted(overlap=True)
    for number in (2, 3):
        scheduler.submit(made(number, 65, prefix=((1, 64),)))
    assert scheduler.schedule(5.0) is None
    assert scheduler.kv.reserved == 64
    assert step(scheduler, 9.0) == [(2, 1, 64), (3, 1, 64)]


def two_too_many(swap: bool | None) -> tuple[OffloadedPrefill, list[Request]]:
    """Two sequences of 32 tokens that fill four blocks, and want more."""
    host = offloading(swap=swap)
    scheduler = OffloadedPrefill(LIMITS, PagedAllocator(4, 16), host)
    requests = [made(number, 31, output=4) for number in (0, 1)]
    for request in requests:
        scheduler.submit(request)
    step(scheduler, 0.0)
    step(scheduler, 1.0)
    return scheduler, requests


def test_a_preempted_request_goes_to_the_host_and_comes_back() -> None:
    scheduler, (_, second) = two_too_many(swap=True)
    plan = scheduler.schedule(2.0)
    assert plan is not None
    assert (plan.decode, plan.preempted, scheduler.starts) == (1, 1, 4.0)  # two blocks
    assert scheduler.host.memory.swapped == 2
    scheduler.complete(plan, 1, 5.0)
    assert step(scheduler, 5.0) == []  # the first has its last token: three blocks are free
    assert scheduler.schedule(6.0) is None
    assert (scheduler.wakeup(6.0), second.computed) == (8.0, 32)
    assert step(scheduler, 8.0) == [(1, 1, 32)]
    assert scheduler.host.memory.swapped == 0


def test_auto_swaps_where_computing_again_takes_longer() -> None:
    scheduler, _ = two_too_many(swap=None)  # 3.2 s to compute, 4 s there and back
    scheduler.schedule(2.0)
    assert (scheduler.host.memory.swapped, scheduler.starts) == (0, 0.0)
    scheduler, _ = two_too_many(swap=None)
    scheduler.host.link.block_seconds = 0.5
    scheduler.schedule(2.0)
    assert (scheduler.host.memory.swapped, scheduler.starts) == (2, 3.0)


def test_a_full_host_leaves_recomputation() -> None:
    scheduler, _ = two_too_many(swap=True)
    assert scheduler.host.memory.reserve(99, 0.0)
    scheduler.schedule(2.0)
    assert (scheduler.host.memory.swapped, scheduler.starts) == (99, 0.0)
    assert scheduler.wakeup(2.0) == math.inf


TIERS = st.fixed_dictionaries(
    {
        "kv_cache.num_gpu_blocks": st.integers(17, 40),
        "kv_cache.host_memory": st.sampled_from(["1MiB", "4MiB", "20MiB", "1GiB"]),
        "kv_cache.host_bandwidth": st.sampled_from(["100MB/s", "1GB/s", "50GB/s"]),
        "kv_cache.host_overlap": st.booleans(),
        "scheduler.max_num_batched_tokens": st.sampled_from([16, 40, 96]),
        "scheduler.scheduler_reserve_full_isl": st.booleans(),
        "workload.shared_prefix": st.sampled_from(
            [{"tokens": 70, "groups": 3}, {"tokens": 30, "groups": 9}]
        ),
        "seed": st.integers(0, 99),
    }
)

LOST_ON_THE_GPU = {
    "kv_cache.num_gpu_blocks": 20,
    "kv_cache.host_memory": "4MiB",
    "kv_cache.host_bandwidth": "100MB/s",
    "kv_cache.host_overlap": False,
    "scheduler.max_num_batched_tokens": 40,
    "scheduler.scheduler_reserve_full_isl": False,
    "workload.shared_prefix": {"tokens": 70, "groups": 3},
    "seed": 0,
}
"""The head of the queue finds all of its blocks on the GPU and has no room for the rest. A decode
evicts one of them; from then on it waits for the host, and others pass it."""


@settings(suppress_health_check=list(HealthCheck))
@example(LOST_ON_THE_GPU, True, "recompute")
@given(TIERS, st.booleans(), st.sampled_from(["recompute", "swap", "auto"]))
def test_no_block_is_lost_and_leaps_change_nothing(
    changes: dict[str, Any], caching: bool, preemption: str
) -> None:
    """The harness counts the blocks of GPU and host after every iteration."""
    changes = {
        **changes,
        "kv_cache.preemption": preemption if caching else "swap",
        "kv_cache.enable_prefix_caching": caching,
        "run.requests": 30,
    }
    scenario = sim.load_scenario(changed(BASE, changes))
    setup = prepare(scenario)
    leaps, steps = (played(setup, leap) for leap in (True, False))
    check_tokens(leaps, steps, scenario)
    assert leaps.recorder.move_rows().tobytes() == steps.recorder.move_rows().tobytes()
    assert len(leaps.tokens) == 30
