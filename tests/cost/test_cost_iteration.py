"""One iteration: kernels plus host, and for decodes a line in the context that is the same price.

Engines differ in what the host does while the GPU works: nothing at all (ideal), its part before
each pass (vllm), preparing the next pass meanwhile (overlapped), or launching kernel by kernel
(no CUDA graphs).
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.iteration import Batch, Part
from sim.specs.engine import LAUNCH_QUEUE, EngineSpec
from tests.gpus import data_sheet
from tests.places import FROZEN

VLLM = catalog.engine(FROZEN / "vllm.yaml")
ENGINES = {
    "ideal": catalog.engine("ideal"),
    "vllm": VLLM,
    "layers": dataclasses.replace(VLLM, per_layer=4e-6),
    "overlapped": dataclasses.replace(VLLM, overlapped=True, per_iteration=9e-3),
    "eager": dataclasses.replace(VLLM, cuda_graphs=False, launch=25e-6),
    "eager overlapped": dataclasses.replace(
        VLLM, overlapped=True, cuda_graphs=False, launch=25e-6, per_iteration=8.5e-3
    ),
}
LAYERS = 32  # of llama-3.1-8b


def cost_of(engine: EngineSpec, **changes: str | int) -> CostModel:
    parts = Deployment(catalog.model("llama-3.1-8b"), data_sheet("h100-sxm"), engine)
    return CostModel(dataclasses.replace(parts, **changes))  # type: ignore[arg-type]


COSTS = {name: cost_of(engine) for name, engine in ENGINES.items()}


def expected(
    cost: CostModel, sequences: int, context: int, parts: list[Part], admitted: int
) -> float:
    """Duration from the parts: operators, gaps between layers, launches and host."""
    engine = cost.deployment.engine
    gpu = sum(float(o.seconds) for o in cost.pass_operators(Batch(sequences, context, parts)))
    gpu += engine.per_layer * LAYERS
    if not engine.cuda_graphs:
        gpu = max(gpu, engine.launch * engine.kernels_per_layer * LAYERS)
    host = engine.per_iteration + engine.per_sequence * (sequences + len(parts))
    host += engine.per_new_request * admitted
    return max(gpu, host) if engine.overlapped else gpu + host


def line_time(cost: CostModel, sequences: int, context: int) -> float:
    limit, base, slope = cost.line(sequences, context)
    assert context < limit
    return base + slope * context


def lines(cost: CostModel, sequences: int) -> list[tuple[float, float, float]]:
    """Every line of a batch, found by asking again where each one ends."""
    found = [cost.line(sequences, 0)]
    while found[-1][0] != math.inf:
        found.append(cost.line(sequences, math.ceil(found[-1][0])))
    return found


@pytest.mark.parametrize("name", ENGINES)
@given(
    sequences=st.integers(1, 1024),
    each=st.integers(1, 400) | st.integers(1, 30_000),
    extra=st.integers(0, 500),
)
def test_the_line_is_the_sum_of_the_operators_and_the_host(
    name: str, sequences: int, each: int, extra: int
) -> None:
    cost, context = COSTS[name], sequences * each + extra
    price = line_time(cost, sequences, context)
    assert price == pytest.approx(expected(cost, sequences, context, [], 0), rel=1e-9)


@pytest.mark.parametrize("name", ENGINES)
@given(sequences=st.integers(1, 1024))
def test_lines_ascend_and_join(name: str, sequences: int) -> None:
    found = lines(COSTS[name], sequences)
    limits = [limit for limit, _, _ in found]
    assert limits == sorted(set(limits))
    for (limit, base, slope), (_, next_base, next_slope) in pairwise(found):
        assert base + slope * limit == pytest.approx(next_base + next_slope * limit, rel=1e-9)
        assert slope == 0 or next_slope > 0  # flat before it rises, never after
    assert found[-1][2] > 0
    if name in ("ideal", "vllm", "layers"):  # no other bend than that of decode attention
        attention = COSTS[name].attention.decode_lines(sequences)
        assert [(limit, slope) for limit, _, slope in found] == [
            (limit, slope) for limit, _, slope in attention
        ]


@pytest.mark.parametrize("name", ENGINES)
@given(
    sequences=st.integers(1, 1024),
    each=st.integers(1, 400) | st.integers(1, 30_000),
    more=st.integers(1, 500),
)
def test_more_context_and_more_sequences_never_cost_less(
    name: str, sequences: int, each: int, more: int
) -> None:
    cost, context = COSTS[name], sequences * each
    price = line_time(cost, sequences, context)
    assert line_time(cost, sequences, context + more) >= price * (1 - 1e-12)
    assert line_time(cost, sequences + 1, context) >= price * (1 - 1e-12)
    assert line_time(cost, sequences + 1, context + each) >= price * (1 - 1e-12)


def test_lines_of_each_engine_by_hand() -> None:
    """64 sequences of Llama-3.1-8B on an H100: decode attention takes 0.848485 ms up to 11,100.5
    tokens and 43.4733 ns for each beyond. Everything else of the pass is the same at any context.

    vLLM adds 0.3 ms + 64 x 20 us = 1.58 ms; the bend stays where it is. Overlapped, the host's
    9 ms + 64 x 20 us = 10.28 ms hide all of the kernels until they take as long; launches alone
    (25 us x 10 x 32 = 8 ms) do so until the kernels take 8 ms, and the host is added.
    """
    operators = COSTS["ideal"].pass_operators(Batch(64, 0))
    rest = sum(float(o.seconds) for o in operators if o.name != "decode attention")
    bend, flat, rise = 11_100.5, 0.848485e-3, 43.4733e-9
    assert 5e-3 < rest + flat < 8e-3
    for name, host in (("ideal", 0.0), ("vllm", 1.58e-3)):
        level, rising = lines(COSTS[name], 64)
        assert level == pytest.approx((bend, rest + flat + host, 0.0), rel=1e-5)
        assert rising[1] == pytest.approx(rest + flat + host - rise * bend, rel=1e-5)
        assert rising[2] == pytest.approx(rise, rel=1e-5)
    for name, floor, host in (("overlapped", 10.28e-3, 0.0), ("eager", 8e-3, 1.58e-3)):
        *levels, rising = lines(COSTS[name], 64)
        assert [line[1:] for line in levels] == [(pytest.approx(floor + host), 0.0)] * len(levels)
        assert levels[-1][0] == pytest.approx(bend + (floor - rest - flat) / rise, rel=1e-5)
        assert rising[2] == pytest.approx(rise, rel=1e-5)
        beyond = levels[-1][0] + 10_000
        assert rising[1] + rising[2] * beyond == pytest.approx(floor + host + rise * 1e4)


@pytest.mark.parametrize("factor", [0.9, 1 - 1e-12, 1.0, 1 + 1e-12, 1.01, 1.2])
def test_launches_about_as_long_as_short_contexts_leave_no_gap(factor: float) -> None:
    """10 x 32 launches in 0.9 to 1.2 times the 7.15 ms that 64 short contexts take."""
    kernels = lines(COSTS["ideal"], 64)[0][1]
    launch = factor * kernels / 320
    cost = cost_of(dataclasses.replace(VLLM, cuda_graphs=False, launch=launch))
    for context in (0, 64, 6400, 11_099, 11_100, 11_101, 12_000, 40_000, 10**6):
        price = line_time(cost, 64, context)
        assert price == pytest.approx(expected(cost, 64, context, [], 0), rel=1e-9)


def test_an_overlapped_host_hides_until_the_kernels_are_longer() -> None:
    """Host of 9 ms and 20 us a sequence: for 4 sequences 9.08 ms, flat while kernels take less."""
    cost = COSTS["overlapped"]
    found = lines(cost, 4)
    assert found[0][1:] == (pytest.approx(9.08e-3), 0.0)
    kernels = sum(float(o.seconds) for o in cost.pass_operators(Batch(4, 400)))
    assert kernels < 9.08e-3
    assert line_time(cost, 4, 400) == pytest.approx(9.08e-3)
    context = 4 * 100_000
    kernels = sum(float(o.seconds) for o in cost.pass_operators(Batch(4, context)))
    assert kernels > 9.08e-3
    assert line_time(cost, 4, context) == pytest.approx(kernels)


def test_launches_without_graphs_set_a_floor() -> None:
    """25 us x 10 kernels x 32 layers = 8 ms, and then 0.3 ms + 20 us of host."""
    cost = COSTS["eager"]
    assert cost.line(1, 100)[1:] == (pytest.approx(8e-3 + 0.32e-3), 0.0)
    rising = [slope > 0 for _, _, slope in lines(cost, 1)]
    assert rising == sorted(rising)
    assert rising[-1]


def test_with_graphs_launches_are_free() -> None:
    slower = cost_of(dataclasses.replace(VLLM, launch=1.0))
    assert line_time(slower, 8, 800) == line_time(COSTS["vllm"], 8, 800)


@pytest.mark.parametrize("name", ENGINES)
@given(
    sequences=st.integers(0, 300),
    each=st.integers(1, 5000),
    prompts=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 9000)), min_size=1, max_size=4),
    data=st.data(),
)
def test_an_iteration_with_prefills_is_the_sum_of_its_parts(
    name: str,
    sequences: int,
    each: int,
    prompts: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    cost = COSTS[name]
    admitted = data.draw(st.integers(0, len(prompts)))
    parts = [Part(tokens, context) for tokens, context in prompts]
    duration, prefill, pairs = cost.iteration(sequences, sequences * each, parts, admitted)
    whole = expected(cost, sequences, sequences * each, parts, admitted)
    assert duration == pytest.approx(whole, rel=1e-9)
    assert (prefill, pairs) == cost.attention.prefill_seconds(parts, sequences)
    assert pairs == sum(t * c + t * (t + 1) / 2 for t, c in prompts)


def test_host_time_of_vllm_by_hand() -> None:
    """0.3 ms + 20 us x (8 decodes + 2 prompts) + 0.7 ms x 2 newcomers = 1.9 ms."""
    parts = [Part(100, 0), Part(200, 0)]
    with_host = COSTS["vllm"].iteration(8, 4000, parts, 2)[0]
    without = COSTS["ideal"].iteration(8, 4000, parts, 2)[0]
    assert with_host - without == pytest.approx(1.9e-3)


def test_prompts_launched_call_by_call_set_a_floor_of_their_own() -> None:
    """25 us x 10 x 32 layers = 8 ms for the shortest prompt; a decode is replayed from a graph."""
    eager = cost_of(dataclasses.replace(VLLM, eager_prefill=True, launch=25e-6))
    host = 0.3e-3 + 20e-6 + 0.7e-3
    assert eager.iteration(0, 0, [Part(16, 0)], 1)[0] == pytest.approx(8e-3 + host)
    assert eager.line(1, 100) == COSTS["vllm"].line(1, 100)
    long = [Part(8000, 0)]
    assert eager.iteration(0, 0, long, 1) == COSTS["vllm"].iteration(0, 0, long, 1)


def test_the_host_is_launching_until_its_last_launches_may_wait_for_the_gpu() -> None:
    """3,200 kernels of 10 us: 32 ms, but the GPU has all but the last 1,000 behind it before, and
    no iteration is launched for longer than it runs."""
    engine = dataclasses.replace(
        VLLM, launches_first=True, eager_prefill=True, launch=10e-6, kernels_per_layer=100
    )
    cost = cost_of(engine)
    assert cost.launched(1.0) == pytest.approx(1 - LAUNCH_QUEUE / 3200)
    assert cost.launched(0.04) == pytest.approx(0.032)
    assert cost.launched(0.01) == 0.01
    assert cost_of(dataclasses.replace(engine, launches_first=False)).launched(1.0) == 0


def test_the_last_token_of_a_prompt_that_came_over_a_link_is_replayed_as_a_decode_is() -> None:
    eager = cost_of(dataclasses.replace(VLLM, eager_prefill=True, launch=25e-6))
    arrived = [Part(1, 4000)]
    assert eager.iteration(8, 4000, arrived, 1) == COSTS["vllm"].iteration(8, 4000, arrived, 1)
    both = [Part(1, 4000), Part(2, 0)]
    assert eager.iteration(0, 0, both, 2)[0] >= 8e-3


def test_a_front_end_that_streams_token_by_token_caps_the_rate() -> None:
    """100 us a token: 256 sequences take 25.6 ms at least, however fast the kernels are."""
    slow = cost_of(dataclasses.replace(VLLM, per_streamed_token=100e-6))
    assert line_time(slow, 256, 2560) == pytest.approx(25.6e-3)
    assert slow.iteration(255, 2550, [Part(16, 0)], 1)[0] == pytest.approx(25.6e-3)
    long = 256 * 4000
    assert line_time(slow, 256, long) == line_time(COSTS["vllm"], 256, long) > 25.6e-3


def test_prefill_attention_beside_decodes_pays_no_floor_of_its_own() -> None:
    """11 us x 32 layers = 0.352 ms, once in a pass, whoever is in it."""
    cost = COSTS["ideal"]
    alone = cost.iteration(0, 0, [Part(512, 0)], 0)[1]
    assert alone - cost.iteration(1, 9000, [Part(512, 0)], 0)[1] == pytest.approx(0.352e-3)
    for sequences in (0, 1, 64):
        passed = cost.pass_operators(Batch(sequences, 9000 * sequences, [Part(512, 0), Part(8, 0)]))
        floors = [float(o.latency) for o in passed if "attention" in o.name]
        assert sum(floors) == pytest.approx(0.352e-3)


def test_decode_beside_a_prefill_shares_the_weights() -> None:
    """One mixed iteration takes less than the decode and the prefill apart."""
    cost = COSTS["ideal"]
    mixed = cost.iteration(32, 32_000, [Part(512, 0)], 0)[0]
    apart = line_time(cost, 32, 32_000) + cost.iteration(0, 0, [Part(512, 0)], 0)[0]
    assert line_time(cost, 32, 32_000) < mixed < apart


def test_a_batch_amortises_the_weights_but_not_the_kv() -> None:
    """Time per token falls with the batch, in the end to that of its own KV and arithmetic."""
    cost = COSTS["vllm"]
    batches = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    each = [line_time(cost, batch, 1000 * batch) / batch for batch in batches]
    assert each == sorted(each, reverse=True)
    assert each[0] / each[-1] > 50
    kv = cost.deployment.kv_bytes_per_token() * 1000
    assert each[-1] > kv / cost.deployment.gpu.bandwidth


def test_time_per_token_of_a_known_case() -> None:
    """Llama-3.1-8B in bf16 on one H100, batch 1: 15.0 GB are read a token (all weights but the
    embedding table), which takes 4.5 ms at 3.35 TB/s; engines measure 6.5 to 8.5 ms."""
    assert 6.5e-3 < line_time(COSTS["vllm"], 1, 1000) < 8.5e-3


def test_prices_do_not_depend_on_what_was_asked_before() -> None:
    fresh, used = cost_of(VLLM), cost_of(VLLM)
    for tokens in (5000, 3, 20_000):
        used.iteration(7, 900, [Part(tokens, 0)], 1)
    assert used.iteration(7, 900, [Part(64, 0)], 1) == fresh.iteration(7, 900, [Part(64, 0)], 1)
    assert used.line(7, 900) == fresh.line(7, 900)


def test_fp8_kv_makes_context_cheaper_and_nothing_else_of_a_decode() -> None:
    wide, narrow = COSTS["vllm"], cost_of(VLLM, kv_cache="fp8")
    far = 64 * 100_000
    assert narrow.line(64, far)[2] == pytest.approx(wide.line(64, far)[2] / 2)
    differing = [
        a.name
        for a, b in zip(
            wide.pass_operators(Batch(64, far)), narrow.pass_operators(Batch(64, far)), strict=True
        )
        if a.seconds != b.seconds
    ]
    assert differing == ["rotary, KV write", "decode attention"]


def columns_of(cost: CostModel, batches: list[Batch]) -> dict[str, float]:
    """Seconds of each operator in all of ``batches``, by way of columns."""
    found = cost.operators(cost.columns(batches))
    return {ran.operator.name: ran.total(ran.operator.seconds) for ran in found}


BATCHES = [
    Batch(0, 0, [Part(700, 0)], 1),
    Batch(3, 4000),
    Batch(3, 9000, [Part(64, 0), Part(100, 300)], 1),
    Batch(17, 4000),
]


@pytest.mark.parametrize("name", COSTS)
def test_many_passes_at_once_are_the_sum_of_each(name: str) -> None:
    cost = COSTS[name]
    expected: dict[str, float] = defaultdict(float)
    for batch in BATCHES:
        for operator in cost.pass_operators(batch):
            expected[operator.name] += float(operator.seconds)
    assert columns_of(cost, BATCHES) == pytest.approx(dict(expected), rel=1e-9)


def test_each_pass_has_its_own_row_whatever_passes_are_alike() -> None:
    cost = COSTS["vllm"]
    batches = [*BATCHES, BATCHES[1]]
    rows = [0.0] * len(batches)
    for ran in cost.operators(cost.columns(batches), each=True):
        rows = [row + x for row, x in zip(rows, ran.each(ran.operator.flops), strict=True)]
    alone = [sum(float(o.flops) for o in cost.pass_operators(batch)) for batch in batches]
    assert rows == pytest.approx(alone, rel=1e-12)


def test_nothing_takes_no_time_and_what_decodes_alone_is_a_line() -> None:
    cost = COSTS["vllm"]
    assert cost.seconds(Batch(0, 0)) == 0.0
    assert cost.seconds(Batch(4, 400)) == line_time(cost, 4, 400)
    mixed = Batch(4, 400, [Part(16, 0)], 1)
    assert cost.seconds(mixed) == cost.iteration(*mixed)[0] > cost.seconds(Batch(4, 400))
