"""Operators of latent and sparse attention against values worked out by hand.

DeepSeek-V3 and V3.2 with one GPU's eighth of the 128 heads where there are eight GPUs.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import sim
from sim import catalog
from sim.cost import CostModel, Deployment, Operator
from sim.cost.latent_kernels import DEFAULTS
from sim.cost.parts import ATTENTION
from sim.cost.parts.latent import STEP, WORKSPACE, LatentPart
from sim.cost.rooflines import Rooflines
from sim.cost.trust import LATENT_ERROR
from sim.iteration import Batch, Part
from sim.specs.gpu import GpuSpec
from sim.specs.layers import LayerGroup
from sim.specs.layout import Layout
from sim.specs.model import ModelSpec
from sim.specs.profile import KernelFit, Profile, Score
from tests.gpus import data_sheet

V3, V32 = catalog.model("deepseek-v3"), catalog.model("deepseek-v3.2")
PLAIN = data_sheet("h200-sxm")
IDEAL = catalog.engine("ideal")
BANDWIDTH, PEAK, SMS = 4.8e12, 989.4e12, 132


def deployment(
    model: ModelSpec, gpus: int = 1, precision: str = "bf16", kv: str = "bf16", gpu: GpuSpec = PLAIN
) -> Deployment:
    return Deployment(model, gpu, IDEAL, precision, precision, kv, Layout(tensor=gpus))


def cost(
    model: ModelSpec, gpus: int = 1, precision: str = "bf16", kv: str = "bf16", gpu: GpuSpec = PLAIN
) -> CostModel:
    return CostModel(deployment(model, gpus, precision, kv, gpu))


def per_token(found: CostModel, m: float) -> dict[str, Operator]:
    return {o.name: o for o in found.by_size.per_token(m)}


def one_layer(model: ModelSpec) -> ModelSpec:
    """A model of one of its dense layers."""
    return replace(model, layers=(replace(model.layers[0], count=1),))


def test_projections_of_one_gpu_of_eight() -> None:
    """For 4 tokens: down 7,168 x 2,112 in full on each; up to queries 1,536 x 16 x 192, to keys and
    values 512 x 16 x 256, output 16 x 128 x 7,168 on each GPU."""
    found = per_token(cost(V3, 8), 4)
    for name, k, n in (
        ("latent projection", 7168, 2112),
        ("q up projection", 1536, 3072),
        ("kv up projection", 512, 4096),
        ("output projection", 2048, 7168),
    ):
        assert found[name].flops == 61 * 2 * 4 * k * n, name
        assert found[name].bytes == 61 * 2 * (k * n + 4 * (k + n)), name
    all_gpus = 8 * sum(float(found[f"{name} projection"].flops) for name in ("q up", "kv up"))
    all_gpus += 8 * float(found["output projection"].flops)
    all_gpus += float(found["latent projection"].flops)
    attention = 61 * V3.layers[0].attention.flops_per_token(7168)
    assert all_gpus == pytest.approx(4 * attention)


def test_the_projection_up_stays_at_16_bits() -> None:
    """As absorbed into queries and results; the others are multiplied in 8."""
    found = per_token(cost(V3, 8, "fp8"), 1)
    assert found["kv up projection"].bytes == 61 * 2 * (512 * 4096 + 512 + 4096)
    assert found["q up projection"].bytes == 61 * (1536 * 3072 + 1536 + 2 * 3072)


def test_queries_straight_from_the_hidden_state() -> None:
    """DeepSeek-V2-Lite: 2,048 x 16 x 192, and 2,048 x 576 down."""
    found = per_token(cost(catalog.model("deepseek-v2-lite")), 1)
    assert found["q projection"].flops == 27 * 2 * 2048 * 3072
    assert found["latent projection"].flops == 27 * 2 * 2048 * 576


def test_decoding_is_absorbed() -> None:
    """64 sequences of 16,384 tokens, the new ones included, on one of eight GPUs: 1,152 B a token
    and layer, whatever the heads; queries and results 64 x 16 x 1,088 x 2 B; 2 x 16 x 1,088 FLOP
    for each token."""
    operator = cost(V3, 8).attention.decode(64, 64 * 16383)
    tokens = 64 * 16384
    assert operator.bytes == 61 * (tokens * 1152 + 64 * 16 * 1088 * 2)
    assert operator.flops == 61 * tokens * 2 * 16 * 1088
    assert float(operator.measured) == 0
    assert float(operator.error) == pytest.approx(LATENT_ERROR)


def test_eight_gpus_are_no_eight_times_as_fast() -> None:
    """All 128 heads are bound by arithmetic, 16 of them by the cache, which every GPU reads: the
    ratio is 2.52 TB/s of 4.10 or 1.6 with TensorRT-LLM's kernels on an H200."""
    alone, shared = (
        cost(V3, gpus).attention.decode(64, 64 * 16383).seconds / 61 for gpus in (1, 8)
    )
    p = DEFAULTS["mla_decode"]
    arithmetic = 64 * 16384 * 128 * 2 * 1088 / (PEAK * p["compute"])
    reading = 64 * 16384 * 1152 / (BANDWIDTH * p["share"])
    assert arithmetic < alone < 1.5 * arithmetic
    assert reading < shared < 1.5 * reading
    assert 1.2 < alone / shared < 2


@pytest.mark.parametrize("model", [V3, V32], ids=["latent", "sparse"])
@pytest.mark.parametrize("sequences", [1, 60, 300])
def test_decoding_is_a_line_between_limits(model: ModelSpec, sequences: int) -> None:
    found = cost(model, 8, "fp8", "fp8")
    lines = found.attention.decode_lines(sequences)
    assert lines[-1][0] == math.inf
    for context in (sequences * 500, sequences * 2000, sequences * 9000):
        limit, intercept, slope = found.line(sequences, context)
        assert context < limit
        whole = sum(float(o.seconds) for o in found.pass_operators(Batch(sequences, context)))
        assert intercept + slope * context == pytest.approx(whole, rel=1e-9)


def test_behind_the_chosen_tokens_only_the_indexer_reads_more() -> None:
    """The slope of one sequence of 4,095 tokens: 132 B of each token and layer."""
    found = cost(V32, 8)
    slopes = [found.line(1, context)[2] for context in (1000, 3000, 100_000)]
    assert slopes[0] > 2 * slopes[1]
    rated = 61 * 132 / (BANDWIDTH * DEFAULTS["dsa_decode"]["share"])
    assert slopes[1] == pytest.approx(rated, rel=1e-6)
    assert slopes[2] == pytest.approx(rated, rel=1e-6)
    operator = found.attention.decode(1, 9999)
    assert operator.bytes == 61 * (2048 * 1152 + 10_000 * 132 + 16 * 1088 * 2)
    assert operator.flops == 61 * (2048 * 2 * 16 * 1088 + 10_000 * 2 * 64 * 128)


def test_prompts_are_projected_up() -> None:
    """1,000 tokens: 500,500 pairs, each 2 x 128 x (192 + 128) FLOP in each layer."""
    operator = cost(V3).attention.prefill([Part(1000, 0)], 0)
    assert operator.flops == pytest.approx(61 * 500_500 * 2 * 128 * 320)


def test_each_chunk_projects_its_prefix_up_again() -> None:
    """A chunk on top of 4,096 tokens takes as much longer than the same pairs alone as the product
    of 4,096 x 512 x 128 x 256 and the copies of 4,096 keys of 128 heads take."""
    d = deployment(one_layer(V3))
    kernels = Rooflines(d)
    attention = d.model.layers[0].attention
    part = ATTENTION[type(attention)](attention, 1, d, kernels)
    assert isinstance(part, LatentPart)
    prompts = part._prompts
    chunk = Part(1024, 4096)
    bare = prompts.seconds(*prompts.work(1024, 4096))
    product = kernels.projection("up", 1, 4096.0, 512, 128 * 256)
    copied = 4096 * 128 * (128 + 192) * 2 / (BANDWIDTH * PLAIN.efficiency.bandwidth)
    seconds, pairs = part.prefill_seconds([chunk], 0)
    assert seconds == pytest.approx(bare + float(product.seconds) + copied)
    assert pairs == chunk.pairs
    two, _ = part.prefill_seconds([Part(512, 2048), Part(512, 2048)], 0)
    whole = prompts.work(512, 2048)
    joined = prompts.seconds(2 * whole[0], whole[1], 2 * whole[2], 2 * whole[3])
    assert two == pytest.approx(joined + float(product.seconds) + copied)


def test_a_long_prefix_is_projected_up_in_pieces() -> None:
    d = deployment(one_layer(V3), 8)
    attention = d.model.layers[0].attention
    part = LatentPart(attention, 1, d, Rooflines(d))  # type: ignore[arg-type]
    piece = part._projected_up(WORKSPACE)
    assert part._projected_up(2 * WORKSPACE + 10 * STEP) == pytest.approx(
        2 * piece + part._projected_up(10 * STEP)
    )
    between = part._projected_up(10 * STEP + 32)
    assert part._projected_up(10 * STEP) < between < part._projected_up(11 * STEP)


def test_prompts_over_chosen_tokens() -> None:
    """5,000 tokens: the first 2,048 see all before them, 2,098,176 pairs, the others 2,048 each."""
    chosen = 2048 * 2049 / 2 + 2952 * 2048
    found = cost(V32, 8).attention
    seconds, pairs = found.prefill_seconds([Part(5000, 0)], 0)
    p = DEFAULTS["dsa_prefill"]
    expected = p["floor"] + chosen * 64 * 2176 / (PEAK * p["compute"])
    expected += 5000 * 5001 / 2 * 2 * 64 * 128 / (PEAK * p["rate"]) + 5000 * p["choice"]
    assert pairs == chosen
    assert seconds == pytest.approx(61 * max(expected, p["host"]))
    assert found.prefill([Part(5000, 0)], 0).flops == pytest.approx(61 * chosen * 2 * 16 * 1088)
    short, _ = found.prefill_seconds([Part(10, 0)], 0)
    assert short == pytest.approx(61 * p["host"])


def test_the_indexer_is_whole_on_every_gpu() -> None:
    found = per_token(cost(V32, 8), 3)
    assert found["indexer: queries"].flops == 61 * 2 * 3 * 1536 * 8192
    assert found["indexer: key and heads"].flops == 61 * 2 * 3 * 7168 * 192
    in_16_bits = per_token(cost(V32, 8, "fp8"), 3)["indexer: key and heads"]
    assert in_16_bits.bytes == 61 * 2 * (7168 * 192 + 3 * (7168 + 192))
    assert found["q up projection"].flops == 61 * 2 * 3 * 1536 * 3072


def test_layers_that_share_an_indexer_have_none() -> None:
    (dense, experts) = V32.layers
    shared = replace(experts.attention, index_shared=True)  # type: ignore[type-var]
    model = replace(V32, layers=(dense, LayerGroup(58, shared, experts.mlp)))
    found = per_token(cost(model, 8), 3)
    assert found["indexer: queries"].flops == 3 * 2 * 3 * 1536 * 8192
    slope = cost(model, 8).line(1, 50_000)[2]
    assert slope == pytest.approx(cost(V32, 8).line(1, 50_000)[2] * 3 / 61, rel=1e-6)


def profiled(operator: str, parameters: dict[str, float], **ranges: tuple[float, float]) -> GpuSpec:
    """The GPU with one fit in its profile."""
    fit = KernelFit(parameters, ranges, Score(0.04, 0.1, 0.0, 99))
    kernels = {operator: {"bf16": fit}}
    return replace(PLAIN, profile=Profile("made up", "2026-01-01", {}, kernels))


def test_a_profile_replaces_the_defaults() -> None:
    faster = DEFAULTS["mla_decode"] | {"floor": 1e-5}
    gpu = profiled("mla_decode", faster, batch=(1, 256), context=(2, 65536), q_heads=(1, 128))
    usual, found = (cost(V3, 8, gpu=each).attention.decode(8, 8000) for each in (PLAIN, gpu))
    gained = 61 * (DEFAULTS["mla_decode"]["floor"] - 1e-5)
    assert float(usual.seconds - found.seconds) == pytest.approx(gained)
    assert (float(found.error), float(found.measured)) == (0.04, 1)
    outside = cost(V3, 8, gpu=gpu).attention.decode(8, 8 * 100_000)
    assert (float(outside.error), float(outside.measured)) == (LATENT_ERROR, 0)


def test_a_profile_may_have_prompts() -> None:
    slower = DEFAULTS["mla_prefill"] | {"floor": 1e-3}
    gpu = profiled("mla_prefill", slower, q_heads=(1, 128), tokens=(1, 32768))
    usual, found = (cost(V3, 8, gpu=each).attention.prefill([Part(500, 0)], 0)
                    for each in (PLAIN, gpu))  # fmt: skip
    gained = 61 * (1e-3 - DEFAULTS["mla_prefill"]["floor"])
    assert float(found.seconds - usual.seconds) == pytest.approx(gained)
    assert (float(found.error), float(found.measured)) == (0.04, 1)


@pytest.mark.parametrize("model", [V3, V32], ids=["latent", "sparse"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_pass_is_the_sum_of_its_operators(model: ModelSpec, precision: str) -> None:
    found = cost(model, 8, precision, precision)
    batches = (
        Batch(1, 900),
        Batch(64, 64 * 5000),
        Batch(0, 0, [Part(700, 0)], 1),
        Batch(5, 700, [Part(300, 20), Part(90, 0)], 1),
    )
    for batch in batches:
        parts = sum(float(o.seconds) for o in found.pass_operators(batch))
        assert found.seconds(batch) == pytest.approx(parts, rel=1e-9)


@pytest.mark.parametrize("model", [V3, V32], ids=["latent", "sparse"])
def test_more_never_takes_less(model: ModelSpec) -> None:
    found = cost(model, 8, "fp8", "fp8")
    contexts = np.arange(0.0, 200_000, 997)
    decoding = found.attention.decode(np.full(len(contexts), 16.0), 16 * contexts)
    assert (np.diff(np.asarray(decoding.seconds)) >= 0).all()
    prompts = [found.attention.prefill_seconds([Part(n, 3000)], 0)[0] for n in range(1, 5000, 97)]
    assert (np.diff(prompts) >= 0).all()


def test_a_run_of_each() -> None:
    """Sparse attention pays its indexer at short contexts; both are timed, none is measured."""
    base = {
        "fleet": {"gpu": "h200-sxm", "tensor_parallel": 8},
        "precision": {"weights": "fp8", "activations": "fp8"},
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 1},
            "prompt_tokens": {"kind": "fixed", "value": 900},
            "output_tokens": {"kind": "fixed", "value": 40},
        },
        "max_model_len": 4096,
        "run": {"requests": 15, "warmup": 0},
    }
    dense, sparse = (
        sim.simulate(sim.load_scenario({**base, "model": name})).summary
        for name in ("deepseek-v3.1", "deepseek-v3.2")
    )
    assert dense["completed"] == sparse["completed"] == 15
    assert sparse["mean_tpot_ms"] > dense["mean_tpot_ms"]
    assert sparse["mean_ttft_ms"] > dense["mean_ttft_ms"]
    assert sparse["infersim"]["operators"]["indexer: queries"]["bytes"] > 0
