"""Whole experts on each GPU, and data ranks that meet in them, against values worked out by hand.

Qwen3-30B-A3B: 48 layers, hidden size 2,048, 128 experts of width 768 of which 8 are chosen; an
expert's gate and up take 2,048 x 1,536 x 2 B = 6,291,456 B.
"""

from __future__ import annotations

import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.communication import all_gather_time
from sim.cost.operators import Operator
from sim.cost.parts.mixture_of_experts import INTO, OUT
from sim.iteration import Batch, Part, PassConditions
from sim.specs.layout import Layout
from sim.specs.routing import busiest
from tests.gpus import data_sheet

QWEN, GPU, IDEAL = catalog.model("qwen3-30b-a3b"), data_sheet("h100-sxm"), catalog.engine("ideal")
GATHER, SCATTER, BACK = (
    "experts: all-gather",
    "experts: reduce-scatter",
    "experts: tokens back",
)


def deploy(layout: Layout, precision: str = "bf16") -> Deployment:
    return Deployment(QWEN, GPU, IDEAL, precision, precision, layout=layout)


def per_token(layout: Layout, m: float) -> dict[str, Operator]:
    return {o.name: o for o in CostModel(deploy(layout)).by_size.per_token(m)}


def test_every_gpu_reads_its_own_touched_experts_whole() -> None:
    """Of 4,096 tokens all experts are chosen: each of 8 GPUs reads 16 whole ones, which is what it
    reads of 128 cut ones; its rows are those of the busiest GPU, a little more than an eighth."""
    cut, whole = per_token(Layout(8), 4096), per_token(Layout(8, expert=8), 4096)
    rows = float(busiest(128, 8, 8, 16, 4096).rows)
    assert 4096 < rows < 4096 * 1.03
    assert whole[INTO].bytes == pytest.approx(
        48 * (16 * 6_291_456 + rows * (2048 + 1536) * 2), rel=1e-12
    )
    assert cut[INTO].bytes == 48 * (128 * 6_291_456 / 8 + 4096 * 8 * (2048 + 1536 / 8) * 2)
    assert whole[OUT].flops == pytest.approx(48 * 2 * rows * 768 * 2048, rel=1e-12)
    assert cut[OUT].flops == 48 * 2 * 4096 * 8 * 768 / 8 * 2048


def test_few_tokens_read_more_where_experts_are_whole() -> None:
    """One token's 8 experts: cut, every GPU reads an eighth of each, one expert's worth; whole, the
    busiest GPU has more than one of them."""
    cut, whole = per_token(Layout(8), 1), per_token(Layout(8, expert=8), 1)
    touched = float(busiest(128, 8, 8, 16, 1).touched)
    assert 2 < touched < 3
    assert float(whole[INTO].bytes / cut[INTO].bytes) == pytest.approx(touched, rel=0.02)


def test_tensor_ranks_sum_their_experts_by_the_same_all_reduces() -> None:
    cut, whole = per_token(Layout(4), 64), per_token(Layout(4, expert=4), 64)
    assert whole["all-reduce"] == cut["all-reduce"]
    assert not {GATHER, SCATTER, BACK} & whole.keys()


def test_groups_of_gpus_share_whole_experts() -> None:
    """Two groups of 4 GPUs: 64 experts each, a quarter of the width of each on a GPU."""
    found = per_token(Layout(8, expert=2), 4096)
    rows = float(busiest(128, 8, 2, 64, 4096).rows)
    assert found[INTO].bytes == pytest.approx(
        48 * (64 * 6_291_456 / 4 + rows * (2048 + 1536 / 4) * 2), rel=1e-12
    )


def test_data_ranks_gather_their_tokens_and_scatter_the_sums() -> None:
    """8 ranks of 32 tokens: 256 tokens of 2,048 numbers of 16 bits, and on the way there their 128
    scores too; nothing is all-reduced, since no layer is shared by tensor ranks."""
    found = per_token(Layout(data=8, expert=8), 32)
    hidden = 256 * 2048 * 2
    assert found[GATHER].communication == pytest.approx(
        48 * all_gather_time(hidden + 256 * 128 * 2, 8, GPU.link), rel=1e-12
    )
    assert found[SCATTER].communication == pytest.approx(
        48 * all_gather_time(hidden, 8, GPU.link), rel=1e-12
    )
    assert "all-reduce" not in found
    assert found[INTO].bytes == per_token(Layout(8, expert=8), 256)[INTO].bytes


def test_tensor_and_data_ranks_together_spread_the_tokens_over_all() -> None:
    """2 x 4 GPUs: attention's sum and the embedding's are all-reduced over 2, the sums of experts
    come back to the tensor ranks by an all-gather of the rank's own 32 tokens."""
    found = per_token(Layout(tensor=2, data=4, expert=8), 32)
    attention = per_token(Layout(2), 32)["all-reduce"]
    assert float(found["all-reduce"].communication) == pytest.approx(
        float(attention.communication) * 49 / 97
    )
    assert found[BACK].communication == pytest.approx(
        48 * all_gather_time(32 * 2048 * 2, 2, GPU.link), rel=1e-12
    )
    assert found[GATHER].communication == pytest.approx(
        48 * all_gather_time(128 * (2048 + 128) * 2, 8, GPU.link), rel=1e-12
    )


def test_shared_experts_are_whole_where_tensor_ranks_share_the_tokens() -> None:
    """DeepSeek-V3: 58 layers whose shared expert has 3 x 7,168 x 2,048 weights. On 2 x 4 GPUs each
    has all of it for half of its rank's 64 tokens, else half of it for all 64: the same work, but
    twice the weights; so with the router, which is whole either way."""
    model = catalog.model("deepseek-v3")
    split, plain = (
        Deployment(model, GPU, IDEAL, layout=layout)
        for layout in (Layout(tensor=2, data=4, expert=8), Layout(tensor=2, data=4))
    )
    assert split.weight_bytes() - plain.weight_bytes() == 2 * 58 * 3 * 7168 * 2048 / 2
    mine, theirs = (
        {o.name: o for o in CostModel(d).by_size.of_one_rank(64.0)} for d in (split, plain)
    )
    name = "shared experts: gate and up projection"
    assert mine[name].flops == theirs[name].flops
    assert mine[name].bytes - theirs[name].bytes == 58 * (
        7168 * 2048 * 2 - 32 * 7168 * 2  # half of the matrix more, of the inputs less
    )
    assert mine["router"].flops == theirs["router"].flops / 2


def test_data_ranks_may_cut_experts_over_all_gpus() -> None:
    """vLLM without expert parallelism: every expert over 4 x 2 GPUs, tokens gathered over data
    ranks, the tensor ranks' sums all-reduced as ever."""
    found, plain = per_token(Layout(tensor=2, data=4), 32), per_token(Layout(2), 32)
    assert found["all-reduce"] == plain["all-reduce"]
    assert BACK not in found
    assert found[GATHER].bytes == 48 * 128 * (2048 + 128) * 2
    assert found[OUT].flops == 48 * 2 * 128 * 8 * 768 / 8 * 2048


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize(
    "layout", [Layout(4, expert=4), Layout(data=4, expert=4), Layout(tensor=2, data=2)]
)
def test_a_pass_is_the_sum_of_its_operators(layout: Layout, precision: str) -> None:
    cost = CostModel(deploy(layout, precision))
    for batch in (Batch(1, 500), Batch(60, 60_000), Batch(9, 900, [Part(800, 100)], 1)):
        parts = sum(float(operator.seconds) for operator in cost.pass_operators(batch))
        assert cost.seconds(batch) == pytest.approx(parts, rel=1e-9)


def test_what_other_ranks_compute_delays_this_one() -> None:
    """Alone, with ranks that have as much, and with one that prefills."""
    cost, batch = CostModel(deploy(Layout(data=4, expert=4))), Batch(16, 16_000)
    alone, alike, busy = (cost.under(PassConditions(n)).seconds(batch) for n in (0, 3 * 16, 4096))
    assert alike == cost.seconds(batch)
    assert alone < alike < busy
    assert cost.under(PassConditions(48)) is cost.under(PassConditions(48))
    prefill = Batch(0, 0, [Part(3000, 0)], 1)  # larger tables than any before
    assert cost.under(PassConditions(9000)).seconds(prefill) == cost.seconds(prefill)
    assert cost.under(PassConditions(0)).seconds(prefill) < cost.seconds(prefill)


def test_memory_of_data_ranks() -> None:
    """Experts are spread over all GPUs, the rest is on each rank; a rank keeps all KV heads."""
    ranks, tensor = deploy(Layout(data=8, expert=8)), deploy(Layout(8, expert=8))
    experts = 48 * 128 / 8 * 3 * 2048 * 768
    others = QWEN.parameters - 8 * experts
    assert ranks.weight_bytes() == 2 * (experts + others)
    assert ranks.kv_bytes_per_token() == QWEN.kv_bytes_per_token("bf16")
    assert tensor.kv_bytes_per_token() == QWEN.kv_bytes_per_token("bf16") / 4  # 4 heads, copied


def test_a_dense_model_has_no_experts_to_spread() -> None:
    with pytest.raises(ValueError, match=r"llama-3.1-8b has no experts to spread over 2 GPUs"):
        Deployment(catalog.model("llama-3.1-8b"), GPU, IDEAL, layout=Layout(2, expert=2))
