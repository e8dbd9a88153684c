"""LoRA adapters against values worked out by hand: their bytes, and the kernels of a pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim import catalog
from sim.cost import CostModel
from sim.iteration import Batch, Part, PassConditions
from sim.memory.capacity import capacity
from sim.specs.deployment import Deployment
from sim.specs.layout import Layout
from sim.specs.lora import Lora

LLAMA = Deployment(catalog.model("llama-3.1-8b"), catalog.gpu("a100-pcie"), catalog.engine("vllm"))
DATA_SHEET = replace(LLAMA, gpu=replace(LLAMA.gpu, profile=None))
FOUR = Lora(adapters=20, rank=16, max_loras=4)


def served(d: Deployment = DATA_SHEET, lora: Lora = FOUR, **changes: Any) -> Deployment:
    return replace(d, lora=lora, **changes)


def test_bytes_of_an_adapter() -> None:
    qkv, out = 3 * 4096 + (4096 + 2 * 1024), 4096 + 4096
    mlp = 2 * 4096 + 2 * 14336 + 14336 + 4096
    assert served().adapter_bytes == 32 * 16 * (qkv + out + mlp) * 2 == 83_886_080
    attention = replace(FOUR, targets="attention")
    assert served(lora=attention).adapter_bytes == 32 * 16 * (qkv + out) * 2


def test_tensor_ranks_share_half_of_an_adapter() -> None:
    qkv, out = 3 * 4096 + (4096 + 2 * 1024) / 2, 4096 / 2 + 4096
    mlp = 2 * 4096 + 2 * 14336 / 2 + 14336 / 2 + 4096
    assert served(layout=Layout(tensor=2)).adapter_bytes == 32 * 16 * (qkv + out + mlp) * 2


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_slots_come_out_of_the_kv_cache(engine: str) -> None:
    asked: dict[str, Any] = {"block_size": 16, "gpu_memory_utilization": 0.9}
    asked |= {"num_gpu_blocks": None, "max_num_batched_tokens": 8192, "max_num_seqs": 256}
    plain = replace(DATA_SHEET, engine=catalog.engine(engine))
    without, with_slots = capacity(plain, **asked), capacity(served(plain), **asked)
    assert with_slots.adapters == 4 * 83_886_080
    share = with_slots.utilization if with_slots.of_free else 1.0
    assert without.kv_cache - with_slots.kv_cache == pytest.approx(share * with_slots.adapters)


def test_kernels_of_a_decode() -> None:
    cost, gpu = CostModel(served()), DATA_SHEET.gpu
    tokens, adapters, rank = 8, 3, 16
    flops = traffic = 0.0
    for slices, into, out in [(3, 4096, 6144), (1, 4096, 4096), (2, 4096, 28672), (1, 14336, 4096)]:
        flops += 2 * tokens * rank * (slices * into + out)
        traffic += adapters * rank * (slices * into + out) * 2  # A and B of three adapters
        traffic += tokens * into * 2 + 2 * tokens * out * 2  # inputs; outputs read and written
        traffic += 3 * tokens * slices * rank * 4  # the buffer: zeroed, written, read
    (found,) = cost.by_size.adapted(float(tokens), float(adapters))
    assert found.flops == 32 * flops
    assert found.bytes == pytest.approx(32 * traffic)
    memory = traffic / (gpu.bandwidth * gpu.efficiency.bandwidth)
    begun = 4 * 3 * gpu.efficiency.operator_latency  # four modules, three kernels each
    assert found.seconds == pytest.approx(32 * (memory + begun), rel=1e-3)


@pytest.mark.parametrize("d", [LLAMA, DATA_SHEET])
def test_a_pass_takes_its_adapters_and_more_take_longer(d: Deployment) -> None:
    plain, cost = CostModel(d), CostModel(served(d))
    batches = [Batch(8, 8000), Batch(8, 8000, (Part(500, 0), Part(60, 40)), 2)]
    for batch in batches:
        tokens = 8 + sum(part.tokens for part in batch.parts)
        took = [cost.under(PassConditions(adapters=n)).seconds(batch) for n in (1, 2, 4)]
        assert took[0] < took[1] < took[2] == cost.seconds(batch)  # as many as there can be
        for adapters, seconds in zip((1, 2, 4), took, strict=True):
            (kernels,) = cost.by_size.adapted(float(tokens), float(adapters))
            assert seconds - plain.seconds(batch) == pytest.approx(float(kernels.seconds))
    names = [[o.name for o in cost.pass_operators(batch)] for batch in batches]
    assert all(each.count("adapters") == 1 for each in names)


def test_operators_of_many_passes_add_up_to_single_ones() -> None:
    cost = CostModel(served())
    batches = [Batch(8, 8000), Batch(1, 90, (Part(500, 0),), 1)]
    (ran,) = (o for o in cost.operators(cost.columns(batches)) if o.operator.name == "adapters")
    each = [
        next(o.seconds for o in cost.pass_operators(batch) if o.name == "adapters")
        for batch in batches
    ]
    assert ran.each(ran.operator.seconds).tolist() == pytest.approx(each)


def test_without_adapters_nothing_is_added() -> None:
    assert CostModel(DATA_SHEET).by_size.adapted(8.0, 1.0) == []


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v2-lite"])
def test_other_layers_are_refused(model: str) -> None:
    with pytest.raises(ValueError, match="lora: adapters are modelled for grouped-query attention"):
        served(model=catalog.model(model))


def test_without_graphs_the_host_launches_three_kernels_a_module() -> None:
    engine = replace(catalog.engine("vllm"), cuda_graphs=False, launch=1e-3)  # nothing else counts
    plain, adapted = CostModel(replace(DATA_SHEET, engine=engine)), CostModel(served(engine=engine))
    for batch in (Batch(8, 8000), Batch(0, 0, (Part(9, 0),), 1)):
        longer = adapted.seconds(batch) - plain.seconds(batch)
        assert longer == pytest.approx(32 * 4 * 3 * 1e-3)
