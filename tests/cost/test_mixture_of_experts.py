"""Operators of a mixture of experts against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sim
from sim import catalog
from sim.cost import CostModel, Deployment, Operator
from sim.cost.measured_experts import MeasuredExperts, experts_note, fit_for, fit_of
from sim.cost.parts.mixture_of_experts import INTO, OUT, ROUTING_FLOOR, WHOLE
from sim.cost.trust import EXPERTS_ERROR
from sim.iteration import Batch, Part
from sim.specs.experts import MixtureOfExperts
from sim.specs.gpu import GpuSpec
from sim.specs.layout import Layout
from sim.specs.model import ModelSpec
from tests.gpus import data_sheet

MIXTRAL = catalog.model("mixtral-8x7b")
VLLM = catalog.engine("vllm")
MARLIN = replace(VLLM, marlin=True)
PLAIN, PROFILED = data_sheet("h100-sxm"), catalog.gpu("h100-sxm")


def cost(
    model: ModelSpec = MIXTRAL, gpu: GpuSpec = PLAIN, precision: str = "bf16", gpus: int = 1
) -> CostModel:
    engine = catalog.engine("ideal")
    return CostModel(Deployment(model, gpu, engine, precision, precision, "bf16", Layout(gpus)))


def per_token(found: CostModel, m: float) -> dict[str, Operator]:
    return {o.name: o for o in found.by_size.per_token(m)}


def test_one_sequence_reads_its_two_experts_many_read_all() -> None:
    """An expert's gate and up: 4,096 x 28,672 x 2 B = 234,881,024 B; its down half of that. A token
    moves 2 x (4,096 + 28,672) x 2 B = 131,072 B around the first product, 2 x (14,336 + 4,096) x
    2 B = 73,728 B around the second. Of 512 tokens, every expert is chosen by some."""
    one, many = per_token(cost(), 1), per_token(cost(), 512)
    assert one[INTO].bytes == 32 * (2 * 234_881_024 + 131_072)
    assert one[OUT].bytes == 32 * (2 * 117_440_512 + 73_728)
    assert many[INTO].bytes == 32 * (8 * 234_881_024 + 512 * 131_072)
    assert many[OUT].bytes == 32 * (8 * 117_440_512 + 512 * 73_728)
    for m, found in ((1, one), (512, many)):
        assert found[INTO].flops == 32 * 2 * m * 2 * 4096 * 28_672
        assert found[OUT].flops == 32 * 2 * m * 2 * 14_336 * 4096
    assert one[INTO].bound == many[INTO].bound == "memory"


def test_a_few_sequences_share_some_experts() -> None:
    """Two tokens choose 8 x (1 - 0.75^2) = 3.5 of 8 experts on average, not four."""
    found = per_token(cost(), 2)[INTO]
    assert found.bytes == 32 * (3.5 * 234_881_024 + 2 * 131_072)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    found = per_token(cost(), 8192)[INTO]
    assert found.bound == "compute"
    rate = PLAIN.flops("bf16") * PLAIN.efficiency.compute
    assert found.compute == 32 * 2 * 8192 * 2 * 4096 * 28_672 / rate


def test_router_and_routing() -> None:
    """4,096 x 8 weights of 16 bits, whatever the precision of the experts; scores, results of two
    experts and their sum once more: (8 + 2 x 4,096 + 4,096) x 2 B."""
    found = per_token(cost(precision="fp8"), 1)
    assert found["router"].bytes == 32 * 2 * (4096 * 8 + 4096 + 8)
    routing = found["experts: routing and sum"]
    assert routing.bytes == 32 * (8 + 3 * 4096) * 2
    assert routing.latency == 32 * ROUTING_FLOOR
    assert found[INTO].bytes == 32 * (2 * 117_440_512 + 2 * (4096 + 2 * 28_672))


def in_fp32(gpu: GpuSpec) -> Operator:
    (group,) = MIXTRAL.layers
    assert isinstance(group.mlp, MixtureOfExperts)
    router = replace(group, mlp=replace(group.mlp, router_fp32=True))
    return per_token(cost(replace(MIXTRAL, layers=(router,)), gpu), 8192)["router"]


def test_a_router_in_fp32() -> None:
    """Weights and inputs of 4 bytes, outputs of 2; 2 x 8,192 x 4,096 x 8 FLOP a layer at 66.9
    TFLOP/s, of which products reach a share."""
    found = in_fp32(PLAIN)
    assert found.bytes == 32 * (4 * 4096 * 8 + 8192 * (4 * 4096 + 2 * 8))
    assert found.compute == pytest.approx(
        32 * 2 * 8192 * 4096 * 8 / (66.9e12 * PLAIN.efficiency.compute)
    )
    assert in_fp32(PROFILED).compute == found.compute  # no profile has it


def test_a_router_in_fp32_where_nothing_says_how_fast() -> None:
    peaks = {name: rate for name, rate in PLAIN.peak_flops.items() if name != "fp32"}
    found = in_fp32(replace(PLAIN, peak_flops=peaks))
    assert found == per_token(cost(), 8192)["router"]


def test_experts_are_cut_along_their_width() -> None:
    """Each of two GPUs has half of every expert; one all-reduce ends the block, as in dense layers:
    65 in all with that of the embedding."""
    found = per_token(cost(gpus=2), 1)
    assert found[INTO].bytes == 32 * (2 * 117_440_512 + 2 * (4096 + 14_336) * 2)
    assert found["router"].flops == 32 * 2 * 4096 * 8
    assert found["all-reduce"].bytes == 65 * 4096 * 2


def test_shared_experts_are_an_mlp_of_their_own() -> None:
    (group,) = MIXTRAL.layers
    mlp = MixtureOfExperts(8, 2, 14336, 1024)
    found = per_token(cost(replace(MIXTRAL, layers=(replace(group, mlp=mlp),))), 3)
    assert found["shared experts: down projection"].flops == 32 * 2 * 3 * 1024 * 4096
    assert found["shared experts: down projection"].bytes == 32 * 2 * (
        1024 * 4096 + 3 * (1024 + 4096)
    )
    assert found[INTO] == per_token(cost(), 3)[INTO]


def test_a_profile_has_all_routed_experts_in_one_operator() -> None:
    """64 tokens: 128 rows of 2 x 3 x 4,096 x 14,336 FLOP; all 8 experts are read. Nothing is
    quantised apart: the call contains it, as measured products do."""
    for precision, wide in (("bf16", 2), ("fp8", 1 + 4 / 128**2)):
        found = per_token(cost(gpu=PROFILED, precision=precision), 64)
        experts = found[WHOLE]
        assert INTO not in found
        assert "quantise activations" not in found
        assert experts.measured == 1
        assert experts.error < found["qkv projection"].error + 0.02
        assert experts.flops == 32 * 128 * 2 * 3 * 4096 * 14_336
        touched = float(MIXTRAL.layers[0].mlp.touched(64))  # type: ignore[attr-defined]
        read = touched * 3 * 4096 * 14_336 * wide + 128 * (2 * 4096 + 3 * 14_336) * 2
        assert experts.bytes == pytest.approx(32 * read)
        assert experts.seconds > experts.bytes / PROFILED.bandwidth


@pytest.mark.parametrize(("gpus", "measured"), [(1, 1), (8, 1), (64, 0)])
def test_widths_that_are_no_multiple_of_16_were_not_measured(gpus: int, measured: float) -> None:
    """14,336 columns are 224 on each of 64 GPUs, but the tables end at 32; 700 are 87.5."""
    (group,) = MIXTRAL.layers
    odd = replace(MIXTRAL, layers=(replace(group, mlp=MixtureOfExperts(8, 2, 14328)),))
    for model, expected in ((MIXTRAL, measured), (odd, 0)):
        mlp = model.layers[0].mlp
        assert isinstance(mlp, MixtureOfExperts)
        found = fit_of(PROFILED, "bf16", "bf16", 1)
        assert found is not None
        one = MeasuredExperts(found, PROFILED, 4096, mlp, Layout(gpus))
        assert one.timing(16.0).measured == expected


def test_a_precision_without_timings_is_timed_from_the_data_sheet() -> None:
    engine = catalog.engine("ideal")
    for gpu in (PROFILED, PLAIN):
        d = Deployment(MIXTRAL, gpu, engine, "int8", "bf16", "bf16")
        found = per_token(CostModel(d), 64)
        for name in (INTO, OUT, "experts: routing and sum"):
            assert found[name].measured == 0, name
            assert found[name].error == EXPERTS_ERROR, name
        note = experts_note(d)
        assert note is not None
        assert ("int8" in note) == (gpu is PROFILED)
    assert experts_note(Deployment(MIXTRAL, PROFILED, engine)) is None
    assert experts_note(Deployment(catalog.model("llama-3.1-8b"), PLAIN, engine)) is None


def test_marlin_computes_experts_in_4_bits_where_it_is_asked_for_or_alone() -> None:
    """mxfp4 has Triton's kernels on Hopper, and Marlin's where an engine asks for them; int4 has
    Marlin's alone. vLLM pads mxfp4 for it: 2,880 to 3,072, on each of four GPUs 720 to 768."""
    found = {
        (weights, marlin): fit_of(PROFILED, weights, "bf16", 1, marlin=marlin)
        for weights in ("mxfp4", "int4-group")
        for marlin in (False, True)
    }
    names = {key: fit.precision for key, fit in found.items() if fit is not None}
    assert names == {
        ("mxfp4", False): "mxfp4-weights",
        ("mxfp4", True): "marlin",
        ("int4-group", False): "marlin",
        ("int4-group", True): "marlin",
    }
    asked, plain = found["mxfp4", True], found["int4-group", True]
    assert asked is not None
    assert plain is not None
    small, whole = (MixtureOfExperts(128, 4, width) for width in (2880, 3072))
    four = Layout(4)
    padded = MeasuredExperts(asked, PROFILED, 2880, small, four).timing(512.0)
    same = MeasuredExperts(plain, PROFILED, 3072, whole, four).timing(512.0)
    assert padded.seconds == same.seconds
    done, stated = (
        MeasuredExperts(each, PROFILED, 2880, small, four).work(512.0) for each in (asked, plain)
    )
    assert done == stated  # the work itself is not padded


def test_an_engine_chooses_marlin() -> None:
    """Decoding reads less time, prompts take more."""
    oss = catalog.model("gpt-oss-120b")
    times = []
    for engine in (VLLM, MARLIN):
        d = Deployment(oss, PROFILED, engine, "bf16", "bf16", "bf16", Layout(2), experts="mxfp4")
        found = per_token(CostModel(d), 8192)
        times.append(found[WHOLE].seconds)
    assert times[1] > 1.5 * times[0]


def test_marlin_keeps_experts_in_mxfp4_padded() -> None:
    """gpt-oss-120b on two GPUs: 36 layers of 128 experts, three matrices of 2,880 x 1,440 numbers
    each, padded to 3,072 x 1,536, of 17/32 bytes with their scales: 4.2 GB a GPU more than an
    engine that pads nothing."""
    oss = catalog.model("gpt-oss-120b")
    plain, padded = (
        Deployment(
            oss, PROFILED, engine, "bf16", "bf16", "bf16", Layout(2), experts="mxfp4"
        ).weight_bytes()
        for engine in (catalog.engine("ideal"), MARLIN)
    )
    more = 36 * 128 * 3 * (3072 * 1536 - 2880 * 1440) * 17 / 32
    assert padded - plain == pytest.approx(more, rel=1e-12)


def test_experts_are_timed_at_every_number_of_tokens() -> None:
    """Up to 512 one by one; beyond, between those on both sides; of 64 tokens the same as in an
    array of them."""
    found = fit_of(PROFILED, "bf16", "bf16", 1)
    assert found is not None
    mlp = MIXTRAL.layers[0].mlp
    assert isinstance(mlp, MixtureOfExperts)
    one = MeasuredExperts(found, PROFILED, 4096, mlp)
    many = one.timing(np.array([64.0, 512.0, 544.0, 576.0])).seconds
    assert isinstance(many, np.ndarray)
    assert many[0] == one.timing(64.0).seconds
    assert many[2] == pytest.approx((many[1] + many[3]) / 2)


@pytest.mark.parametrize("gpu", [PLAIN, PROFILED], ids=["data sheet", "profile"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_pass_is_the_sum_of_its_operators(gpu: GpuSpec, precision: str) -> None:
    model = cost(gpu=gpu, precision=precision, gpus=2)
    for batch in (Batch(1, 900), Batch(64, 64_000), Batch(5, 700, [Part(300, 20)], 1)):
        parts = sum(float(o.seconds) for o in model.pass_operators(batch))
        assert model.seconds(batch) == pytest.approx(parts, rel=1e-9)


def test_more_tokens_never_take_less() -> None:
    """The sum over operators, from nothing up to a large prompt."""
    sizes = np.arange(0.0, 4096)
    seconds = sum(np.asarray(o.seconds) for o in cost().by_size.per_token(sizes))
    assert (np.diff(seconds) >= 0).all()


def test_a_run_says_what_it_does_not_know() -> None:
    """No error of whole runs is claimed; where experts are a data sheet's, the note says so and the
    band is wider than that of a dense model."""
    scenario = {
        "model": "qwen3-30b-a3b",
        "fleet": {"gpu": "h100-sxm"},
        "workload": {
            "arrivals": {"kind": "poisson", "rate": 5},
            "prompt_tokens": {"kind": "fixed", "value": 200},
            "output_tokens": {"kind": "fixed", "value": 30},
        },
        "run": {"requests": 30, "warmup": 0},
    }
    sparse = sim.simulate(sim.load_scenario(scenario)).summary["infersim"]
    unknown = {**scenario, "precision": {"weights": "int8", "activations": "bf16"}}
    unmeasured = sim.simulate(sim.load_scenario(unknown)).summary["infersim"]
    dense = sim.simulate(sim.load_scenario({**scenario, "model": "qwen3-14b"})).summary["infersim"]
    told = "Experts are timed from"
    assert not any(note.startswith(told) for note in sparse["notes"])
    assert sum(note.startswith(told) for note in unmeasured["notes"]) == 1
    assert "Every expert is taken to be chosen equally often." in sparse["notes"]
    assert PROFILED.profile is not None
    held = PROFILED.profile.kernels["moe"]["bf16"].holdout.median
    assert f"experts {held:.1%}" in sparse["provenance"]
    assert "Whole published runs of vllm with experts" in sparse["whole_runs"]["text"]
    theirs, ours = (each["whole_runs"]["errors"] for each in (dense, sparse))
    assert theirs
    assert ours
    assert not [each for each in ours if each in theirs]
    bands = [each["error_band"] for each in (dense, sparse, unmeasured)]
    assert bands[0]["tpot"] < bands[1]["tpot"]
    assert bands[2]["tpot"] > bands[1]["tpot"]
    assert bands[2]["parts"]["kernels"] > 2 * bands[1]["parts"]["kernels"]
    assert sparse["operators"][WHOLE]["bytes"] > 0
    assert unmeasured["operators"][INTO]["bytes"] > 0


def test_deep_gemm_multiplies_a_block_of_rows_for_every_expert() -> None:
    """vLLM 0.12, Qwen3-235B on two H200. One token and 128 experts: 8 + 128 x 127 = 16,264 rows, in
    blocks of 128 that is 16,384; 64 tokens 16,768. Two products of an expert are 3 x 4,096 x 768
    numbers: 309 GFLOP for the blocks of one token, at 0.62 of 1,978.9 TFLOP/s 252 us."""
    qwen, hopper = catalog.model("qwen3-235b-a22b"), catalog.gpu("h200-sxm")
    d = Deployment(qwen, hopper, catalog.engine("vllm@0.13"), "fp8-block", "fp8", "bf16", Layout(2))
    one, many = (per_token(CostModel(d), m)[WHOLE] for m in (1, 64))
    assert one.compute == pytest.approx(
        94 * 2 * 16_384 * 3 * 4096 * 768 / (0.62 * 1978.9e12), rel=1e-9
    )
    assert many.compute == pytest.approx(one.compute * 16_768 / 16_384, rel=1e-9)
    assert one.seconds < many.seconds < 1.6 * one.seconds
    assert one.measured == 0
    later = replace(d, engine=catalog.engine("vllm"))
    assert per_token(CostModel(later), 1)[WHOLE].seconds < one.seconds / 4


def test_deep_gemm_has_experts_in_blocks_on_hopper_and_not_on_eight_tensor_ranks() -> None:
    qwen, engine = catalog.model("qwen3-235b-a22b"), catalog.engine("vllm@0.13")

    def aligned(gpu: str, weights: str, layout: Layout) -> bool:
        arithmetic = "bf16" if weights == "bf16" else "fp8"
        d = Deployment(qwen, catalog.gpu(gpu), engine, weights, arithmetic, "bf16", layout)
        found = fit_for(d)
        return found is not None and found.aligned

    assert aligned("h100-sxm", "fp8-block", Layout(4))
    assert aligned("gh200", "fp8-block", Layout(4, expert=4))
    assert not aligned("h100-sxm", "fp8-block", Layout(8))
    assert not aligned("h100-sxm", "fp8", Layout(4))
    assert not aligned("h100-sxm", "bf16", Layout(4))
    assert not aligned("l40s", "fp8-block", Layout(4))


@pytest.mark.parametrize(
    ("gpu", "engine", "operator"),
    [
        ("h100-sxm", "tensorrt-llm-pytorch", "moe_older"),
        ("h200-sxm", "tensorrt-llm-pytorch", "moe_older"),
        ("h100-sxm", "tensorrt-llm", "moe"),
        ("a100-sxm-80gb", "tensorrt-llm-pytorch", "moe"),  # whose profile has one release
    ],
)
def test_engines_of_older_releases_have_older_kernels(gpu: str, engine: str, operator: str) -> None:
    found = fit_for(
        Deployment(
            model=catalog.model("mixtral-8x7b"),
            gpu=catalog.gpu(gpu, kernels="trtllm"),
            engine=catalog.engine(engine),
            layout=Layout(tensor=2),
        )
    )
    assert found is not None
    assert found.operator == operator
