"""The times of attention to compressed rows, and of hyper-connections."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.compressed_kernels import CHOICE, CHOSEN, COMPUTE, DENSE, FLOOR, PADDED, SHARE, TILE
from sim.cost.parts import attention_part
from sim.cost.parts.compressed import CompressedPart
from sim.cost.rooflines import Rooflines
from sim.iteration import Batch, Part
from sim.specs.drafter import drafter_of
from sim.specs.layout import Layout
from sim.specs.speculation import Speculation
from tests.gpus import data_sheet

FLASH, IDEAL = catalog.model("deepseek-v4-flash"), catalog.engine("ideal")
H200 = data_sheet("h200-sxm")
WINDOW, CHOOSES, ALL = range(3)
BATCHES = (
    Batch(1, 0),
    Batch(64, 64 * 5000),
    Batch(0, 0, [Part(700, 0)], 1),
    Batch(33, 33 * 1500, [Part(512, 40_960), Part(90, 0)], 1),
)


def deployed(gpus: int = 4, **more: object) -> Deployment:
    return Deployment(FLASH, H200, IDEAL, "fp8-block", "fp8", "fp8", Layout(gpus), **more)  # type: ignore[arg-type]


def part(kind: int, gpus: int = 1) -> CompressedPart:
    """One layer of a kind."""
    group = replace(FLASH.layers[kind], count=1, places=())
    d = replace(deployed(gpus), model=replace(FLASH, layers=(group,)))
    found = attention_part(group, d, Rooflines(d))
    assert isinstance(found, CompressedPart)
    return found


@pytest.mark.parametrize("batch", BATCHES)
def test_operators_add_up(batch: Batch) -> None:
    found = CostModel(deployed(experts="mxfp4"))
    total = sum(float(each.seconds) for each in found.pass_operators(batch))
    assert found.seconds(batch) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("kind", [WINDOW, CHOOSES, ALL])
@pytest.mark.parametrize("sequences", [1, 7, 300])
def test_lines_are_what_decoding_takes(kind: int, sequences: int) -> None:
    """At every context, also where the window is full and where the choice begins."""
    found = part(kind)
    lines = found.decode_lines(sequences)
    assert lines[-1][0] == np.inf
    for each in (0, 5, 126, 127, 128, 500, 2047, 2048, 60_000, 900_000):
        context = sequences * (min(each, 127) if kind == WINDOW else each)
        _, start, slope = next(line for line in lines if line[0] > context)
        seconds = float(np.max(found.decode(sequences, context).seconds))
        assert start + slope * context == pytest.approx(seconds, rel=1e-9), each


def test_decoding_by_hand() -> None:
    """300 sequences of 65,536 tokens on a GPU with all 64 heads, one tile of them: 300 / 132 waves
    of 128 + 512 vectors, keys of 16,384 rows."""
    batch, tokens = 300, 65_536
    waves = batch / H200.sms
    each = 4 * 64 * 512 * H200.sms / (H200.flops("bf16") * COMPUTE)
    expected = waves * (TILE + 640 * each) + CHOICE * batch
    expected += batch * (tokens / 4) * 132 / (H200.bandwidth * SHARE)
    operator = part(CHOOSES).decode(batch, batch * (tokens - 1))
    assert float(np.max(operator.seconds)) == pytest.approx(expected, rel=1e-6)
    moved = batch * (640 * 584 + tokens / 4 * 132 + 2 * 64 * 512 * 2)
    assert operator.bytes == pytest.approx(moved)
    assert operator.flops == pytest.approx(batch * (640 * 4 * 64 * 512 + tokens / 4 * 2 * 64 * 128))


def test_contexts_beyond_the_choice_cost_their_keys_alone() -> None:
    """512 rows of 4 tokens are chosen: beyond 2,048 tokens bytes grow by 132 / 4 a token; where all
    rows are attended to by 584 / 128; behind a window not at all."""
    for kind, grown in ((CHOOSES, 132 / 4), (ALL, 584 / 128)):
        one, other = (part(kind).decode(1, held).bytes for held in (10_000, 20_000))
        assert other - one == pytest.approx(10_000 * grown)


def test_prompts_by_hand() -> None:
    """Of 4,096 tokens the window shows 128 but for the first; a token sees a row for each four
    tokens up to itself, 512 at most, which the last 2,048 choose."""
    tokens = 4096
    window = 128 * 129 / 2 + (tokens - 128) * 128
    rows = (2048 * 2049 / 2 + 2048 * 2048) / 4
    seconds, pairs = part(CHOOSES).prefill_seconds([Part(tokens, 0)], 0)
    assert pairs == pytest.approx(window + rows)
    place = 4 * 64 * 512 / (H200.flops("bf16") * DENSE)
    rated = tokens * (tokens + 1) / 2 / 4 * 2 * 64 * 128
    expected = FLOOR + (pairs + PADDED * tokens) * place + CHOSEN * 2048
    expected += rated / (H200.flops("fp8") * H200.efficiency.compute)
    assert seconds == pytest.approx(expected, rel=1e-9)
    everything, _ = part(ALL).prefill_seconds([Part(100, 12_700)], 0)
    vectors = 100 * 128 + (100 * 12_700 + 5050) / 128
    assert everything == pytest.approx(FLOOR + (vectors + PADDED * 100) * place, rel=1e-9)


def test_hyper_connections_move_all_states() -> None:
    """Before and behind each attention and MLP, of 43 layers: of four states of 4,096 numbers in 16
    bits all are read for their weights, all are read and one written; all and one are read, and all
    written."""
    operators = {o.name: o for o in CostModel(deployed(1)).by_size.per_token(100.0)}
    each = 86 * 100 * 4096 * 2
    assert operators["hyper-connections: in"].bytes == 5 * each
    assert operators["hyper-connections: out"].bytes == 9 * each
    mixed = operators["hyper-connections: weights"]
    assert mixed.flops == 86 * 2 * 100 * 16_384 * 24
    plain = CostModel(replace(deployed(1), model=replace(FLASH, hyper_connections=1)))
    names = {o.name for o in plain.by_size.per_token(100.0)}
    assert not any(name.startswith("hyper") for name in names)


def test_no_sum_is_one_kernel_with_a_norm() -> None:
    """Between the two hidden states are mixed."""
    d = replace(deployed(8), engine=catalog.engine("vllm"), gpu=catalog.gpu("b200-sxm"))
    assert d.largest_fused_sum == 0
    assert replace(d, model=replace(FLASH, hyper_connections=1)).largest_fused_sum > 0


def test_a_drafter_behind_a_window_costs_no_more_for_longer_contexts() -> None:
    target = deployed(4, experts="mxfp4")
    given = Speculation("mtp", 2, (0.8, 0.6))
    d = replace(target, speculation=given, drafter=drafter_of(target, "mtp"))
    cost = CostModel(d)
    drafted = [
        float(
            next(o for o in cost.pass_operators(Batch(8, 8 * each)) if o.name == "drafting").seconds
        )
        for each in (1_000, 100_000)
    ]
    assert drafted[0] == pytest.approx(drafted[1], rel=1e-9)
    for batch in (Batch(8, 8 * 1000), Batch(8, 8 * 100)):
        total = sum(float(each.seconds) for each in cost.pass_operators(batch))
        assert cost.seconds(batch) == pytest.approx(total, rel=1e-6)
