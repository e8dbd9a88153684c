"""The memory of the stages of a pipeline, and the lanes of sequences that grow apart."""

from __future__ import annotations

import pytest

from sim import catalog
from sim.cost import Deployment
from sim.memory import PagedAllocator
from sim.memory.capacity import Capacity, capacity
from sim.memory.request_slots import Lanes
from sim.request import Request
from sim.specs.layout import Layout


def memory_of(name: str, layout: Layout, gpu: str = "h200-sxm", **more: str) -> Capacity:
    deployment = Deployment(
        catalog.model(name), catalog.gpu(gpu), catalog.engine("vllm"), layout=layout, **more
    )
    return capacity(
        deployment,
        block_size=16,
        gpu_memory_utilization=0.9,
        num_gpu_blocks=None,
        max_num_batched_tokens=8192,
        max_num_seqs=256,
    )


def test_the_stage_with_the_fewest_blocks_decides() -> None:
    """Llama-3.1-70B: 20 layers a stage keep 20 x 2 x 8 x 128 x 2 = 81,920 bytes of a token on each,
    a block 1,310,720. The last stage has the head and the logits too."""
    found = memory_of("llama-3.1-70b", Layout(pipeline=4))
    assert [stage.kv_bytes_per_token for stage in found.stages] == [81_920] * 4
    blocks = [int(stage.kv_cache // 1_310_720) for stage in found.stages]
    assert [stage.num_gpu_blocks for stage in found.stages] == blocks
    assert found.num_gpu_blocks == min(blocks) == blocks[3] < blocks[0] < blocks[1]


def test_the_stage_with_a_layer_more_may_decide() -> None:
    """61 layers of DeepSeek-V3 on four stages: the third has 16, and no dense ones."""
    found = memory_of("deepseek-v3", Layout(tensor=2, pipeline=4), weights="fp8")
    blocks = [stage.num_gpu_blocks for stage in found.stages]
    assert found.num_gpu_blocks == min(blocks) == blocks[2]


def test_a_stage_has_as_many_groups_as_the_model() -> None:
    """gpt-oss-20b: 12 layers with a window and 12 without are two groups; of three stages each has
    4 of either, so that a token of a group takes 4 x 2 x 8 x 64 x 2 = 8,192 bytes."""
    found = memory_of("gpt-oss-20b", Layout(pipeline=3))
    assert [stage.kv_bytes_per_token for stage in found.stages] == [8192] * 3
    assert [group.number for group in found.groups] == [1, 1]


def test_layers_with_a_state_are_groups_of_the_model_on_every_stage() -> None:
    whole = memory_of("qwen3-next-80b-a3b", Layout(tensor=4))
    piped = memory_of("qwen3-next-80b-a3b", Layout(tensor=4, pipeline=2))
    assert piped.state_blocks == whole.state_blocks > 0
    assert piped.block_size == whole.block_size
    assert piped.kv_bytes_per_token == whole.kv_bytes_per_token / 2


def test_two_batches_of_tokens_are_in_flight() -> None:
    assert memory_of("llama-3.1-70b", Layout(pipeline=2)).in_flight == 2 * 8192


@pytest.mark.parametrize("first", [0, 1])
def test_lanes_grow_apart_and_share_the_blocks(first: int) -> None:
    """Two sequences that fill a block each, in two lanes of a cache of three blocks."""
    kv = PagedAllocator(num_blocks=3, block_size=4)
    lanes, requests = Lanes(kv, 2), [Request(at, 0.0, 4, 9) for at in range(2)]
    for lane, request in enumerate(requests):
        lanes.select(lane)
        assert kv.allocate(request, 4)
        kv.join(request)
    lanes.select(first)
    assert kv.grow(1)
    assert kv.free_blocks == 0
    lanes.select(1 - first)
    assert not kv.grow(1)  # its own sequence needs a block, too
    lanes.select(first)
    assert kv.grow(3)  # the block has room
    assert not kv.grow(1)
    kv.leave(requests[first])
    kv.free(requests[first])
    lanes.select(1 - first)
    assert kv.grow(1)
