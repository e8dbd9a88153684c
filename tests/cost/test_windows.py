"""Attention through windows: what is read and computed is what is seen."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import sim
from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.kernels import (
    decode_attention,
    prefill_attention,
    serial,
    serial_windows,
    window_attention,
)
from sim.cost.kernels.form import Form
from sim.cost.kernels.prompts import Prompts, _seen_by_tiles
from sim.cost.trust import ATTENTION_ERROR
from sim.growth.window_reads import WindowReads
from sim.iteration import Batch, Part
from sim.specs.gpu import GpuSpec
from sim.specs.layout import Layout
from sim.specs.model import ModelSpec
from sim.specs.profile import KernelFit, Score
from sim.specs.window import Window
from tests.dense_models import attention_of
from tests.feature_pairs import scenario_of
from tests.gpus import data_sheet
from tests.places import MODELS

LLAMA = catalog.model("llama-3.1-8b")
PROFILED, PLAIN = catalog.gpu("h100-sxm"), data_sheet("h100-sxm")


def with_kernels(**forms: Form) -> GpuSpec:
    """The same GPU with the fits of these operators at the start of their forms."""
    assert PROFILED.profile is not None
    fits = {}
    for operator, form in forms.items():
        parameters = {each.name: each.start for each in form.parameters}
        name = serial.NAME if "floor_width" not in parameters and "unit" not in parameters else ""
        fits[operator] = {"bf16": KernelFit(parameters, {}, Score(0.05, 0.1, 0.0, 9), form=name)}
    kernels = {**PROFILED.profile.kernels, **fits}
    return replace(PROFILED, profile=replace(PROFILED.profile, kernels=kernels))


TIMED = with_kernels(
    decode_attention=decode_attention.form("bf16"),
    prefill_attention=prefill_attention.form("bf16"),
    window_decode=window_attention.decode("bf16"),
    window_prefill=window_attention.prefill("bf16"),
)
SERIAL = with_kernels(
    decode_attention=serial.decode("bf16"),
    prefill_attention=serial.prefill("bf16"),
    window_decode=serial_windows.decode("bf16"),
    window_prefill=serial_windows.prefill("bf16"),
)
GPUS = pytest.mark.parametrize(
    "gpu",
    [PROFILED, PLAIN, TIMED, SERIAL],
    ids=["profile", "data sheet", "kernels through windows", "one by one"],
)


def windowed(*kinds: tuple[int, dict[str, int]]) -> ModelSpec:
    """Llama-3.1-8B with groups of so many layers whose attention is changed so."""
    (group,), attention = LLAMA.layers, attention_of(LLAMA)
    layers = [
        replace(group, count=count, attention=replace(attention, **change))
        for count, change in kinds
    ]
    return replace(LLAMA, layers=tuple(layers))


LOCAL = windowed((8, {}), (24, {"sliding_window": 1024}))
CHUNKED = windowed((8, {}), (24, {"attention_chunk": 1024}))
BOTH = windowed((4, {"sliding_window": 300}), (10, {"attention_chunk": 1024}), (18, {}))


def cost(model: ModelSpec, gpu: GpuSpec = PLAIN, engine: str = "ideal", tp: int = 2) -> CostModel:
    return CostModel(
        Deployment(model, gpu, catalog.engine(engine), "fp8", "fp8", layout=Layout(tp))
    )


def test_what_one_sequence_reads() -> None:
    """A token of KV is 2 x 8 heads x 128 x 2 B = 4,096 B in a layer, half of it on each of two
    GPUs. One sequence of 9,000 tokens, the new one included: 8 layers read all of them, 24 the last
    1,024, or the 808 since 8,192; each layer reads and writes 2 x 16 heads x 128 x 2 B = 8,192 B of
    queries and results."""
    for model, seen in ((LOCAL, 1024), (CHUNKED, 9000 - 8192)):
        found = cost(model).attention.decode(1, 8999)
        assert found.bytes == (8 * 9000 + 24 * seen) * 2048 + 32 * 8192
        assert found.flops == (8 * 9000 + 24 * seen) * 4 * 16 * 128


def test_unequal_sequences_read_what_each_sees() -> None:
    """Of 99 and 8,999 tokens a window of 1,024 shows 100 and 1,024, the new ones included; the mean
    of both would show 1,024 twice."""
    found = cost(LOCAL).attention.decode(2, 9098, [99 + 1023])
    assert found.bytes == (8 * 9100 + 24 * 1124) * 2048 + 2 * 32 * 8192
    batch = Batch(2, 9098, seen=(99 + 1023,))
    assert cost(LOCAL).seconds(batch) < cost(LOCAL).seconds(Batch(2, 9098))


@GPUS
@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang"])
@pytest.mark.parametrize("model", [LOCAL, CHUNKED, BOTH], ids=["window", "chunks", "both"])
def test_a_line_is_the_time_of_each_iteration_on_it(
    gpu: GpuSpec, engine: str, model: ModelSpec
) -> None:
    """Whatever binds: launches, the host, short reads or long ones; and it ends where that
    changes."""
    timer = cost(model, gpu, engine)
    for lengths in ([5], [90, 290, 1000, 1020], [16000] * 60, [100] * 250, [40_000, 1, 1]):
        seen = [sum(map(w.seen, lengths)) for w in model.windows]
        rising = [[w.turns(held) for held in lengths] for w in model.windows]
        growing = tuple(sum(t < 10**9 for t in turns) for turns in rising)
        left = min(min(turns) for turns in rising)
        n, held = len(lengths), sum(lengths)
        limit, intercept, slope = timer.windowed_line(
            n, held, WindowReads(tuple(seen), growing, left)
        )
        last = min(left, math.ceil((limit - held) / n) if limit < math.inf else 500, 500) - 1
        for i in {0, 1, last // 2, last} & set(range(last + 1)):
            later = tuple(s + i * more for s, more in zip(seen, growing, strict=True))
            alone = timer.seconds(Batch(n, held + i * n, seen=later))
            assert intercept + slope * (held + i * n) == pytest.approx(alone, rel=1e-12)


@GPUS
@pytest.mark.parametrize("model", [LOCAL, CHUNKED, BOTH], ids=["window", "chunks", "both"])
@pytest.mark.parametrize(
    "batch",
    [
        Batch(1, 0),
        Batch(64, 64 * 5000),
        Batch(0, 0, [Part(700, 0)], 1),
        Batch(0, 0, [Part(5000, 0), Part(10, 0)], 1),
        Batch(33, 33 * 1500, [Part(512, 4096), Part(90, 0)], 1),
    ],
)
def test_operators_add_up(gpu: GpuSpec, model: ModelSpec, batch: Batch) -> None:
    for each in (batch, batch._replace(seen=tuple(w.size // 2 for w in model.windows))):
        parts = sum(float(o.seconds) for o in cost(model, gpu).pass_operators(each))
        assert cost(model, gpu).seconds(each) == pytest.approx(parts, rel=1e-9)


@GPUS
@pytest.mark.parametrize("change", ["sliding_window", "attention_chunk"])
def test_a_window_longer_than_all_changes_nothing(gpu: GpuSpec, change: str) -> None:
    split = windowed((8, {}), (24, {change: 10**6}))
    for batch in (Batch(7, 6300), Batch(9, 9000, [Part(512, 4096), Part(90, 0)], 1)):
        whole = cost(LLAMA, gpu).seconds(batch)
        assert cost(split, gpu).seconds(batch) == pytest.approx(whole, rel=1e-12)


def test_a_prompt_sees_fewer_pairs_through_a_window() -> None:
    """2,000 tokens: 2,001,000 pairs, within 1,024 tokens 524,800 + 976 x 1,024 = 1,524,224, in
    chunks of 1,024 524,800 + 976 x 977 / 2 = 1,001,576."""
    for change, seen in (("sliding_window", 1_524_224), ("attention_chunk", 1_001_576)):
        _, pairs = cost(windowed((32, {change: 1024}))).attention.prefill_seconds(
            [Part(2000, 0)], 0
        )
        assert pairs == seen
        model = windowed((8, {}), (24, {change: 1024}))
        _, mean = cost(model).attention.prefill_seconds([Part(2000, 0)], 0)
        assert mean == pytest.approx((8 * 2_001_000 + 24 * seen) / 32)
        operator = cost(model).attention.prefill([Part(2000, 0)], 0)
        assert operator.flops == pytest.approx(mean * 32 * 4 * 16 * 128)


@GPUS
def test_chunks_are_prompts_of_their_own(gpu: GpuSpec) -> None:
    """3,000 tokens on top of 500, in chunks of 1,024: 524 on 500, twice 1,024, and 428."""
    attention = cost(windowed((32, {"attention_chunk": 1024})), gpu).attention
    parts = [Part(524, 500), Part(1024, 0), Part(1024, 0), Part(428, 0)]
    whole = cost(LLAMA, gpu).attention
    found = attention.prefill_seconds([Part(3000, 500)], 0)
    assert found == pytest.approx(whole.prefill_seconds(parts, 0))


@pytest.mark.parametrize(("tokens", "context"), [(1, 299), (300, 100), (1000, 0), (129, 5000)])
@pytest.mark.parametrize("step", [128, 32, 12.8])
def test_keys_of_tiles(tokens: int, context: int, step: float) -> None:
    """Each tile sees the window of its first row up to its last row."""
    window, tiles = 200, math.ceil(tokens / step)
    edges = [min(i * step, tokens) for i in range(tiles + 1)]
    keys = [min(context + end, window - 1 + end - start) for start, end in pairwise(edges)]
    found = _seen_by_tiles(tokens, context, window, tiles, step)
    assert found == pytest.approx(sum(keys))


def test_work_through_a_window_joins_that_without() -> None:
    """At the length at which the window begins to hide something."""
    (part,) = cost(windowed((32, {"sliding_window": 600})), PROFILED).attention._kinds
    prompts = part._prompts
    assert isinstance(prompts, Prompts)
    for tokens, context in ((600, 0), (88, 512), (1, 599)):
        assert prompts.work(tokens, context, 600) == pytest.approx(prompts.work(tokens, context))
    full, seen = prompts.work(2048, 2048), prompts.work(2048, 2048, 600)
    assert all(mine < theirs for mine, theirs in zip(seen[:3], full[:3], strict=True))


@pytest.mark.parametrize("name", ["windows", "chunks"])
def test_recorded_plans_are_timed_again_from_their_columns(name: str) -> None:
    """Duration, and by how much iterations lengthen, from what is saved of what they see."""
    result = sim.simulate(scenario_of((name,)))
    pool, plans = result.record.pools[0], result.timeseries
    (window,) = pool.deployment.model.windows
    column = f"decode_seen_{'chunk' if window.chunked else 'window'}_{window.size}"
    assert (plans[column] < plans["decode_context"]).sum() > 10
    decodes = plans[(plans["prefill_seqs"] == 0) & (plans["iterations"] == 1)]
    assert len(decodes) > 5
    for row in decodes.to_dict("records"):
        batch = Batch(row["decode_seqs"], row["decode_context"], seen=(row[column],))
        assert pool.cost.seconds(batch) == pytest.approx(row["end_s"] - row["start_s"], rel=1e-9)
    leaps = plans[plans["iterations"] > 1]
    for row in leaps.to_dict("records"):
        seconds = 0.0
        for i in range(row["iterations"]):
            seen = row[column] + i * row[f"{column}_growth"]
            held = row["decode_context"] + i * row["decode_seqs"]
            seconds += pool.cost.seconds(Batch(row["decode_seqs"], held, seen=(seen,)))
        assert seconds == pytest.approx(row["end_s"] - row["start_s"], rel=1e-9)
    busy = float((plans["end_s"] - plans["start_s"]).sum())
    taken = result.record.attribution.by_operator
    assert sum(taken.values()) == pytest.approx(busy, rel=1e-9)
    assert taken["host"] < 1e-9 * busy


def test_flops_of_a_token_leave_out_what_a_window_hides() -> None:
    """8 layers of 4 x 32 heads x 128 = 16,384 FLOP a key see 5,000, 24 of them 1,024."""
    assert LOCAL.attention_flops_per_token(5000) == 16_384 * (8 * 5000 + 24 * 1024)
    assert LOCAL.windows == (Window(1024),)
    assert catalog.model(MODELS / "tiny-chunks").windows == (Window(32, chunked=True),)
    assert np.isclose(LLAMA.attention_flops_per_token(5000), 16_384 * 32 * 5000)


def test_no_profile_has_measured_attention_through_a_window() -> None:
    """Half of the layers: as much is measured as the others take of the time."""
    all_local, half = windowed((32, {"sliding_window": 1024})), windowed(
        (16, {"sliding_window": 10**5}), (16, {})
    )  # fmt: skip
    for batch in (Batch(8, 8 * 4000), Batch(0, 0, [Part(2000, 0)], 1)):
        whole, local, mixed = (
            next(o for o in cost(model, PROFILED).pass_operators(batch) if "attention" in o.name)
            for model in (LLAMA, all_local, half)
        )
        assert (float(whole.measured), float(local.measured)) == (1.0, 0.0)
        assert float(local.error) >= ATTENTION_ERROR > float(whole.error)
        assert float(mixed.measured) == pytest.approx(0.5)
