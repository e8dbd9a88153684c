"""``precision: fp32``: every byte doubled against 16 bits, the fp32 peak, and kernels in fp32 where
a profile has them. Figures by hand: Llama-3.1-8B (hidden 4,096, keys 1,024, MLP 14,336, 32 layers)
on an H100, whose data sheet says 66.9 TFLOP/s in fp32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost import CostModel, Deployment, Operator
from sim.cost.kernels import serial
from sim.cost.kernels.form import Ceilings
from sim.cost.parts.grouped_query import prefill_share
from sim.cost.trust import ATTENTION_ERROR, PROJECTION_ERROR
from sim.errors import ScenarioError, UsageError
from sim.iteration import Batch, Part
from sim.memory.capacity import activation_bytes
from sim.scenario import load_scenario
from sim.setup import prepare
from sim.simulation import simulate
from sim.specs.gpu import GpuSpec
from sim.specs.layout import Layout
from sim.specs.profile import KernelFit, Profile, Score
from tests.gpus import data_sheet

MODEL = catalog.model("llama-3.1-8b")
H100 = data_sheet("h100-sxm")


def deploy(gpu: GpuSpec = H100, *, tensor_parallel: int = 1, **precision: str) -> Deployment:
    chosen = {"weights": "fp32", "activations": "fp32", "kv_cache": "fp32", **precision}
    return Deployment(MODEL, gpu, catalog.engine("ideal"), layout=Layout(tensor_parallel), **chosen)


def per_token(d: Deployment, m: float) -> dict[str, Operator]:
    return {o.name: o for o in CostModel(d).by_size.per_token(m)}


def per_output(d: Deployment, rows: float) -> dict[str, Operator]:
    return {o.name: o for o in CostModel(d).by_size.per_output(rows)}


BYTES = {  # of weights, and moved per token, over all 32 layers
    "embedding": (0, 32_768),
    "norms": (0, 4_194_304),
    "qkv projection": (3_221_225_472, 1_310_720),
    "rotary, KV write": (0, 1_572_864),
    "output projection": (2_147_483_648, 1_048_576),
    "gate and up projection": (15_032_385_536, 4_194_304),
    "activation": (0, 5_505_024),
    "down projection": (7_516_192_768, 2_359_296),
}


@pytest.mark.parametrize("m", [1, 32, 512])
def test_every_operator_moves_32_bits(m: int) -> None:
    """embedding: a row read and written, 2 x 4,096 x 4 B. norms: 4 x 4,096 x 4 B x 64. qkv: 4,096 x
    6,144 x 4 B x 32 of weights, (4,096 + 6,144) x 128 a token. rotary: 6,144 x 4 B read, as much
    written, x 32. output: 4,096^2 x 128; 8,192 x 128. gate and up: 4,096 x 28,672 x 128;
    32,768 x 128. activation: 3 x 14,336 x 128. down: 14,336 x 4,096 x 128; 18,432 x 128."""
    found = per_token(deploy(), m)
    assert list(found) == list(BYTES)
    for name, (weights, moved) in BYTES.items():
        assert found[name].bytes == weights + m * moved, name


def test_products_run_at_the_peak_of_fp32() -> None:
    """QKV of 512 tokens: 2 x 512 x 4,096 x 6,144 x 32 = 824,633,720,832 FLOP over 66.9e12 times the
    share of the peak that products reach."""
    qkv = per_token(deploy(), 512)["qkv projection"]
    assert qkv.flops == 824_633_720_832
    assert qkv.compute == pytest.approx(824_633_720_832 / (66.9e12 * H100.efficiency.compute))
    assert qkv.bound == "compute"


def test_the_head_and_its_logits() -> None:
    """4,096 x 128,256 x 4 B = 2,101,346,304 of weights, (4,096 + 128,256) x 4 B = 529,408 a row;
    sampling reads and writes logits of 32 bits, as it does beside 16."""
    found = per_output(deploy(), 32)
    assert found["LM head"].bytes == 2_101_346_304 + 32 * 529_408
    flops = 2 * 32 * 4096 * 128_256
    assert found["LM head"].compute == pytest.approx(flops / (66.9e12 * H100.efficiency.compute))
    assert found["sampling"].bytes == 32 * 1_026_048


def test_collectives_move_32_bits() -> None:
    """65 all-reduces of 32 x 4,096 x 4 B = 524,288; logits of 32 x 128,256 x 4 B."""
    d = deploy(tensor_parallel=2)
    assert per_token(d, 32)["all-reduce"].bytes == 65 * 524_288
    assert per_output(d, 32)["logits all-gather"].bytes == 16_416_768


def test_weights_kv_and_activations_in_memory() -> None:
    """8,030,261,248 parameters x 4 B; 2 x 32 x 1,024 x 4 B a token of KV; 8,192 tokens x 51,200 x
    4 B of the widest layer, and the logits in 32 bits as ever."""
    d = deploy()
    assert d.weight_bytes() == 32_121_044_992
    assert d.kv_bytes_per_token() == 262_144
    assert activation_bytes(d, 8192, 256) == 1_677_721_600 + 262_668_288


def test_decode_attention_reads_32_bits() -> None:
    """32 sequences of 1,000 tokens and their new one: 32,032 x 2 x 1,024 x 4 B, and queries and
    results of 32 x 2 x 4,096 x 4 B, x 32 layers."""
    found = CostModel(deploy()).attention.decode(32, 32_000)
    assert found.bytes == 32 * (32_032 * 8192 + 32 * 32_768)
    assert found.error == ATTENTION_ERROR


def test_long_prompts_run_at_what_products_in_fp32_reach() -> None:
    """bf16 prompts of 8,192 reach 0.577 of 989 TFLOP/s, far above what fp32 units have; a few
    tokens are as slow as in bf16."""
    attention = CostModel(deploy()).attention
    seconds, pairs = attention.prefill_seconds([Part(8192, 0)], 1)
    assert pairs == 8192 * 8193 / 2
    reached = 66.9e12 * H100.efficiency.compute
    assert seconds == pytest.approx(32 * 4 * 4096 * pairs / reached)
    seconds, pairs = attention.prefill_seconds([Part(127, 0)], 1)
    slow = prefill_share(64) * H100.flops("bf16")
    assert slow < reached
    assert seconds == pytest.approx(32 * 4 * 4096 * pairs / slow)


def test_everything_takes_longer_than_in_16_bits() -> None:
    wide, narrow = CostModel(deploy()), CostModel(
        deploy(weights="bf16", activations="bf16", kv_cache="bf16")
    )  # fmt: skip
    for sequences, context in ((1, 100), (32, 32_000)):
        pairs = zip(
            wide.pass_operators(Batch(sequences, context)),
            narrow.pass_operators(Batch(sequences, context)),
            strict=True,
        )
        for one, other in pairs:
            assert one.seconds > other.seconds or one.name == "sampling", one.name


# -- profiles ------------------------------------------------------------------------------------

HELD_OUT = Score(0.03, 0.1, 0.0, 100)


def serial_fit(parameters, **changes):
    ranges = {"m": (1.0, 4096.0), "batch": (1.0, 64.0), "context": (0.0, 4096.0)}
    values = {p.name: p.start for p in parameters} | changes
    return KernelFit(values, ranges, HELD_OUT, form=serial.NAME)


def profiled(*precisions: str) -> GpuSpec:
    kernels = {
        "gemm": serial_fit(serial.PRODUCT),
        "decode_attention": serial_fit(serial.ATTENTION),
        "prefill_attention": serial_fit(serial.CHUNK),
    }
    found = {name: dict.fromkeys(precisions, fit) for name, fit in kernels.items()}
    return replace(H100, profile=Profile("Made up", "2026-11-21", {}, found))


def test_a_profile_with_kernels_in_fp32_prices_by_them() -> None:
    d = deploy(profiled("bf16", "fp32"))
    ceilings = Ceilings(H100.flops("fp32"), H100.bandwidth, H100.sms)
    shape = {"m": np.array(3.0), "n": np.array(4096.0), "k": np.array(14336.0)}
    down = per_token(d, 3)["down projection"]
    one = serial.product("fp32").seconds(serial_fit(serial.PRODUCT).parameters, shape, ceilings)
    assert float(down.seconds) == pytest.approx(32 * float(one))
    assert down.error == HELD_OUT.median
    head = {**shape, "n": np.array(128_256.0), "k": np.array(4096.0)}
    one = serial.product("fp32").seconds(serial_fit(serial.PRODUCT).parameters, head, ceilings)
    assert float(per_output(d, 3)["LM head"].seconds) == pytest.approx(float(one))


def test_fitted_attention_reads_32_bits() -> None:
    """Copying at a bandwidth is all of the time when arithmetic and calls cost nothing: keys and
    values of 1,024 tokens, 2 x 1,024 x 1,024 x 4 B, queries and results 2 x 4,096 x 4 B."""
    free = {
        "floor": 1e-18,
        "sequence": 1e-18,
        "compute": 1e12,
        "share": 0.5,
        "slow": 0.0,
        "pack": 0.0,
    }
    free |= {"head": 0.0, "mask": 0.0}
    fits = {
        "decode_attention": {"fp32": serial_fit(serial.ATTENTION, **free)},
        "prefill_attention": {"fp32": serial_fit(serial.CHUNK, **free)},
    }
    gpu = replace(H100, profile=Profile("Made up", "2026-11-21", {}, fits))
    attention = CostModel(deploy(gpu)).attention
    rate = H100.bandwidth / 0.5**-1
    decode = 32 * (2 * 1024 * 1024 * 4 + 2 * 4096 * 4) / rate
    assert float(attention.decode(1, 1023).seconds) == pytest.approx(decode)
    prompt = Part(64, 0)
    prefill = 32 * (2 * 64 * 1024 * 4 + 2 * 64 * 4096 * 4) / rate
    assert attention.prefill_seconds([prompt], 0)[0] == pytest.approx(prefill)


@pytest.mark.parametrize("kv_cache", ["fp32", "bf16"])
def test_a_profile_without_fp32_falls_back_and_says_so(kv_cache: str) -> None:
    d = deploy(profiled("bf16"), kv_cache=kv_cache)
    found = {o.name: o for o in CostModel(d).pass_operators(Batch(8, 800))}
    sheet = {o.name: o for o in CostModel(deploy(kv_cache=kv_cache)).pass_operators(Batch(8, 800))}
    assert found["down projection"] == sheet["down projection"]
    assert found["down projection"].error == PROJECTION_ERROR
    assert found["LM head"].measured == found["decode attention"].measured == 0.0
    assert float(found["decode attention"].seconds) == float(sheet["decode attention"].seconds)


# -- scenarios -----------------------------------------------------------------------------------

FP32 = {"weights": "fp32", "activations": "fp32", "kv_cache": "fp32"}
SCENARIO = {
    "model": "llama-3.2-1b",
    "precision": FP32,
    "fleet": {"gpu": "h100-sxm"},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 64},
        "output_tokens": {"kind": "fixed", "value": 32},
    },
    "run": {"requests": 8},
}


def test_a_scenario_in_fp32_runs_and_says_what_was_not_measured() -> None:
    scenario = load_scenario(SCENARIO)
    assert prepare(scenario).only.capacity.kv_bytes_per_token == 2 * 16 * 512 * 4
    own = simulate(scenario).summary["infersim"]
    assert own["error_band"]["measured"] == 0.0
    assert "from the data sheet: GEMM, decode attention, prefill attention" in own["provenance"]
    narrow = simulate(load_scenario({**SCENARIO, "precision": {}}))
    assert narrow.summary["mean_tpot_ms"] < simulate(scenario).summary["mean_tpot_ms"]


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ({"weights": "fp32"}, "fp32 is multiplied by fp32, not bf16 activations by fp32 weights"),
        ({"activations": "fp32"}, "fp32 is multiplied by fp32, not fp32 activations by bf16"),
        ({**FP32, "weights": "int8"}, "fp32 is multiplied by fp32"),
    ],
)
def test_mixed_widths_are_refused(precision: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare(load_scenario({**SCENARIO, "precision": precision}))


def test_a_gpu_that_does_not_say_how_fast_it_is_in_fp32() -> None:
    peaks = {"bf16": 100e12}
    with pytest.raises(ValueError, match=r"peak_flops\.fp32"):
        deploy(replace(H100, peak_flops=peaks))
    assert deploy(replace(H100, peak_flops=peaks), **dict.fromkeys(FP32, "bf16"))


def test_a_misspelt_precision_names_fp32() -> None:
    with pytest.raises(ScenarioError, match="such as fp32"):
        load_scenario({**SCENARIO, "precision": {"weights": "fp3"}})
