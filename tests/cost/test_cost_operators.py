"""FLOPs, bytes and seconds of every operator against values worked out by hand.

``m`` is the number of tokens in the pass. A projection of (k inputs, n outputs) over 32 layers has
``2 m k n x 32`` FLOP; it reads ``2 k n x 32`` bytes of 16-bit weights and moves
``2 m (k + n) x 32`` bytes of inputs and outputs. That is checked at one token (decode, batch 1),
32 (decode, batch 32) and 512 (prefill of one prompt).
"""

from __future__ import annotations

import numpy as np
import pytest

from sim import catalog
from sim.cost import CostModel, Deployment, Operator
from sim.cost.communication import all_gather_time, all_reduce_time
from sim.iteration import Batch
from sim.specs.gpu import GpuSpec
from sim.specs.layout import Layout
from tests.dense_models import attention_of, changed, mlp_of
from tests.gpus import data_sheet

IDEAL = catalog.engine("ideal")
MODELS = ("llama-2-7b", "llama-3.1-8b")
PROJECTIONS = (
    "qkv projection",
    "output projection",
    "gate and up projection",
    "down projection",
)
SIZES = (1, 32, 512)


def deploy(
    model: str = "llama-3.1-8b",
    gpu: str = "h100-sxm",
    weights: str = "bf16",
    activations: str = "bf16",
    kv_cache: str = "bf16",
    tensor_parallel: int = 1,
) -> Deployment:
    return Deployment(
        catalog.model(model), data_sheet(gpu), IDEAL, weights, activations, kv_cache,
        Layout(tensor_parallel),
    )  # fmt: skip


def per_token(d: Deployment, m: int) -> dict[str, Operator]:
    return {o.name: o for o in CostModel(d).by_size.per_token(m)}


def per_output(d: Deployment, rows: int) -> dict[str, Operator]:
    return {o.name: o for o in CostModel(d).by_size.per_output(rows)}


@pytest.mark.parametrize("gpu", [data_sheet("h100-sxm"), catalog.gpu("h100-sxm")])
def test_norms_over_all_heads_sum_squares(gpu: GpuSpec) -> None:
    """62 layers of MiniMax-M2 sum one number in fp32 for the queries and one for the keys of each
    token, of 3 tokens here: small messages, so that they take their latency."""
    model, layouts = catalog.model("minimax-m2"), (Layout(4), Layout(1))
    four, one = (
        per_token(Deployment(model, gpu, IDEAL, "fp8", "fp8", "bf16", layout), 3)
        for layout in layouts
    )
    summed, hidden = four["norms: all-reduce"], four["all-reduce"]
    assert summed.bytes == 62 * 3 * 2 * 4
    assert 62 / 125 * 0.8 * hidden.seconds < summed.seconds < 62 / 125 * hidden.seconds
    assert "norms: all-reduce" not in one
    assert "norms: all-reduce" not in per_token(deploy(tensor_parallel=4), 3)


# name: (bytes of weights, bytes moved per token, FLOP per token), each over all 32 layers
MHA = {
    "embedding": (0, 16_384, 0),
    "norms": (0, 2_097_152, 0),
    "qkv projection": (3_221_225_472, 1_048_576, 3_221_225_472),
    "rotary, KV write": (0, 1_572_864, 0),
    "output projection": (1_073_741_824, 524_288, 1_073_741_824),
    "gate and up projection": (5_771_362_304, 1_671_168, 5_771_362_304),
    "activation": (0, 2_113_536, 0),
    "down projection": (2_885_681_152, 966_656, 2_885_681_152),
}
GQA = {
    "embedding": (0, 16_384, 0),
    "norms": (0, 2_097_152, 0),
    "qkv projection": (1_610_612_736, 655_360, 1_610_612_736),
    "rotary, KV write": (0, 786_432, 0),
    "output projection": (1_073_741_824, 524_288, 1_073_741_824),
    "gate and up projection": (7_516_192_768, 2_097_152, 7_516_192_768),
    "activation": (0, 2_752_512, 0),
    "down projection": (3_758_096_384, 1_179_648, 3_758_096_384),
}


@pytest.mark.parametrize("m", SIZES)
def test_a_multi_head_model(m: int) -> None:
    """Llama-2-7B: hidden 4,096, queries 4,096, keys 4,096, MLP 11,008, 32 layers, 16 bits.

    embedding: a row read and written, 2 x 4,096 x 2 B = 16,384 a token, once.
    norms: 2 a layer, each adding the residual, so two reads and two writes of 4,096 x 2 B, which
    is 32,768 a norm, x 64 = 2,097,152.
    qkv: 4,096 x 12,288 = 50,331,648 weights, x 2 B x 32 = 3,221,225,472; a token moves
    (4,096 + 12,288) x 2 B x 32 = 1,048,576; FLOP 2 x 50,331,648 x 32 = 3,221,225,472.
    rotary: q, k, v read (12,288 x 2 = 24,576), q, k, v written (24,576): 49,152 x 32 = 1,572,864.
    output: 4,096 x 4,096 = 16,777,216 weights, x 64 = 1,073,741,824; (8,192 x 2) x 32 = 524,288.
    gate and up: 4,096 x 22,016 = 90,177,536, x 64 = 5,771,362,304; 26,112 x 64 = 1,671,168.
    activation: gate and up read, product written, 3 x 11,008 x 2 B x 32 = 2,113,536.
    down: 11,008 x 4,096 = 45,088,768, x 64 = 2,885,681,152; (11,008 + 4,096) x 64 = 966,656.
    """
    check(per_token(deploy("llama-2-7b"), m), MHA, m)


@pytest.mark.parametrize("m", SIZES)
def test_a_grouped_query_model(m: int) -> None:
    """Llama-3.1-8B: hidden 4,096, queries 4,096, keys 8 x 128 = 1,024, MLP 14,336, 32 layers.

    qkv: 4,096 x (4,096 + 2,048) = 25,165,824 weights, x 64 = 1,610,612,736; a token moves
    (4,096 + 6,144) x 64 = 655,360.
    rotary: (4,096 + 2,048) x 2 B read and as much written, 24,576 x 32 = 786,432.
    gate and up: 4,096 x 28,672 = 117,440,512, x 64 = 7,516,192,768; 32,768 x 64 = 2,097,152.
    activation: 3 x 14,336 x 2 B x 32 = 2,752,512.
    down: 14,336 x 4,096 = 58,720,256, x 64 = 3,758,096,384; 18,432 x 64 = 1,179,648.
    Embedding, norms and output projection are those of Llama-2-7B.
    """
    check(per_token(deploy("llama-3.1-8b"), m), GQA, m)


def check(found: dict[str, Operator], table: dict[str, tuple[int, int, int]], m: int) -> None:
    assert list(found) == list(table)
    for name, (weights, moved, flops) in table.items():
        assert found[name].bytes == weights + m * moved, name
        assert found[name].flops == m * flops, name


def test_totals_written_out() -> None:
    """The same sums as plain totals, Llama-3.1-8B.

    Gate and up at batch 32: 7,516,192,768 + 32 x 2,097,152 = 7,583,301,632 bytes and
    32 x 7,516,192,768 = 240,518,168,576 FLOP. Prefill of 512: 8,589,934,592 bytes,
    3,848,290,697,216 FLOP. QKV of Llama-2-7B at batch 32: 3,254,779,904 bytes.
    """
    batch, prompt = per_token(deploy(), 32), per_token(deploy(), 512)
    assert batch["gate and up projection"].bytes == 7_583_301_632
    assert batch["gate and up projection"].flops == 240_518_168_576
    assert prompt["gate and up projection"].bytes == 8_589_934_592
    assert prompt["gate and up projection"].flops == 3_848_290_697_216
    assert per_token(deploy("llama-2-7b"), 32)["qkv projection"].bytes == 3_254_779_904


@pytest.mark.parametrize(
    ("model", "weights", "moved", "flops", "sampling"),
    [
        ("llama-2-7b", 262_144_000, 72_192, 262_144_000, 256_000),
        ("llama-3.1-8b", 1_050_673_152, 264_704, 1_050_673_152, 1_026_048),
    ],
)
@pytest.mark.parametrize("rows", [1, 32])
def test_lm_head_and_sampling(
    model: str, weights: int, moved: int, flops: int, sampling: int, rows: int
) -> None:
    """Once a pass, over the positions that sample a token.

    Llama-2-7B: 4,096 x 32,000 x 2 B = 262,144,000 bytes of weights; a row moves
    (4,096 + 32,000) x 2 B = 72,192; FLOP 2 x 4,096 x 32,000; logits in 32 bits read and written,
    32,000 x 8 B = 256,000. Llama-3.1-8B: vocabulary 128,256, so 1,050,673,152 bytes,
    132,352 x 2 = 264,704 a row, 1,026,048 of logits.
    """
    found = per_output(deploy(model), rows)
    assert list(found) == ["LM head", "sampling"]
    assert found["LM head"].bytes == weights + rows * moved
    assert found["LM head"].flops == rows * flops
    assert found["sampling"].bytes == rows * sampling


@pytest.mark.parametrize("model", MODELS)
def test_a_decode_pass_reads_every_weight_but_the_embedding_table(model: str) -> None:
    """Parameters x 2 B, less the embedding table (one row a token) and norms: no MLP matrix, no
    head is forgotten. The MLP's three matrices are 3 x hidden x intermediate."""
    spec, d = catalog.model(model), deploy(model)
    read = 0.0
    for o in [*CostModel(d).by_size.per_token(0), *CostModel(d).by_size.per_output(0)]:
        read += float(o.bytes)
    small = spec.small_parameters()
    assert read == 2 * (spec.parameters - spec.embedding_parameters() - small)
    mlp = per_token(d, 1)
    flops = mlp["gate and up projection"].flops + mlp["down projection"].flops
    assert flops == 2 * 3 * spec.hidden_size * mlp_of(spec).intermediate_size * spec.num_layers


@pytest.mark.parametrize("model", catalog.names("models"))
@pytest.mark.parametrize("m", [1, 77])
def test_flops_agree_with_the_model_spec(model: str, m: int) -> None:
    spec, d = catalog.model(model), deploy(model)
    assert sum(float(o.flops) for o in CostModel(d).by_size.per_token(m)) == pytest.approx(
        m * spec.linear_flops_per_token()
    )
    assert per_output(d, m)["LM head"].flops == m * spec.head_flops_per_token()


# -- tensor parallelism --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "widths"),
    [
        ("llama-2-7b", {"qkv": (4096, 6144), "out": (2048, 4096), "mlp": 5504}),
        ("llama-3.1-8b", {"qkv": (4096, 3072), "out": (2048, 4096), "mlp": 7168}),
    ],
)
@pytest.mark.parametrize("m", SIZES)
def test_two_gpus_share_heads_and_mlp(
    model: str, widths: dict[str, tuple[int, int]], m: int
) -> None:
    """Each of 2 GPUs holds half of the query and KV heads and half of the MLP.

    Llama-2-7B: qkv (2,048 + 2 x 2,048) = 6,144 wide, MLP 5,504. Llama-3.1-8B: qkv
    (2,048 + 2 x 512) = 3,072 wide, MLP 7,168. Inputs of the first projections and outputs of the
    second ones are whole (4,096), and so are norms and embedding.
    """
    found, whole = per_token(deploy(model, tensor_parallel=2), m), per_token(deploy(model), m)
    mlp = widths["mlp"]
    shapes = {
        "qkv projection": widths["qkv"],
        "output projection": widths["out"],
        "gate and up projection": (4096, 2 * mlp),
        "down projection": (mlp, 4096),
    }
    for name, (k, n) in shapes.items():
        assert found[name].flops == 2 * m * k * n * 32, name
        assert found[name].bytes == (k * n + m * (k + n)) * 2 * 32, name
        assert 2 * float(found[name].flops) == whole[name].flops
    for name in ("norms", "embedding"):
        assert found[name].bytes == whole[name].bytes
    for name in ("activation", "rotary, KV write"):
        assert 2 * float(found[name].bytes) == whole[name].bytes


def test_collectives_of_two_gpus() -> None:
    """All-reduce after the embedding and twice a layer: 65 times m x 4,096 x 2 B; for 32 tokens
    65 x 262,144 = 17,039,360 bytes. Logits are gathered in 16 bits: 32 x 128,256 x 2 = 8,208,384.

    On H100 NVLink (450 GB/s, of which 0.7 are reached, floor 5 us) one all-reduce of 262,144 bytes
    takes 5 us + 262,144 / 315e9 = 5.832 us.
    """
    found = per_token(deploy(tensor_parallel=2), 32)["all-reduce"]
    assert found.bytes == 17_039_360
    assert found.communication == pytest.approx(65 * (5e-6 + 262_144 / 315e9))
    assert found.seconds == found.communication
    assert found.flops == 0
    gather = per_output(deploy(tensor_parallel=2), 32)["logits all-gather"]
    assert gather.bytes == 8_208_384
    assert gather.communication == pytest.approx(5e-6 + 0.5 * 8_208_384 / 315e9)


def test_one_gpu_has_no_collectives() -> None:
    names = {o.name for o in CostModel(deploy()).pass_operators(Batch(4, 400))}
    assert not {name for name in names if "all-" in name}


@pytest.mark.parametrize(("gpus", "measured"), [(2, 12e-6), (4, 18e-6), (8, 18e-6)])
def test_all_reduce_over_nvlink_is_near_what_was_measured(gpus: int, measured: float) -> None:
    """2 MB with vLLM's kernels in a CUDA graph: 12, 18 and 18 us on 2, 4 and 8 GPUs."""
    link = catalog.gpu("h200-sxm").link
    assert all_reduce_time(2e6, gpus, link) == pytest.approx(measured, rel=0.2)


def test_all_reduce_over_pcie_is_near_what_was_measured() -> None:
    """2 MB over 4 L40S: about 840 us, fifty times NVLink."""
    assert all_reduce_time(2e6, 4, catalog.gpu("l40s").link) == pytest.approx(840e-6, rel=0.05)


def test_a_gather_moves_half_of_a_reduction() -> None:
    link = catalog.gpu("h100-sxm").link
    reduce, gather = all_reduce_time(8e6, 4, link), all_gather_time(8e6, 4, link)
    assert reduce - link.latency == pytest.approx(2 * (gather - link.latency))


def test_decode_gains_less_than_twofold_from_two_gpus() -> None:
    """Weights are halved; floors stay and all-reduces come on top."""
    one = total(CostModel(deploy()).pass_operators(Batch(1, 512)))
    two = total(CostModel(deploy(tensor_parallel=2)).pass_operators(Batch(1, 512)))
    assert one / 2 < two < one


def test_heads_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot share the 32 attention heads"):
        deploy(tensor_parallel=3)


def test_kv_heads_that_cannot_be_shared_are_refused() -> None:
    """40 query heads divide by 4, 10 KV heads do not, and are not copied whole either. By 2, 5 and
    10 they divide, and 20 and 40 GPUs hold 2 and 4 whole copies of each."""
    model = changed(catalog.model("llama-3.1-8b"), num_heads=40, num_kv_heads=10)
    for gpus in (4, 8):
        with pytest.raises(ValueError, match=f"{gpus} GPUs can neither share nor copy the 10 KV"):
            Deployment(model, data_sheet("h100-sxm"), IDEAL, layout=Layout(gpus))
    for gpus, heads in ((1, 10), (2, 5), (5, 2), (10, 1), (20, 1), (40, 1)):
        assert Deployment(model, data_sheet("h100-sxm"), IDEAL, layout=Layout(gpus))
        whole = attention_of(model)
        assert whole.share(gpus).kv_size == heads * 128
        assert whole.share(gpus).kv_size * gpus >= whole.kv_size  # none is lost


def test_more_gpus_than_kv_heads_copy_them() -> None:
    """16 GPUs, 8 KV heads: each GPU has one whole head of 128 (not half of one), 2 query heads."""
    d = deploy(tensor_parallel=16)
    one = attention_of(d.model).share(16)
    assert (one.kv_size, one.query_size) == (128, 256)
    qkv = per_token(d, 1)["qkv projection"]
    assert qkv.flops == 2 * 4096 * (256 + 2 * 128) * 32


# -- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("weights", "share"), [("fp8", 2), ("int8", 2), ("int4", 4)])
def test_narrow_weights_shrink_projections_only(model: str, weights: str, share: int) -> None:
    """16-bit activations: fp8 and int8 halve the weights' bytes, int4 quarters them. Activations,
    embedding and LM head are left; so are the FLOPs."""
    wide, narrow = per_token(deploy(model), 32), per_token(deploy(model, weights=weights), 32)
    table = MHA if model == "llama-2-7b" else GQA
    for name, operator in narrow.items():
        held, moved, _ = table[name]
        assert operator.bytes == held / share + 32 * moved, name
        assert operator.flops == wide[name].flops
    head, before = per_output(deploy(model, weights=weights), 32), per_output(deploy(model), 32)
    assert head["LM head"] == before["LM head"]


@pytest.mark.parametrize(
    ("model", "per_pass"), [("llama-2-7b", 2_236_416), ("llama-3.1-8b", 2_555_904)]
)
@pytest.mark.parametrize("m", SIZES)
def test_narrow_activations_are_quantised_by_an_operator(model: str, per_pass: int, m: int) -> None:
    """The inputs of the four projections (4,096, 4,096, 4,096 and the MLP's width), read in 16 and
    written in 8 bits: 3 B each. Llama-2-7B: (12,288 + 11,008) x 3 x 32 = 2,236,416 a token;
    Llama-3.1-8B: (12,288 + 14,336) x 3 x 32 = 2,555,904. GEMM inputs are then 1 B, outputs 2 B.
    """
    wide = per_token(deploy(model), m)
    found = per_token(deploy(model, weights="fp8", activations="fp8"), m)
    assert set(found) - set(wide) == {"quantise activations"}
    assert found["quantise activations"].bytes == m * per_pass
    assert found["quantise activations"].flops == 0
    hidden, width = 4096, mlp_of(catalog.model(model)).intermediate_size
    down = found["down projection"]
    assert down.bytes == (width * hidden + m * (width + 2 * hidden)) * 32


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm", "l40s"])
def test_fp8_at_batch_one_is_not_twice_as_fast(gpu: str) -> None:
    """Weights are half as many bytes, but there are 4 more kernels a layer: projections and
    quantisation together stay above half of the bf16 projections plus those kernels' floor."""
    d = deploy(gpu=gpu)
    wide = per_token(d, 1)
    narrow = per_token(deploy(gpu=gpu, weights="fp8", activations="fp8"), 1)
    bf16 = sum(float(wide[name].seconds) for name in PROJECTIONS)
    fp8 = sum(float(narrow[name].seconds) for name in (*PROJECTIONS, "quantise activations"))
    assert fp8 > bf16 / 2 + 4 * 32 * d.gpu.efficiency.operator_latency
    assert fp8 < bf16


def test_fp8_doubles_arithmetic_where_the_gpu_can() -> None:
    """H100: 1,979 against 989 TFLOP/s. An A100 has no fp8 units, so the rate stays."""
    for gpu, gain in (("h100-sxm", 2.0), ("a100-sxm-80gb", 1.0)):
        wide = per_token(deploy(gpu=gpu), 4096)["gate and up projection"]
        narrow = per_token(deploy(gpu=gpu, weights="fp8", activations="fp8"), 4096)
        faster = float(wide.compute) / float(narrow["gate and up projection"].compute)
        assert faster == pytest.approx(gain, rel=1e-3)


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_weight_only_quantisation_does_not_speed_up_arithmetic(weights: str) -> None:
    """Weights are converted to 16 bits before they are multiplied: prefill stays as it was."""
    wide = per_token(deploy(), 4096)
    narrow = per_token(deploy(weights=weights), 4096)
    for name in PROJECTIONS:
        assert narrow[name].compute == wide[name].compute
        assert narrow[name].seconds == wide[name].seconds  # compute binds at 4,096 tokens


@pytest.mark.parametrize("activations", ["fp8", "int8"])
@pytest.mark.parametrize("weights", ["bf16", "fp16", "fp8", "int8", "int4"])
@pytest.mark.parametrize("gpu", ["h100-sxm", "a100-sxm-80gb"])
def test_narrow_activations_beside_other_weights_are_refused(
    gpu: str, weights: str, activations: str
) -> None:
    """No GEMM takes 8-bit inputs with weights of another kind, on no GPU, but Marlin's, which
    widens int4 to int8."""
    if weights == activations or (weights, activations) == ("int4", "int8"):
        assert deploy(gpu=gpu, weights=weights, activations=activations).weights == weights
        return
    expected = f"{activations} activations are multiplied by .* not by {weights} ones; give both"
    with pytest.raises(ValueError, match=expected):
        deploy(gpu=gpu, weights=weights, activations=activations)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("m", SIZES)
def test_without_fp8_units_fp8_is_a_way_to_store_weights(model: str, m: int) -> None:
    """A100: whatever the activations are said to be, they stay 16 bits wide, and nothing is
    quantised. The int8 units that it has are used."""
    weights_only = deploy(model, "a100-sxm-80gb", "fp8")
    d = deploy(model, "a100-sxm-80gb", "fp8", "fp8")
    assert d.arithmetic == "bf16"
    assert CostModel(d).by_size.per_token(m) == CostModel(weights_only).by_size.per_token(m)
    assert CostModel(d).by_size.per_output(m) == CostModel(weights_only).by_size.per_output(m)
    integers = deploy(model, "a100-sxm-80gb", "int8", "int8")
    assert integers.arithmetic == "int8"
    assert "quantise activations" in per_token(integers, m)
    assert deploy(model, "h100-sxm", "fp8", "fp8").arithmetic == "fp8"


def test_kv_precision_touches_only_the_cache_write() -> None:
    """fp8 KV, one token of Llama-3.1-8B: k and v written in 1 B instead of 2: 2,048 x 32 less."""
    wide, narrow = per_token(deploy(), 1), per_token(deploy(kv_cache="fp8"), 1)
    for name, operator in narrow.items():
        less = 2048 * 32 if name == "rotary, KV write" else 0
        assert operator.bytes == float(wide[name].bytes) - less


# -- time ----------------------------------------------------------------------------------------


def test_one_projection_by_hand() -> None:
    """Gate and up of Llama-3.1-8B on H100 (0.80 of 989.4 TFLOP/s, 0.85 of 3.35 TB/s, 3 us).

    Decode, batch 1: 7,518,289,920 B / 2.8475e12 = 2.6403 ms, and 32 x 3 us = 2.7363 ms.
    Prefill of 512: 3,848,290,697,216 FLOP / 791.52e12 = 4.8619 ms, and 96 us = 4.9579 ms.
    """
    decode = per_token(deploy(), 1)["gate and up projection"]
    assert decode.seconds == pytest.approx(2.7363e-3, rel=1e-4)
    assert decode.bound == "memory"
    prefill = per_token(deploy(), 512)["gate and up projection"]
    assert prefill.seconds == pytest.approx(4.9579e-3, rel=1e-4)
    assert prefill.bound == "compute"


@pytest.mark.parametrize("gpu", catalog.names("gpus"))
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["bf16", "fp8", "int4"])
def test_nothing_beats_the_data_sheet(gpu: str, model: str, precision: str) -> None:
    activations = "fp8" if precision == "fp8" else "bf16"
    d = deploy(model, gpu, precision, activations)
    predicted = CostModel(d).by_size
    for m in (1, 32, 512, 8192):
        for o in [*predicted.per_token(m), *predicted.per_output(m)]:
            assert o.seconds >= o.bytes / d.gpu.bandwidth, o.name
            assert o.seconds >= o.flops / d.gpu.flops(activations), o.name


@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_batch_shares_the_weights(name: str) -> None:
    """32 sequences together cost hardly more than one: weights are read once."""
    one, many = per_token(deploy(), 1)[name], per_token(deploy(), 32)[name]
    assert one.per_batch
    assert float(many.seconds) < 1.05 * float(one.seconds)


def test_decode_turns_compute_bound_at_the_ridge() -> None:
    """H100, bf16, as efficiencies stand: weights of 2 B take as long as 2 m FLOP each where
    m = (791.52e12 / 2.8475e12) = 278 tokens, a little later for the activations' bytes."""
    found = [m for m in range(200, 500) if per_token(deploy(), m)[PROJECTIONS[2]].bound != "memory"]
    assert 278 <= found[0] <= 330
    assert found == list(range(found[0], 500))


def test_an_array_of_passes_is_each_pass() -> None:
    """Every formula works on many passes at once, to the last bit."""
    sizes = np.array([1.0, 7.0, 32.0, 512.0])
    d = deploy(weights="fp8", activations="fp8", tensor_parallel=2)
    predicted = CostModel(d).by_size
    together = [*predicted.per_token(sizes), *predicted.per_output(sizes)]
    for index, size in enumerate(sizes):
        alone = [
            *CostModel(d).by_size.per_token(float(size)),
            *CostModel(d).by_size.per_output(float(size)),
        ]
        for many, one in zip(together, alone, strict=True):
            assert many.name == one.name
            assert np.broadcast_to(many.seconds, 4)[index] == one.seconds
            assert np.broadcast_to(many.bytes, 4)[index] == one.bytes


def total(operators: list[Operator]) -> float:
    return sum(float(o.seconds) for o in operators)
