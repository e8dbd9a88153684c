"""The time of layers with a constant state: bandwidth for decoding, chunks for prompts."""

from __future__ import annotations

import math

import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.operators import Operator
from sim.cost.parts.recurrent import SERIAL_RATE, SERIAL_START, RecurrentPart
from sim.cost.rooflines import Rooflines
from sim.iteration import Batch, Part
from sim.specs.gated_delta import GatedDelta
from sim.specs.lightning import Lightning
from sim.specs.mamba2 import Mamba2
from sim.specs.recurrent import Recurrent
from tests.gpus import data_sheet

H200 = data_sheet("h200-sxm")
QWEN, NANO = catalog.model("qwen3-next-80b-a3b"), catalog.model("nemotron-3-nano-30b-a3b")
DELTA = GatedDelta(16, 32, 128, 128)
MAMBA = Mamba2(64, 64, 128)
CHUNK = 64 * 180_224 / (H200.flops("bf16") / 132 / 2)
"""Seconds of 64 tokens of one head on an SM, at half of its peak."""
IDEAL = catalog.engine("ideal")
DEPLOYED = Deployment(QWEN, H200, IDEAL, weights="fp8")


def part(layer: Recurrent = DELTA, layers: int = 1) -> RecurrentPart:
    return RecurrentPart(layer, layers, DEPLOYED, Rooflines(DEPLOYED))


def test_decoding_reads_and_writes_every_state() -> None:
    """And the inputs of the convolution, three kept and one new of 8,192 channels, and results."""
    sequence = 2 * 2_097_152 + 2 * 49_152 + 2 * 8192 * 2 + 2 * 4096 * 2
    ((limit, one, slope),) = part().decode_lines(1)
    ((_, many, _),) = part().decode_lines(1001)
    assert (limit, slope) == (math.inf, 0.0)
    assert many - one == pytest.approx(1000 * sequence / (4.8e12 * 0.85))
    assert one == pytest.approx(6e-6 + sequence / (4.8e12 * 0.85))
    assert part(layers=36).decode_lines(7)[0][1] == pytest.approx(36 * part().decode_lines(7)[0][1])


def test_decoding_is_near_published_timings() -> None:
    """Update of the convolution and of the states: 45.3 and 1,051.6 us for 1,024 sequences, 10.7
    and 267.3 us for 256 (H200, vLLM 0.24, aiconfigurator-core tables)."""
    assert part().decode_lines(1024)[0][1] == pytest.approx(1096.9e-6, rel=0.05)
    assert part().decode_lines(256)[0][1] == pytest.approx(278.0e-6, rel=0.06)


def test_a_prompt_lasts_as_long_as_the_chunks_of_one_head() -> None:
    """Published: 787.6 and 221.4 us for 16,384 tokens in 32 heads, 1,567.7 and 656.2 us for 32,768
    in 64, kernel and convolution (H200)."""
    conv = 16_384 * 2 * 8192 * 2 / (4.8e12 * 0.85)
    state = 2 * 2_097_152 / (4.8e12 * 0.85)
    (seconds, pairs) = part().prefill_seconds([Part(16_384, 0)], 0)
    assert seconds == pytest.approx(SERIAL_START + 256 * CHUNK + conv + state + 3e-6)
    assert seconds == pytest.approx(1009e-6, rel=0.12)
    assert pairs == 0
    wide = part(GatedDelta(16, 64, 128, 128)).prefill_seconds([Part(32_768, 0)], 0)[0]
    assert wide == pytest.approx(2223.9e-6, rel=0.16)


def test_an_sm_of_a_later_gpu_is_no_faster_than_the_chunks_follow_each_other() -> None:
    b200 = data_sheet("b200-sxm")
    deployed = Deployment(QWEN, b200, IDEAL, weights="fp8")
    layer = RecurrentPart(DELTA, 1, deployed, Rooflines(deployed))
    short, long = (layer.prefill_seconds([Part(64 * n, 0)], 0)[0] for n in (1, 101))
    conv = 6400 * 2 * 8192 * 2 / (8e12 * 0.85)
    assert b200.flops("bf16") / b200.sms / 2 > SERIAL_RATE
    assert long - short == pytest.approx(100 * 64 * 180_224 / SERIAL_RATE + conv)


def test_context_does_not_matter_to_a_chunk() -> None:
    assert part().prefill_seconds([Part(512, 9000)], 3) == part().prefill_seconds([Part(512, 0)], 0)


def test_prompts_side_by_side_share_the_sms() -> None:
    """Four prompts of 32 heads run on 132 SMs at once, five in two rounds."""
    four, five = (part().prefill_seconds([Part(1024, 0)] * n, 0)[0] for n in (4, 5))
    one = part().prefill_seconds([Part(1024, 0)], 0)[0]
    moved = 2 * 2_097_152 / (4.8e12 * 0.85) + 1024 * 2 * 8192 * 2 / (4.8e12 * 0.85)
    assert four - one == pytest.approx(3 * moved)
    assert five - four == pytest.approx(SERIAL_START + 16 * CHUNK + moved)


def test_mamba_takes_all_chunks_at_once() -> None:
    """Traffic: 3 x 4,096 of inputs and results, 4 x 1,024 of B and C, 4 x 1,024 of their products
    and 32,768 of states a token, at 16 bits; 6,144 channels in and out of the convolution."""
    token = (3 * 4096 + 4 * 1024 + 4 * 1024 + 32_768) * 2 + 2 * 6144 * 2
    one, two = (part(MAMBA).prefill_seconds([Part(n, 0)], 0)[0] for n in (10_000, 20_000))
    assert two - one == pytest.approx(10_000 * token / (4.8e12 * 0.85))


def test_lightning_attention() -> None:
    """Decoding: states, and results in 16 bits in and out; prompts: 2 x 24,576 in, 8,192 out, and
    16,384 of states a token."""
    one = part(Lightning(64, 128))
    sequence = 2 * 64 * 128 * 128 * 4 + 2 * 8192 * 2
    assert one.decode_lines(8)[0][1] == pytest.approx(3e-6 + 8 * sequence / (4.8e12 * 0.85))
    short, long = (one.prefill_seconds([Part(n, 0)], 0)[0] for n in (10_000, 20_000))
    moved = (2 * 24_576 + 8192 + 16_384) * 2
    assert long - short == pytest.approx(10_000 * moved / (4.8e12 * 0.85))


def operators(model: CostModel, batch: Batch) -> dict[str, Operator]:
    return {operator.name: operator for operator in model.pass_operators(batch)}


def test_a_hybrid_pass() -> None:
    """Three layers of four update states, the fourth reads its context: slope of that alone."""
    cost = CostModel(DEPLOYED)
    found = operators(cost, Batch(64, 64 * 1000))
    assert found["state update"].bytes == pytest.approx(
        36 * 64 * (2 * 1_048_576 + 2 * 49_152 + 2 * 8192 * 2 + 2 * 4096 * 2)
    )
    assert found["decode attention"].bytes == pytest.approx(64 * 1001 * 24_576, rel=0.02)
    assert found["output gate"].bytes == 12 * 3 * 64 * 4096 * 2
    assert found["shared experts: gate"].flops == 48 * 2 * 64 * 2048
    assert found["qkv projection"].flops == 12 * 2 * 64 * 2048 * (2 * 4096 + 2 * 512)
    _, _, slope = cost.line(64, 64_000)
    assert slope == pytest.approx(24_576 / (4.8e12 * 0.85), rel=0.01)


@pytest.mark.parametrize("batch", [Batch(9, 9 * 700), Batch(0, 0, [Part(700, 0)], 1),
                                   Batch(5, 5000, [Part(300, 400), Part(64, 0)], 1)])  # fmt: skip
@pytest.mark.parametrize("model", [QWEN, NANO], ids=lambda model: model.name)
def test_operators_add_up_to_the_pass(model: object, batch: Batch) -> None:
    assert model in (QWEN, NANO)
    cost = CostModel(Deployment(model, H200, IDEAL))  # type: ignore[arg-type]
    total = sum(float(operator.seconds) for operator in cost.pass_operators(batch))
    assert cost.seconds(batch) == pytest.approx(total)
    columns = cost.operators(cost.columns([batch]))
    summed = sum(float((ran.operator.seconds * ran.times).sum()) for ran in columns)
    assert summed == pytest.approx(total)
