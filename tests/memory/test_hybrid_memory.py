"""A prefix cache over groups of layers, of which some look through a window."""

from __future__ import annotations

import gc

import pytest

import sim
from sim.errors import UsageError
from sim.memory.groups import KvGroup
from sim.memory.hybrid import HybridCachingAllocator
from sim.memory.run_pool import Run, RunPool
from sim.request import Request
from sim.setup import prepare
from sim.specs.window import Window
from tests.places import MODELS

GROUPS = KvGroup(1, None, 4), KvGroup(1, Window(5), 4)


def asking(number: int, prompt: int = 17, shared: int = 16) -> Request:
    return Request(number, 0.0, prompt, 9, prefix=((7, shared),))


def filled(blocks: int, *, ends_only: bool = False) -> HybridCachingAllocator:
    """A cache in which a request left 16 shared tokens: four blocks in either group."""
    kv, first = HybridCachingAllocator(blocks, 4, GROUPS, ends_only=ends_only), asking(0)
    assert kv.allocate(first, 17)
    kv.free(first)
    return kv


def test_of_a_window_a_request_holds_what_its_next_token_sees() -> None:
    kv, second = filled(20), asking(1)
    assert kv.cached(second) == 16
    assert kv.allocate(second, 1)
    # four blocks and a new one where all is seen; the window shows the last block and the new one
    assert kv.free_blocks == 20 - 5 - 2
    kv.check_integrity({second: (17, False)})


def test_a_prefix_ends_where_a_group_lost_a_block() -> None:
    kv, other = filled(20), Request(1, 0.0, 40, 9)
    assert kv.allocate(other, 24)  # all twelve blocks in which nothing is known
    assert kv.cached(asking(2)) == 16
    assert kv.allocate(other, 4)  # two more: the first group was freed first, its tail in front
    assert kv.cached(asking(2)) == 8


def test_a_block_behind_a_window_is_free_and_still_cached() -> None:
    kv, first = HybridCachingAllocator(20, 4, GROUPS), asking(0)
    assert kv.allocate(first, 17)
    kv.join(first)
    assert kv.free_blocks == 10
    assert kv.grow(1)
    assert kv.free_blocks == 13  # three of the window's five blocks; none was opened
    assert kv.idle_tokens == 12
    assert kv.cached(asking(1)) == 16


def test_a_text_without_a_whole_block_does_not_hide_the_next_one() -> None:
    kv = filled(20)
    assert kv.cached(Request(1, 0.0, 17, 9, prefix=((8, 2), (7, 16)))) == 16
    assert kv.cached(Request(1, 0.0, 17, 9, prefix=((8, 4), (7, 16)))) == 0


def test_of_windows_the_ends_of_prompts_and_junctions_stay() -> None:
    kv = filled(20, ends_only=True)
    assert kv.idle_tokens == (4 + 1) * 4  # of the window the block before the last token
    assert kv.cached(asking(1)) == 16
    begins_alike = asking(2, shared=8)
    assert (kv.cached(begins_alike), filled(20).cached(begins_alike)) == (0, 8)
    assert kv.allocate(begins_alike, 17)  # what it found of attention alone, others now find
    assert kv.cached(asking(3, shared=8)) == 8


def test_who_is_asked_again_after_a_preemption_has_its_blocks_already() -> None:
    kv = HybridCachingAllocator(12, 4, (KvGroup(2, None, 4),))
    old, new = Request(0, 0.0, 8, 9), Request(1, 0.0, 12, 9)
    for request in (old, new):
        assert kv.allocate(request, request.prompt_tokens)
        kv.join(request)
    assert not kv.grow(1)  # ten of twelve blocks are held: the first gets two, the other none
    assert kv.free_blocks == 0
    kv.leave(new)
    kv.free(new)
    assert kv.grow(1)
    kv.check_integrity({old: (9, True)})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scheduler": {"order": "priority"}}, "order priority"),
        ({"scheduler": {"policy": "vllm-v0"}}, "policy vllm-v0"),
        ({"fleet": {"gpu": "a10g", "pipeline_parallel": 2}}, "pipeline"),
        ({"engine": "sglang"}, "SGLang"),
        ({"model": str(MODELS / "tiny-mamba"), "engine": "vllm@0.22"}, "mamba_cache_mode"),
    ],
)
def test_what_is_not_modelled_is_refused(changes: dict[str, object], reason: str) -> None:
    base: dict[str, object] = {
        "model": str(MODELS / "tiny-windows"),
        "fleet": {"gpu": "a10g"},
        "max_model_len": 256,
        "kv_cache": {"enable_prefix_caching": True},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 9},
            "output_tokens": {"kind": "fixed", "value": 9},
        },
    }
    with pytest.raises(UsageError, match=reason):
        prepare(sim.load_scenario(base | changes))


def test_forgotten_blocks_are_no_garbage_that_python_has_to_look_for() -> None:
    def runs() -> int:
        return sum(isinstance(each, Run) for each in gc.get_objects())

    pool = RunPool(6)
    pool.take(6)
    pool.release([(pool.enter(text, 0, 2), 0) for text in range(3)])
    gc.collect()
    gc.disable()
    try:
        known = runs()
        pool.take(6)
        assert known - runs() == 3
    finally:
        gc.enable()
