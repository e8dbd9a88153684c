"""Groups of layers that share one pool of blocks: how many, how large, and what requests take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sim
from sim import catalog
from sim.cost import Deployment
from sim.memory.capacity import LONGEST, Capacity, capacity
from sim.memory.groups import KvGroup, kv_groups
from sim.memory.windowed import WindowedAllocator
from sim.pools import make_allocator
from sim.setup import prepare
from sim.specs.layout import Layout
from sim.specs.model import ModelSpec
from sim.specs.window import Window
from tests.dense_models import attention_of
from tests.feature_pairs import scenario_of

LLAMA = catalog.model("llama-3.1-8b")


def model(*kinds: tuple[int, dict[str, int]]) -> ModelSpec:
    """Llama-3.1-8B with groups of so many layers whose attention is changed so."""
    (group,), attention = LLAMA.layers, attention_of(LLAMA)
    layers = [
        replace(group, count=count, attention=replace(attention, **change))
        for count, change in kinds
    ]
    return replace(LLAMA, layers=tuple(layers))


def deployed(spec: ModelSpec, **changes: object) -> Deployment:
    return Deployment(spec, catalog.gpu("h100-sxm"), catalog.engine("ideal"), **changes)


def memory_of(spec: ModelSpec, *, tokens: int = 2048, windows: bool = True) -> Capacity:
    return capacity(
        deployed(spec), block_size=16, gpu_memory_utilization=0.9, num_gpu_blocks=None,
        max_num_batched_tokens=tokens, max_num_seqs=256, windows=windows,
    )  # fmt: skip


def test_layers_are_cut_into_groups_of_the_rarest_kind() -> None:
    """10 layers that see everything and 52 with a window: groups of 10, the last of 6 padded to
    ten. A token takes 2 x 8 heads x 128 x 2 B = 4,096 B in a layer."""
    found = kv_groups(deployed(model((10, {}), (52, {"sliding_window": 1024}))), 16)
    assert found.groups == (KvGroup(1, None, 16), KvGroup(6, Window(1024), 16))
    assert found.token == 10 * 4096


def test_layers_of_nearly_as_many_of_each_kind_are_one_group_each() -> None:
    """14 are less than one and a half times 10: groups of 14."""
    found = kv_groups(deployed(model((10, {}), (14, {"sliding_window": 64}))), 16)
    assert found.groups == (KvGroup(1, None, 16), KvGroup(1, Window(64), 16))
    assert found.token == 14 * 4096


def test_groups_that_keep_less_a_token_have_longer_blocks() -> None:
    """Half the KV heads: 32 tokens take the bytes of 16."""
    spec = model((8, {"sliding_window": 64}), (8, {"num_kv_heads": 4}))
    found = kv_groups(deployed(spec), 16)
    assert found.groups == (KvGroup(1, Window(64), 16), KvGroup(1, None, 32))
    assert found.token == 8 * 4096
    split = kv_groups(deployed(spec, layout=Layout(tensor=2)), 16)
    assert split == found._replace(token=8 * 2048)


def test_a_model_without_windows_or_of_one_kind_is_one_group() -> None:
    assert kv_groups(deployed(LLAMA), 16).groups == (KvGroup(1, None, 16),)
    local = model((32, {"sliding_window": 4096}))
    assert kv_groups(deployed(local), 16).groups == (KvGroup(1, Window(4096), 16),)
    assert kv_groups(deployed(local), 16).token == kv_groups(deployed(LLAMA), 16).token == 131_072
    assert kv_groups(deployed(local), 16, windows=False).groups == (KvGroup(1, None, 16),)


def test_what_a_request_takes_and_how_many_fit() -> None:
    """8,192 tokens, 2,048 in flight: 512 blocks of the layers that see everything, and of each of
    three groups ceil((1,023 + 2,048) / 16) + 1 = 193."""
    found = memory_of(model((8, {}), (24, {"sliding_window": 1024})))
    assert found.kv_bytes_per_token == 8 * 4096
    assert found.blocks_of(8192) == 512 + 3 * 193
    blocks = int(found.kv_cache // (8 * 4096 * 16))
    assert found.num_gpu_blocks == blocks
    assert found.max_concurrency(8192) == blocks / 1091
    assert found.printed_tokens(8192) == int(blocks / 1091 * 8192)
    whole = memory_of(model((8, {}), (24, {"sliding_window": 1024})), windows=False)
    assert whole.max_concurrency(8192) == pytest.approx(blocks / 4 / 512, rel=1e-3)
    assert found.max_concurrency(8192) > 1.8 * whole.max_concurrency(8192)


def test_the_longest_request() -> None:
    """With nothing but windows there is none: what it holds stays the same."""
    found = replace(memory_of(model((8, {}), (24, {"sliding_window": 1024}))), num_gpu_blocks=1091)
    assert found.holds(8192)
    assert not found.holds(8193)
    assert found.longest == 8192
    local = replace(memory_of(model((32, {"sliding_window": 1024}))), num_gpu_blocks=193)
    assert local.longest == LONGEST
    assert replace(local, num_gpu_blocks=192).longest == 192 * 16


def test_tokens_that_requests_take_on_average() -> None:
    found = memory_of(model((8, {}), (16, {"sliding_window": 1024}), (8, {"attention_chunk": 512})))
    lengths = np.array([100.0, 5000.0])
    assert found.group_tokens(lengths).tolist() == [400, 5000 + 2 * 1039 + 256 + 16]
    assert memory_of(LLAMA).group_tokens(lengths).tolist() == [100, 5000]


def test_contiguous_slabs_know_no_windows() -> None:
    pool = prepare(scenario_of(("windows", "contiguous"))).only
    assert not pool.capacity.windowed
    assert isinstance(make_allocator(prepare(scenario_of(("windows",))).only), WindowedAllocator)


@pytest.mark.parametrize("name", ["windows", "chunks"])
def test_used_memory_counts_what_is_not_behind_a_window(name: str) -> None:
    """Used never exceeds reserved, not in the middle of a leap either; with leaps as without."""
    changes = {"kv_cache.num_gpu_blocks": 70, "workload.arrivals": {"kind": "burst"}}
    scenario = scenario_of((name,)).override(changes)
    results = [sim.simulate(scenario, leap=leap) for leap in (True, False)]
    for result in results:
        rows = result.timeseries
        most = rows["kv_used_tokens"] + rows["kv_used_growth_tokens"] * (rows["iterations"] - 1)
        assert (rows["kv_used_tokens"] <= rows["kv_reserved_tokens"]).all()
        assert (most <= rows["kv_reserved_end_tokens"]).mean() > 0.95
    leaps, steps = (result.summary["infersim"]["kv_cache"] for result in results)
    for key in ("mean_used", "peak_used", "peak_reserved"):
        assert leaps[key] == pytest.approx(steps[key], rel=0.02), key
    assert 0.2 < leaps["mean_used"] < leaps["mean_reserved"] < 1


def test_memory_that_comes_free_lets_a_request_in_during_a_leap() -> None:
    """While sequences decode, their windows give back, until the head of the queue fits: in the
    same iteration with leaps as without, however many blocks there are."""
    workload = {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 90},
        "output_tokens": {"kind": "fixed", "value": 60},
    }
    for blocks in range(25, 60):
        scenario = scenario_of(("windows",)).override(
            {"kv_cache.num_gpu_blocks": blocks, "workload": workload, "run.requests": 6}
        )
        leaps, steps = (sim.simulate(scenario, leap=leap) for leap in (True, False))
        assert leaps.record.requests.tobytes() == steps.record.requests.tobytes(), blocks


def test_pages_of_deepseek_v4_share_blocks_as_vllm_packs_them() -> None:
    """Pro: of 30 layers with a choice, 31 that attend to all rows, and 61 windows groups of 31 lack
    the fewest. The largest is that of rows: 30 pages of 37,440 and of 8,640 B, 31 of 1,728."""
    found = kv_groups(deployed(catalog.model("deepseek-v4-pro"), kv_cache="fp8"), 16)
    assert found.groups == (
        KvGroup(1, None, 256),
        KvGroup(2, Window(128), 64),
        KvGroup(1, Window(128), 8),
        KvGroup(1, Window(8), 4),
    )
    assert found.block == 256
    assert found.token * 256 == 30 * (37_440 + 8_640) + 31 * 1_728


def test_fewer_windows_of_deepseek_v4_flash_are_padded() -> None:
    """21 and 20 layers with rows, 43 windows: groups of 22."""
    found = kv_groups(deployed(catalog.model("deepseek-v4-flash"), kv_cache="fp8"), 16)
    assert {group.window: group.number for group in found.groups[:2]} == {
        None: 1,
        Window(128): 2,
    }
    assert found.token * 256 == 21 * (37_440 + 8_640) + 20 * 1_728


def test_a_long_request_takes_blocks_of_rows_and_few_of_windows() -> None:
    """A million tokens: 4,096 blocks of rows. With 2,048 tokens in flight windows of 128 show
    2,175 at most, 34 blocks and one more; what waits takes blocks of 4 and 8 tokens."""
    spec = catalog.model("deepseek-v4-flash")
    memory = capacity(
        deployed(spec, kv_cache="fp8", experts="mxfp4", layout=Layout(tensor=8)),
        block_size=16, gpu_memory_utilization=0.9, num_gpu_blocks=None,
        max_num_batched_tokens=2048, max_num_seqs=64,
    )  # fmt: skip
    assert memory.block_size == 256
    assert memory.blocks_of(1 << 20) == 4096 + 2 * (34 + 1) + (272 + 1) + (514 + 1)
    assert memory.blocks_of(256) == 1 + 2 * 4 + 32 + 64 + 4
