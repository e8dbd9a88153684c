"""Kinds of layers of single families: no attention, short convolutions, Kimi's delta rule, values
narrower than keys, and experts behind a latent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.iteration import Batch, Part
from sim.specs.dense_mlp import DenseMlp
from sim.specs.drafter import drafter_of
from sim.specs.experts import MixtureOfExperts
from sim.specs.gated_delta import GatedDelta
from sim.specs.gpu import GpuSpec
from sim.specs.grouped_query import GroupedQuery
from sim.specs.kimi_delta import KimiDelta
from sim.specs.layers import Attention, LayerGroup, Mlp
from sim.specs.layout import Layout
from sim.specs.model import ModelSpec
from sim.specs.no_attention import NoAttention
from sim.specs.short_convolution import ShortConvolution
from sim.specs.sparse_grouped import SparseGrouped
from tests.gpus import data_sheet

H200, IDEAL = data_sheet("h200-sxm"), catalog.engine("ideal")
MEASURED = catalog.gpu("h200-sxm")
GQA = GroupedQuery(32, 8, 128, False, False)
MLP = DenseMlp(14336)
CHOSEN = SparseGrouped(32, 8, 128, False, False, index_n_heads=8, index_topk=2048)
BATCHES = (
    Batch(1, 0),
    Batch(64, 64 * 5000),
    Batch(0, 0, [Part(700, 0)], 1),
    Batch(33, 33 * 1500, [Part(512, 4096), Part(90, 0)], 1),
)


def model(*groups: LayerGroup) -> ModelSpec:
    return ModelSpec("made-up", 4096, groups, 128256, 131072, False, "made up")


def layer(attention: Attention, mlp: Mlp = MLP, count: int = 8) -> LayerGroup:
    return LayerGroup(count, attention, mlp)


def cost(spec: ModelSpec, gpus: int = 1, **more: object) -> CostModel:
    return CostModel(Deployment(spec, H200, IDEAL, layout=Layout(gpus), **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    "attention",
    [
        ShortConvolution(4096),
        KimiDelta(32, 32, 128, 128),
        KimiDelta(32, 32, 128, 128, full_gate=True),
        replace(GQA, head_dim=192, v_head_dim=128),
        NoAttention(),
        CHOSEN,
    ],
    ids=["convolution", "delta", "full gate", "narrow values", "none", "chosen"],
)
@pytest.mark.parametrize("gpus", [1, 2])
def test_operators_add_up(attention: Attention, batch: Batch, gpus: int) -> None:
    found = cost(model(layer(GQA), layer(attention)), gpus)
    total = sum(float(each.seconds) for each in found.pass_operators(batch))
    assert found.seconds(batch) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("batch", BATCHES)
def test_no_attention_takes_no_time(batch: Batch) -> None:
    """What is left of a layer is its MLP and a norm."""
    with_none = model(layer(GQA), replace(layer(NoAttention()), parallel_mlp=True))
    whole = cost(model(layer(GQA)))
    found = cost(with_none)
    names = {each.name: float(each.seconds) for each in found.pass_operators(batch)}
    for each in whole.pass_operators(batch):
        same = each.name not in ("gate and up projection", "activation", "down projection", "norms")
        factor = 1 if same else 1.5 if each.name == "norms" else 2
        if each.name == "norms":
            continue
        assert names[each.name] == pytest.approx(factor * float(each.seconds)), each.name


def test_weights_of_a_delta_rule_with_a_decay_for_each_element() -> None:
    """Of 4,096 numbers: queries, keys and values, and the results; two times 128 and 32 gates;
    back to 4,096 decays and gates; the convolutions of four tokens; 32 + 4,096 of decays, and a
    norm of 128."""
    kind = KimiDelta(32, 32, 128, 128)
    wide = 4096 * 4 * 4096
    gates = 4096 * (2 * 128 + 32) + 128 * 2 * 4096
    small = 3 * 4096 * 4 + 32 + 4096 + 128
    assert sum(each.parameters for each in kind.weights(4096)) == wide + gates + small
    full = KimiDelta(32, 32, 128, 128, full_gate=True)
    more = 4096 * 4096 - 4096 * 128 - 128 * 4096
    assert sum(each.parameters for each in full.weights(4096)) == wide + gates + small + more
    assert kind.state_bytes() == GatedDelta(32, 32, 128, 128).state_bytes() == 32 * 128 * 128 * 4


def test_a_short_convolution_keeps_its_inputs_alone() -> None:
    kind = ShortConvolution(2048, 3)
    assert kind.kept("bf16").state == 2 * 2048 * 2
    assert kind.kept("bf16", Layout(2)).state == 2048 * 2
    assert sum(each.parameters for each in kind.weights(2048)) == 4 * 2048**2 + 3 * 2048
    assert kind.state_arithmetic(10, Layout(2)) == "10 layers x 1,024 x 2 x 2 B"
    assert kind.not_shared(Layout(3)) is not None


def test_values_may_be_narrower_than_keys() -> None:
    kind = GroupedQuery(64, 4, 192, False, False, v_head_dim=128)
    assert kind.kv_bytes_per_token("bf16") == 4 * (192 + 128) * 2
    assert kind.flops_per_pair() == 2 * 64 * (192 + 128)
    weights = 4096 * (64 * 192 + 4 * 192 + 4 * 128 + 64 * 128)
    assert sum(each.parameters for each in kind.weights(4096)) == weights
    assert "4 heads x (192 + 128) x 2 B" in kind.kv_arithmetic(9, "bf16", Layout(1))
    with pytest.raises(ValueError, match="v_head_dim: got 0"):
        replace(kind, v_head_dim=0)


def test_experts_behind_a_latent() -> None:
    """Experts are as wide as the latent; two products make and take it, whole on every GPU."""
    plain = MixtureOfExperts(512, 22, 2688, mlp_matrices=2)
    narrow = replace(plain, latent_size=1024)
    both = [{each.name: each.parameters for each in m.weights(4096)} for m in (plain, narrow)]
    assert both[1]["experts"] == both[0]["experts"] / 4
    assert both[1]["experts' latent"] == 2 * 4096 * 1024
    assert narrow.flops_per_token(4096) == 2 * (4096 * 512 + 2 * 4096 * 1024 + 22 * 2 * 1024 * 2688)
    on_two = {each.name: each.parameters for each in narrow.weights(4096, Layout(2))}
    assert on_two["experts' latent"] == 2 * 4096 * 1024
    with pytest.raises(ValueError, match="latent_size: got 0"):
        replace(plain, latent_size=0)


@pytest.mark.parametrize("gpu", [H200, MEASURED], ids=["data sheet", "profile"])
def test_a_pass_through_experts_behind_a_latent_is_shorter(gpu: object) -> None:
    def seconds(latent: int | None) -> float:
        mlp = MixtureOfExperts(512, 22, 2688, latent_size=latent)
        deployment = Deployment(model(layer(GQA, mlp)), gpu, IDEAL)  # type: ignore[arg-type]
        return CostModel(deployment).seconds(Batch(64, 64 * 1000))

    assert seconds(1024) < 0.5 * seconds(None)


def test_an_eagle_head_is_like_a_layer_with_attention_and_mlp() -> None:

    found = drafter_of(Deployment(model(layer(GQA), layer(NoAttention())), H200, IDEAL), "eagle")
    assert found is not None
    assert found.deployment.model.layers[0].attention == GQA


@pytest.mark.parametrize("gpu", [H200, MEASURED], ids=["data sheet", "profile"])
def test_chosen_tokens_end_what_a_longer_context_costs_but_for_their_rating(gpu: GpuSpec) -> None:
    """Below 2,048 tokens only the indexer is on top; behind them a token costs its 256 bytes."""
    plain = CostModel(Deployment(model(layer(GQA)), gpu, IDEAL))
    chosen = CostModel(Deployment(model(layer(CHOSEN)), gpu, IDEAL))
    _, _, slope = chosen.line(8, 8 * 100_000)
    rated = 256 / (gpu.bandwidth * gpu.attention.bandwidth)
    arithmetic = 2 * 8 * 128 / (gpu.flops("bf16") * gpu.efficiency.compute)
    assert slope == pytest.approx(8 * max(rated, arithmetic))
    for held in (500, 2047, 2048, 9000, 60_000):
        one, other = plain.seconds(Batch(8, 8 * held)), chosen.seconds(Batch(8, 8 * held))
        assert (other < one) == (held > 5000)


def test_work_of_chosen_tokens() -> None:
    """Eight layers; 9,000 tokens are rated and 2,048 read. A token keeps 2 x 8 x 128 x 2 bytes and
    the indexer's 256; queries and results are 2 x 4,096 x 2 bytes."""
    found = cost(model(layer(CHOSEN))).attention.decode(1, 8999)
    assert found.bytes == 8 * (2048 * 4096 + 9000 * 256 + 2 * 4096 * 2)
    assert found.flops == 8 * (2048 * 4 * 4096 + 9000 * 2 * 8 * 128)
    _, pairs = cost(model(layer(CHOSEN))).attention.prefill_seconds([Part(4096, 0)], 0)
    assert pairs == 2048 * 2049 / 2 + 2048 * 2048


def test_heads_of_an_indexer_are_shared_out_and_its_key_is_copied() -> None:
    whole = sum(each.parameters for each in CHOSEN.weights(4096))
    assert whole == 4096 * (2 * 4096 + 2 * 1024 + 9 * 128)
    on_two = sum(each.parameters for each in CHOSEN.weights(4096, Layout(2)))
    assert on_two == 4096 * (4096 + 1024 + 5 * 128)
    assert CHOSEN.kv_bytes_per_token("fp8", Layout(2)) == 1024 + 256
    assert "+ 256 B indexer" in CHOSEN.kv_arithmetic(57, "bf16", Layout(1))
    with pytest.raises(ValueError, match="sliding_window"):
        replace(CHOSEN, sliding_window=128)
