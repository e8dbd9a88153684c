"""A prefix cache of attention and of groups of layers with a state."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim import catalog
from sim.cost import Deployment
from sim.errors import UsageError
from sim.memory.state_caching import StateCachingAllocator
from sim.request import Request
from sim.schedulers import Limits
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.state_chunks import cut_for_states
from sim.setup import prepare
from tests.places import MODELS


def asking(number: int, prompt: int = 17, shared: int = 16) -> Request:
    return Request(number, 0.0, prompt, 9, prefix=((7, shared),))


def memory(blocks: int = 20, states: int = 2, **further: bool) -> StateCachingAllocator:
    return StateCachingAllocator(blocks, 4, states, **further)


def filled(blocks: int = 20) -> StateCachingAllocator:
    """A cache in which a request left 16 shared tokens, and the states behind them."""
    kv, first = memory(blocks), asking(0)
    assert kv.allocate(first, 16)
    assert kv.allocate(first, 1)
    kv.free(first)
    kv.begin_step()
    return kv


def test_a_chunk_takes_one_block_for_the_state_at_its_end() -> None:
    kv, first = memory(), asking(0)
    assert kv.allocate(first, 8)
    assert kv.free_blocks == 20 - 2 - 2
    assert kv.allocate(first, 8)  # whose kernels read the state before it
    assert kv.free_blocks == 20 - 4 - 4
    assert kv.allocate(first, 1)
    assert kv.free_blocks == 20 - 5 - 4
    kv.check_integrity({first: (17, False)})
    kv.free(first)
    assert kv.idle_tokens == (4 + 2) * 4


def test_what_an_iteration_in_flight_reads_stays_when_the_next_one_is_planned() -> None:
    kv, first = memory(ahead=True), asking(0)
    for _ in range(2):
        kv.begin_step()
        assert kv.allocate(first, 8)
    kv.begin_step()
    assert kv.allocate(first, 1)
    assert kv.free_blocks == 20 - 5 - 3 * 2


def test_a_prefix_is_found_where_it_has_a_state() -> None:
    kv = filled()
    assert kv.cached(asking(1)) == 16
    assert kv.cached(asking(2, prompt=15, shared=15)) == 0  # attention holds three blocks of it
    assert kv.reach(asking(3, prompt=15, shared=15)) == 12
    assert kv.reach(asking(4)) == 0


def test_the_last_end_of_a_block_before_the_last_token_has_a_state() -> None:
    kv, first = memory(), asking(0, prompt=16, shared=16)
    assert kv.allocate(first, 12)
    assert kv.allocate(first, 4)
    kv.begin_step()
    assert kv.cached(asking(1, prompt=30)) == 12


def test_a_state_inside_a_chunk_is_kept_by_kernels_that_can() -> None:
    kv, first = memory(checkpoints=True), asking(0)
    assert kv.allocate(first, 17)
    assert kv.free_blocks == 20 - 5 - 2 * 2
    kv.begin_step()
    assert kv.cached(asking(1)) == 16
    plain = memory()
    assert plain.allocate(first, 17)
    plain.begin_step()
    assert plain.cached(asking(1)) == 0


def test_a_state_is_not_found_in_the_step_that_computes_it() -> None:
    kv, first, second = memory(), asking(0), asking(1)
    assert kv.allocate(first, 16)
    assert not kv.fits(second, 1)
    assert not kv.allocate(second, 1)
    kv.begin_step()
    assert kv.allocate(second, 1)


def test_a_decoding_sequence_has_one_state_and_two_where_a_block_begins() -> None:
    kv, first = memory(), asking(0, prompt=19)
    assert kv.allocate(first, 16)
    assert kv.allocate(first, 3)
    kv.join(first)
    free = []
    for _ in range(5):
        assert kv.grow(1)
        free.append(kv.free_blocks)
    assert free == [20 - 5 - 2, 20 - 6 - 4, *[20 - 6 - 2] * 3]
    assert kv.growth(1) == 3 * 4
    assert kv.horizon(100) < 60
    kv.check_integrity({first: (24, True)})


@pytest.mark.parametrize(
    ("start", "tokens", "most", "checkpoints", "cut"),
    [
        (0, 11, 64, False, 8),  # ends with a block
        (0, 30, 64, False, 28),  # and at the last one before the last token
        (28, 2, 64, False, 2),
        (0, 30, 64, True, 30),  # unless its state is kept inside
        (28, 2, 64, True, 2),
        (8, 3, 64, False, 0),  # waits for tokens
        (8, 3, 3, False, 3),  # where no chunk is as long as a block, it goes on within
        (11, 3, 3, False, 1),
        (30, 1, 64, False, 1),
    ],
)
def test_chunks_end_where_states_are_kept(
    start: int, tokens: int, most: int, checkpoints: bool, cut: int
) -> None:
    kv = memory(checkpoints=checkpoints)
    assert cut_for_states(kv, asking(0, prompt=30), start, tokens, most) == cut


def test_a_prompt_stops_where_those_that_begin_alike_will_go_on() -> None:
    kv = filled()
    kv.begin_step()
    fork = Request(1, 0.0, 30, 9, prefix=((7, 14),))
    assert kv.reach(fork) == 12
    assert cut_for_states(kv, fork, 0, 30, 64) == 12
    assert kv.allocate(fork, 12)
    kv.begin_step()
    assert kv.cached(Request(2, 0.0, 30, 9, prefix=((7, 14),))) == 12


def test_a_sequence_that_nothing_is_left_for_goes_on_in_the_next_iteration() -> None:
    kv = StateCachingAllocator(99, 4, 1)
    scheduler = ChunkedPrefill(Limits(max_num_batched_tokens=8, max_model_len=99), kv)
    for request in (Request(0, 0.0, 1, 2), Request(1, 0.0, 30, 2), Request(2, 0.0, 3, 4)):
        scheduler.submit(request)
    log = []
    for step in range(6):
        plan = scheduler.schedule(float(step))
        assert plan is not None
        log.append((plan.decode, [(c.request.id, c.tokens) for c in plan.chunks], plan.held))
        scheduler.complete(plan, 1, step + 1.0)
        scheduler.check_integrity()
    assert log == [
        (0, [(0, 1), (1, 4), (2, 3)], 8),
        (2, [(1, 4)], 14),
        (0, [(1, 8)], 20),
        (0, [(1, 8)], 28),
        (0, [(1, 4), (2, 1)], 33),
        (1, [(1, 2)], 36),
    ]


SHARED: dict[str, Any] = {
    "model": str(MODELS / "tiny-linear"),
    "fleet": {"gpu": "h200-sxm"},
    "engine": "vllm@0.33",
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 600},
        "prompt_tokens": {"kind": "lognormal", "mean": 300, "p95": 900, "max": 2000},
        "output_tokens": {"kind": "fixed", "value": 90},
        "shared_prefix": {"tokens": 500, "groups": 3},
        "sessions": {
            "turns": {"kind": "fixed", "value": 2},
            "think_time": {"kind": "fixed", "value": "10ms"},
        },
    },
    "run": {"requests": 150},
}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kv_cache.num_gpu_blocks": 120},
        {"kv_cache.num_gpu_blocks": 120, "scheduler.async_scheduling": False},
        {"kv_cache.num_gpu_blocks": 120, "scheduler.scheduler_reserve_full_isl": False},
        {"scheduler.max_num_batched_tokens": 300, "scheduler.max_num_seqs": 40},
        {"engine": "vllm@0.27", "fleet.gpu": "a100-sxm-80gb"},
    ],
)
def test_hits_are_whole_blocks_with_leaps_as_without(given: dict[str, Any]) -> None:
    scenario = sim.load_scenario(SHARED, [f"{key}={value}" for key, value in given.items()])
    leapt, stepped = sim.simulate(scenario), sim.simulate(scenario, leap=False)
    assert (leapt.record.requests == stepped.record.requests).all()
    entry = leapt.summary["infersim"]["prefix_cache"]
    assert entry == stepped.summary["infersim"]["prefix_cache"]
    size = prepare(scenario).only.capacity.block_size
    assert entry["hits"] % size == 0 < entry["hits"]


def test_memory_that_is_short_preempts() -> None:
    scenario = sim.load_scenario(SHARED, ["kv_cache.num_gpu_blocks=120"])
    assert sim.simulate(scenario).record.requests["preemptions"].sum() > 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("fleet.pipeline_parallel=2", "not modelled for models with windows or a state"),
        ("scheduler.order=priority", "for models with windows or a state it goes with"),
        ("engine=vllm@0.22", "not modelled for models with a state"),
    ],
)
def test_what_it_does_not_go_with(given: str, why: str) -> None:
    asked = {**SHARED, "kv_cache": {"enable_prefix_caching": True}}
    with pytest.raises(UsageError, match=why):
        prepare(sim.load_scenario(asked, [given]))
    assert not prepare(sim.load_scenario(SHARED, [given])).only.limits.enable_prefix_caching


@pytest.mark.parametrize(
    ("model", "gpu", "release", "inside"),
    [
        ("qwen3-next-80b-a3b", "h200-sxm", "0.33", True),
        ("qwen3-next-80b-a3b", "b200-sxm", "0.33", True),
        ("qwen3-next-80b-a3b", "a100-sxm-80gb", "0.33", False),
        ("qwen3-next-80b-a3b", "h200-sxm", "0.32", False),
        ("nemotron-3-nano-30b-a3b", "a100-sxm-80gb", "0.32", True),
        ("nemotron-3-nano-30b-a3b", "h200-sxm", "0.27", False),
        ("kimi-linear-48b-a3b", "h200-sxm", "0.33", False),
    ],
)
def test_whose_kernels_keep_a_state_inside_a_chunk(
    model: str, gpu: str, release: str, inside: bool
) -> None:
    engine = catalog.engine(f"vllm@{release}")
    assert (
        Deployment(catalog.model(model), catalog.gpu(gpu), engine).keeps_states_inside() is inside
    )
