"""Memory of models with a state for each sequence, as vLLM lays it out, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import sim
from sim import catalog
from sim.cost import Deployment
from sim.memory.capacity import Capacity, capacity
from sim.memory.groups import KvGroup, kv_groups
from sim.memory.stateful import StatefulAllocator
from sim.request import Request
from sim.specs.layout import ONE_GPU, Layout
from tests.places import MODELS

NEXT = catalog.model("qwen3-next-80b-a3b")
H200 = catalog.gpu("h200-sxm")
VLLM = catalog.engine("vllm")


def deployed(name: str, **changes: object) -> Deployment:
    whole = Deployment(catalog.model(name), H200, VLLM, weights="fp8")
    return replace(whole, **changes)  # type: ignore[arg-type]


def sized(d: Deployment, **changes: object) -> Capacity:
    given: dict[str, object] = {
        "block_size": 16,
        "gpu_memory_utilization": 0.9,
        "num_gpu_blocks": None,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
    }
    return capacity(d, **(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "layout", "cache", "block", "layers", "states"),
    [
        ("qwen3-next-80b-a3b", ONE_GPU, "bf16", 544, 12, 3),
        ("qwen3-next-80b-a3b", Layout(tensor=2), "bf16", 544, 12, 3),
        ("qwen3-next-80b-a3b", Layout(tensor=4), "bf16", 272, 12, 3),
        ("qwen3-next-80b-a3b", ONE_GPU, "fp8", 1072, 12, 3),
        ("qwen3.5-35b-a3b", ONE_GPU, "bf16", 1056, 10, 3),
        ("nemotron-3-nano-30b-a3b", ONE_GPU, "bf16", 2096, 6, 4),
        ("nemotron-h-56b", Layout(tensor=8), "bf16", 2080, 10, 6),
        ("granite-4.0-h-small", Layout(tensor=2), "bf16", 528, 4, 9),
        ("falcon-h1-34b", Layout(tensor=2), "bf16", 1040, 72, 1),
    ],
)
def test_a_block_of_attention_is_as_large_as_a_state(
    name: str, layout: Layout, cache: str, block: int, layers: int, states: int
) -> None:
    """1,097,728 bytes of a state in 16 bits are 536 tokens of 2,048, and 544 is the next multiple
    of 16; two GPUs halve both. 23 layers of Mamba-2 are four groups of six."""
    d = deployed(name, layout=layout, kv_cache=cache)
    found = kv_groups(d, 16)
    assert found.groups == (KvGroup(1, None, block),)
    assert found.states == states
    assert found.token == d.kv_bytes_per_token()
    per_layer = found.token / layers
    state = max(g.attention.kept(cache, layout).state for g in d.model.layers)
    assert block * per_layer >= state > (block - 16) * per_layer


def test_larger_blocks_are_the_steps() -> None:
    assert kv_groups(deployed("qwen3-next-80b-a3b"), 1024).groups[0].block == 1024
    assert kv_groups(deployed("qwen3-next-80b-a3b"), 128).groups[0].block == 5 * 128


@pytest.mark.parametrize(("gpus", "block"), [(1, 1920), (2, 1024), (4, 512), (8, 256)])
def test_blocks_of_latent_attention_are_multiples_of_128_tokens(gpus: int, block: int) -> None:
    """A state of Kimi Linear has 32 heads of 128 x 128 in 32 bits and three columns of
    3 x 4,096 in 16 bits, 2,170,880 bytes; a token of latent attention has 2 x 576 on each GPU."""
    assert 2_170_880 / gpus / 1152 > block - 128
    found = kv_groups(deployed("kimi-linear-48b-a3b", layout=Layout(tensor=gpus)), 16)
    assert found.groups == (KvGroup(1, None, block),)


@pytest.mark.parametrize(
    ("name", "gpu", "release", "block", "blocks"),
    [
        ("qwen3-next-80b-a3b", "h200-sxm", "0.33", 576, 9),  # 536 tokens in steps of 64
        ("qwen3-next-80b-a3b", "h200-sxm", "0.32", 544, 6),
        ("qwen3-next-80b-a3b", "a100-sxm-80gb", "0.33", 544, 6),
        ("nemotron-3-nano-30b-a3b", "h200-sxm", "0.33", 2096, 12),
    ],
)
def test_a_state_inside_a_chunk_takes_a_block_more(
    name: str, gpu: str, release: str, block: int, blocks: int
) -> None:
    engine = catalog.engine(f"vllm@{release}")
    d = deployed(name, gpu=catalog.gpu(gpu), engine=engine)
    cached = sized(d, states_each=engine.states_each(cached=True))
    assert (cached.block_size, cached.state_blocks) == (block, blocks)
    assert sized(d).state_blocks < blocks


def test_how_many_requests_fit() -> None:
    memory = sized(deployed("qwen3-next-80b-a3b"), num_gpu_blocks=1000)
    assert memory.block_size == 544
    assert memory.blocks_of(8192) == 16 + 3
    assert memory.max_concurrency(8192) == 1000 / 19
    assert memory.longest == (1000 - 1 - 3) * 544
    assert memory.printed_tokens(8192) == int(1000 / 19 * 8192)
    assert memory.states == 0
    free = sized(deployed("qwen3-next-80b-a3b"))
    assert free.num_gpu_blocks == free.kv_cache // (544 * 24_576)


def test_states_elsewhere_are_set_aside() -> None:
    """An engine that reserves the longest request in one piece keeps states apart."""
    d = deployed("qwen3-next-80b-a3b")
    apart, paged = sized(d, windows=False), sized(d)
    assert apart.block_size == 16
    assert apart.states == 256 * d.state_bytes()
    assert apart.kv_cache == paged.kv_cache - apart.states
    assert apart.blocks_of(8192) == 512


def request(number: int) -> Request:
    return Request(number, arrival=0.0, prompt_tokens=40, output_tokens=9)


def test_the_states_come_with_the_first_tokens_and_go_with_the_last() -> None:
    kv, one, two = StatefulAllocator(9, 16, 3), request(1), request(2)
    log = [kv.allocate(one, 10), kv.free_blocks, kv.allocate(one, 30), kv.free_blocks]
    assert log == [True, 5, True, 3]
    assert not kv.fits(two, 1)
    assert not kv.allocate(two, 1)
    kv.check_integrity({one: (40, False)})
    kv.give_back(one, 30)
    assert kv.free_blocks == 5
    assert kv.fits(two, 32)
    assert not kv.fits(two, 33)
    assert kv.allocate(two, 16)
    kv.check_integrity({one: (10, False), two: (16, False)})
    kv.free(one)
    assert kv.free_blocks == 5
    kv.join(two)
    assert kv.grow(80)
    assert not kv.grow(1)
    kv.check_integrity({two: (96, True)})
    kv.leave(two)
    kv.free(two)
    assert kv.reserved == 0


def test_states_count_as_filled() -> None:
    """Of 20 blocks of 64 tokens and three of states, one request fills 3 x 64 and its tokens."""
    scenario = {
        "model": str(MODELS / "tiny-linear"),
        "fleet": {"gpu": "a10g"},
        "engine": "ideal",
        "max_model_len": 256,
        "kv_cache": {"num_gpu_blocks": 20, "block_size": 64},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 60},
            "output_tokens": {"kind": "fixed", "value": 5},
        },
        "run": {"requests": 1},
    }
    plans = sim.simulate(sim.load_scenario(scenario)).record.plans
    assert plans["held"].tolist() == [3 * 64 + 60, 3 * 64 + 61]
    assert plans["reserved"].tolist() == [4 * 64, 4 * 64]


def test_what_can_ever_fit() -> None:
    kv = StatefulAllocator(9, 16, 3)
    assert kv.can_ever_fit(6 * 16)
    assert not kv.can_ever_fit(6 * 16 + 1)
    assert kv.room(16) == 2
    assert kv.room(33) == 1
