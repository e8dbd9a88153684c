"""Attention: KV bytes from KV heads, FLOPs from query heads, lines in the context that join.

A token of KV on one GPU is 2 (key and value) x KV heads x head size x bytes a layer. A decoding
sequence reads the KV it holds and that of its new token, its query, and writes its result. On top
of a floor, a layer takes as long as the reading or, with short contexts, as the SMs are busy with
so many sequences and KV heads.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.operators import Prefills
from sim.cost.parts.grouped_query import PREFILL_SHARES, prefill_share
from sim.cost.passes import GroupAttention
from sim.iteration import Part
from sim.specs.gpu import GpuSpec
from sim.specs.layout import Layout
from tests.gpus import data_sheet

IDEAL = catalog.engine("ideal")
GPUS = catalog.names("gpus")
H100 = data_sheet("h100-sxm")
H100_FLOOR = 32 * 11e-6  # s, of a pass through 32 layers
UNBUSY = dataclasses.replace(H100, attention=dataclasses.replace(H100.attention, unit=0.0))
"""Its SMs do any number of sequences at no cost of their own: bandwidth binds from the start."""
SLOW = dataclasses.replace(H100, peak_flops={"bf16": 1e13})
"""A hundredth of the arithmetic: it binds before the bandwidth where heads share KV heads."""


def deploy(
    model: str = "llama-3.1-8b",
    gpu: str | GpuSpec = "h100-sxm",
    kv_cache: str = "bf16",
    tensor_parallel: int = 1,
) -> Deployment:
    part = data_sheet(gpu) if isinstance(gpu, str) else gpu
    return Deployment(
        catalog.model(model), part, IDEAL, "bf16", "bf16", kv_cache, Layout(tensor_parallel)
    )


def attention(
    model: str = "llama-3.1-8b",
    gpu: str | GpuSpec = "h100-sxm",
    kv_cache: str = "bf16",
    tensor_parallel: int = 1,
) -> GroupAttention:
    return CostModel(deploy(model, gpu, kv_cache, tensor_parallel)).attention


def line_at(lines: list[tuple[float, float, float]], context: float) -> float:
    return next(base + slope * context for limit, base, slope in lines if context < limit)


# -- bytes and FLOP ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "sequences", "context", "traffic", "flops"),
    [
        ("llama-2-7b", 1, 512, 269_484_032, 268_959_744),
        ("llama-2-7b", 32, 32 * 512, 8_623_489_024, 8_606_711_808),
        ("llama-3.1-8b", 1, 512, 67_764_224, 268_959_744),
        ("llama-3.1-8b", 32, 32 * 512, 2_168_455_168, 8_606_711_808),
    ],
)
def test_decode_by_hand(model: str, sequences: int, context: int, traffic: int, flops: int) -> None:
    """Sequences that hold 512 tokens each; 32 layers, 16 bits.

    Llama-2-7B, one sequence: 513 tokens x 2 x 4,096 x 2 B = 8,404,992, query and result
    2 x 4,096 x 2 B = 16,384: 8,421,376 a layer, x 32 = 269,484,032 bytes. FLOP: scores and values,
    4 x 4,096 x 513 x 32 = 268,959,744. A batch of 32 does 32 times that: nothing is shared.
    Llama-3.1-8B: KV of 8 heads, not of the 32 query heads: 513 x 2 x 1,024 x 2 B = 2,101,248,
    + 16,384 = 2,117,632, x 32 = 67,764,224 bytes, and the same FLOP.
    """
    found = attention(model).decode(sequences, context)
    assert found.bytes == traffic
    assert found.flops == flops
    assert not found.per_batch


def test_kv_traffic_follows_kv_heads_not_query_heads() -> None:
    """32 against 8 KV heads: 4 times the KV bytes for the same FLOP, query and result apart."""
    multi, grouped = attention("llama-2-7b").decode(1, 4095), attention().decode(1, 4095)
    own = 16_384 * 32  # query and result
    assert multi.bytes - own == 4 * (float(grouped.bytes) - own)
    assert multi.flops == grouped.flops


def test_fp8_halves_kv_bytes() -> None:
    own = 16_384 * 32
    wide, narrow = attention().decode(8, 8000), attention(kv_cache="fp8").decode(8, 8000)
    assert float(narrow.bytes) - 8 * own == (float(wide.bytes) - 8 * own) / 2
    assert narrow.flops == wide.flops
    assert narrow.seconds < wide.seconds


def test_two_gpus_share_kv_heads() -> None:
    """Each reads 4 of 8 KV heads and computes 16 of 32 query heads."""
    one, two = attention().decode(32, 16_384), attention(tensor_parallel=2).decode(32, 16_384)
    assert 2 * float(two.bytes) == one.bytes
    assert 2 * float(two.flops) == one.flops
    assert float(one.seconds) / 2 < float(two.seconds) < float(one.seconds)


def test_beyond_the_kv_heads_nothing_is_saved() -> None:
    """8 KV heads on 16 GPUs: each holds a whole head, as on 8 GPUs."""
    eight, sixteen = attention(tensor_parallel=8), attention(tensor_parallel=16)
    own = 2 * 2 * 32 * 128  # bytes of query and result, a query head
    eight_kv = float(eight.decode(1, 4000).bytes) - 4 * own
    assert float(sixteen.decode(1, 4000).bytes) - 2 * own == eight_kv


@pytest.mark.parametrize(
    ("model", "traffic"), [("llama-2-7b", 536_870_912), ("llama-3.1-8b", 335_544_320)]
)
def test_prefill_by_hand(model: str, traffic: int) -> None:
    """A prompt of 512: causal pairs 512 x 513 / 2 = 131,328 a layer and head group.

    FLOP: 4 x 4,096 x 131,328 x 32 = 68,853,694,464 in both models. Bytes of Llama-2-7B:
    512 x (16,384 KV + 16,384 query and result) x 32 = 536,870,912; of Llama-3.1-8B
    512 x (4,096 + 16,384) x 32 = 335,544,320.
    """
    found = attention(model).prefill([Part(512, 0)], 0)
    assert found.flops == 68_853_694_464
    assert found.bytes == traffic
    seconds, pairs = attention(model).prefill_seconds([Part(512, 0)], 0)
    assert pairs == 131_328
    assert found.seconds == pytest.approx(seconds)


def test_a_chunk_sees_its_context() -> None:
    """256 tokens on top of 1,000: 256 x 1,000 + 256 x 257 / 2 = 288,896 pairs."""
    _, pairs = attention().prefill_seconds([Part(256, 1000)], 0)
    assert pairs == 288_896


@settings(deadline=None)
@given(parts=st.lists(st.integers(1, 700), min_size=1, max_size=6))
def test_chunks_of_a_prompt_see_the_same_pairs_as_the_whole(parts: list[int]) -> None:
    model, seen, done = attention(), 0.0, 0
    for part in parts:
        seen += model.prefill_seconds([Part(part, done)], 0)[1]
        done += part
    assert seen == model.prefill_seconds([Part(done, 0)], 0)[1] == done * (done + 1) / 2


# -- time of a prefill ---------------------------------------------------------------------------


def test_the_share_of_the_peak_is_interpolated() -> None:
    """Entries at 64, 128, ... keys; half way in the logarithm is half way in the share; outside,
    the first and the last entry hold."""
    for index, share in enumerate(PREFILL_SHARES):
        assert prefill_share(64 * 2**index) == pytest.approx(share)
    for index, (low, high) in enumerate(pairwise(PREFILL_SHARES)):
        assert prefill_share(64 * 2 ** (index + 0.5)) == pytest.approx((low + high) / 2)
    assert prefill_share(1) == prefill_share(63.9) == PREFILL_SHARES[0]
    assert prefill_share(8192) == prefill_share(1e9) == PREFILL_SHARES[-1]


@settings(deadline=None)
@given(st.floats(1, 1e7), st.floats(1, 10))
def test_the_share_never_falls(keys: float, factor: float) -> None:
    low, high = prefill_share(keys), prefill_share(keys * factor)
    assert 0 < low <= high + 1e-12 <= 1


@pytest.mark.parametrize(
    ("decoding", "seconds", "latency"), [(0, 727.51e-6, 352e-6), (5, 375.51e-6, 0.0)]
)
def test_time_of_a_prompt_by_hand(decoding: int, seconds: float, latency: float) -> None:
    """512 tokens of Llama-3.1-8B on an H100: 4 x 4,096 x 131,328 = 2,151,677,952 FLOP a layer.

    A query sees 256.5 keys on average, log2(256.5 / 256) = 0.00281 beyond the third share:
    0.185 + 0.00281 x 0.114 = 0.18532 of 989.4e12 FLOP/s, 11.735 us (the 10,485,760 bytes of a layer
    take 3.48 us). Alone, the floor of 11 us comes on top: 32 x 22.735 us. Beside decoding sequences
    the floor is theirs: 32 x 11.735 us.
    """
    found = attention().prefill([Part(512, 0)], decoding)
    assert found.seconds == pytest.approx(seconds, rel=1e-4)
    assert found.latency == pytest.approx(latency)
    assert found.compute == pytest.approx(375.51e-6, rel=1e-4)
    assert found.memory == pytest.approx(32 * 10_485_760 / 3.015e12)
    assert found.bound == "compute"


def test_decodes_and_prompts_of_one_pass_pay_one_floor() -> None:
    model, chunks = attention(), [Part(300, 0), Part(40, 900)]
    alone, pairs = model.prefill_seconds(chunks, 0)
    for sequences in (1, 64):
        beside, same_pairs = model.prefill_seconds(chunks, sequences)
        assert alone - beside == pytest.approx(H100_FLOOR)
        assert same_pairs == pairs
        both = model.decode(sequences, 9000 * sequences), model.prefill(chunks, sequences)
        assert sum(float(o.latency) for o in both) == pytest.approx(H100_FLOOR)


def test_floors_of_many_passes() -> None:
    """10 ms of prefill attention in 7 passes of its own: 7 x 352 us of it are floors."""
    found = attention().prefill_operator(Prefills(10e-3, 1e6, 5000.0, 5000.0, 7.0, 1.0))
    assert found.latency == pytest.approx(7 * H100_FLOOR)
    assert found.seconds == pytest.approx(10e-3)
    assert found.compute == pytest.approx(10e-3 - 7 * H100_FLOOR)


@pytest.mark.parametrize("model", ["llama-2-7b", "llama-3.1-8b"])
def test_a_chunk_of_one_token_reads_its_context_as_a_decode_does(model: str) -> None:
    """The last token of a long prompt: 8,192 keys are read for little arithmetic."""
    prefill = attention(model).prefill([Part(1, 8192)], 0)
    decode = attention(model).decode(1, 8192)
    assert prefill.seconds == pytest.approx(float(decode.seconds))
    assert prefill.bytes == decode.bytes
    assert prefill.flops == decode.flops


def test_h200_reaches_the_measured_rates() -> None:
    """Causal attention of 32 heads of 128 without a floor: 95, 296 and 527 TFLOP/s at prompts of
    256, 1,024 and 4,096 tokens."""
    d = deploy(gpu="h200-sxm")
    latency = 32 * d.gpu.attention.floor
    for tokens, rate in ((256, 95e12), (1024, 296e12), (4096, 527e12)):
        found = CostModel(d).attention.prefill([Part(tokens, 0)], 0)
        reached = float(found.flops) / (float(found.seconds) - latency)
        assert reached == pytest.approx(rate, rel=0.02)


def test_long_prompts_approach_the_plateau() -> None:
    """At 128k tokens floors do not count: the last share of the peak, and time grows with the
    square of the length."""
    d = deploy()
    shares = []
    for tokens in (2048, 8192, 32_768, 131_072):
        found = CostModel(d).attention.prefill([Part(tokens, 0)], 0)
        shares.append(float(found.flops) / float(found.seconds) / d.gpu.flops("bf16"))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(PREFILL_SHARES[-1], rel=0.01)


@settings(deadline=None)
@given(tokens=st.integers(1, 8192), context=st.integers(1, 100_000))
def test_a_chunk_over_context_is_no_less_efficient_per_pair(tokens: int, context: int) -> None:
    model = attention()
    latency = model.prefill_seconds([], 0)[0]
    alone, alone_pairs = model.prefill_seconds([Part(tokens, 0)], 0)
    later, later_pairs = model.prefill_seconds([Part(tokens, context)], 0)
    assert later_pairs > alone_pairs
    assert (later - latency) / later_pairs <= (alone - latency) / alone_pairs * (1 + 1e-12)


@settings(deadline=None)
@given(tokens=st.integers(2, 8192), context=st.integers(0, 50_000), cut=st.floats(0, 1))
def test_one_chunk_costs_no_more_than_two(tokens: int, context: int, cut: float) -> None:
    """Cutting a prompt reads its KV once more and cannot save arithmetic. Without floors a short
    prompt may gain, as its second half sees more keys, but less than 3 us a layer."""
    model = attention()
    first = min(max(1, int(cut * tokens)), tokens - 1)
    whole = model.prefill_seconds([Part(tokens, context)], 1)[0]
    parts = model.prefill_seconds([Part(first, context)], 1)[0]
    parts += model.prefill_seconds([Part(tokens - first, context + first)], 1)[0]
    assert whole <= parts * (1 + 1e-9) + 32 * 3e-6


def test_prompts_of_one_pass_add_up_but_share_the_floor() -> None:
    model = attention()
    floor = model.prefill_seconds([], 0)[0]
    one, two = (model.prefill_seconds([Part(n, 0)], 0)[0] for n in (300, 900))
    both, pairs = model.prefill_seconds([Part(300, 0), Part(900, 0)], 0)
    assert both == pytest.approx(one + two - floor)
    assert pairs == 300 * 301 / 2 + 900 * 901 / 2


# -- time of a decode ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "sequences", "each", "seconds", "bound"),
    [
        ("llama-2-7b", 64, 100, 2.33794e-3, "latency"),
        ("llama-2-7b", 64, 1000, 11.5034e-3, "memory"),
        ("llama-2-7b", 1, 4000, 1.04792e-3, "memory"),
        ("llama-3.1-8b", 64, 100, 0.848485e-3, "latency"),
        ("llama-3.1-8b", 64, 1000, 3.14820e-3, "memory"),
        ("llama-3.1-8b", 1, 4000, 0.526110e-3, "latency"),
    ],
)
def test_time_of_a_decode_by_hand(
    model: str, sequences: int, each: int, seconds: float, bound: str
) -> None:
    """H100: floor 11 us, 0.90 of 3.35 TB/s = 3.015 TB/s, 4 us of one of 132 SMs for a sequence's KV
    head; 32 layers. A token of KV is 16,384 bytes in Llama-2-7B (32 KV heads) and 4,096 in
    Llama-3.1-8B (8); query and result are 16,384 a sequence in both.

    Llama-2-7B. 64 sequences of 100: SMs 64 x 32 x 4 us / 132 = 62.0606 us; bytes
    64 x (101 x 16,384 + 16,384) = 106,954,752 take 35.4742 us. SMs bind: 73.0606 us a layer,
    2.33794 ms. Of 1,000: the same 62.0606 us; 64 x 1,002 x 16,384 = 1,050,673,152 bytes take
    348.482 us. Bandwidth binds: 359.482 us, 11.5034 ms. One of 4,000: 4,002 x 16,384 = 65,568,768
    bytes, 21.7475 us, against 0.97 us: 32.7475 us, 1.04792 ms.

    Llama-3.1-8B. 64 of 100: 64 x 8 x 4 us / 132 = 15.5152 us; 64 x (101 x 4,096 + 16,384) =
    27,525,120 bytes, 9.12939 us. SMs: 26.5152 us, 0.848485 ms. Of 1,000: 64 x 4,116,480 =
    263,454,720 bytes, 87.3813 us: 98.3813 us, 3.14820 ms. One of 4,000: 16,404,480 bytes,
    5.44096 us against 0.24 us, and less than the floor: 16.4410 us, 0.526110 ms.
    """
    found = attention(model).decode(sequences, sequences * each)
    assert found.seconds == pytest.approx(seconds, rel=1e-5)
    assert found.bound == bound
    lines = attention(model).decode_lines(sequences)
    assert line_at(lines, sequences * each) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize(
    ("model", "limit", "flat", "rise"),
    [
        ("llama-2-7b", 11_292.5, 2.33794e-3, 173.893e-9),
        ("llama-3.1-8b", 11_100.5, 0.848485e-3, 43.4733e-9),
    ],
)
def test_lines_by_hand(model: str, limit: float, flat: float, rise: float) -> None:
    """64 sequences on an H100: flat as long as SMs bind, then a slope, the bytes of a token.

    Llama-2-7B: a token takes 16,384 B / 3.015e12 = 5.43416 ns a layer, 173.893 ns a pass. Query,
    result and new token of 64 take 64 x 2 x 5.43416 = 695.573 ns a layer, the SMs 62,060.6 ns: they
    bind for 61,365.0 / 5.43416 = 11,292.5 tokens, 176 a sequence. Llama-3.1-8B: 4,096 B, 1.35854 ns
    and 43.4733 ns; 64 x (1.35854 + 5.43416) = 434.733 ns; (15,515.15 - 434.73) / 1.35854 =
    11,100.5 tokens, 173 a sequence.
    """
    level, rising = attention(model).decode_lines(64)
    assert level == (pytest.approx(limit, rel=1e-5), pytest.approx(flat, rel=1e-5), 0.0)
    assert rising[0] == math.inf
    assert rising[2] == pytest.approx(rise, rel=1e-5)
    assert rising[1] + rising[2] * limit == pytest.approx(flat, rel=1e-5)


def test_without_work_of_the_sms_bandwidth_binds_from_the_start() -> None:
    """64 of 100 of Llama-3.1-8B: 11 + 9.12939 us a layer, one line."""
    model = attention(gpu=UNBUSY)
    assert len(model.decode_lines(64)) == 1
    assert line_at(model.decode_lines(64), 6400) == pytest.approx(32 * 20.12939e-6, rel=1e-6)


def test_where_arithmetic_is_the_longer_part_it_sets_the_slope() -> None:
    """10 TFLOP/s, of which 0.80: Llama-3.1-8B takes 4 x 4,096 FLOP / 8e12 = 2.048 ns a token and
    layer, its KV 1.35854 ns. One sequence of 9,999: 11 us + 10,000 x 2.048 ns + 5.434 ns of query
    and result, x 32 = 1.007534 ms."""
    model = attention(gpu=SLOW)
    assert model.decode_lines(1)[-1][2] == pytest.approx(32 * 2.048e-9)
    found = model.decode(1, 9999)
    assert found.seconds == pytest.approx(1.007534e-3, rel=1e-6)
    assert found.bound == "compute"


@pytest.mark.parametrize("model", ["llama-2-7b", "llama-3.1-8b"])
@pytest.mark.parametrize("sequences", [1, 7, 300])
def test_the_bend_lies_at_the_same_context_of_each_sequence(model: str, sequences: int) -> None:
    """Both parts grow with the sequences, and two GPUs halve both. fp8 KV halves the bytes of a
    token and leaves the SMs' work, which then binds up to twice as many, the new ones counted."""
    alone = attention(model).decode_lines(1)[0][0]
    assert attention(model).decode_lines(sequences)[0][0] == pytest.approx(sequences * alone)
    shared = attention(model, tensor_parallel=2).decode_lines(sequences)[0][0]
    assert shared == pytest.approx(sequences * alone)
    narrow = attention(model, kv_cache="fp8").decode_lines(sequences)
    assert narrow[0][0] + sequences == pytest.approx(2 * sequences * (alone + 1))
    assert narrow[0][1] == attention(model).decode_lines(sequences)[0][1]


deployments = st.builds(
    attention,
    model=st.sampled_from(["llama-2-7b", "llama-3.1-8b", "llama-3.1-70b"]),
    gpu=st.sampled_from([*GPUS, UNBUSY, SLOW]),
    kv_cache=st.sampled_from(["bf16", "fp8"]),
    tensor_parallel=st.sampled_from([1, 2, 8, 16]),
)
contexts = st.integers(1, 400) | st.integers(1, 130_000)


@settings(deadline=None)
@given(model=deployments, sequences=st.integers(1, 4096))
def test_lines_ascend_rise_and_join(model: GroupAttention, sequences: int) -> None:
    """At most a flat one, and then one that rises without end."""
    lines = model.decode_lines(sequences)
    limits = [limit for limit, _, _ in lines]
    assert limits == sorted(set(limits))
    assert limits[0] > 0
    assert limits[-1] == math.inf
    slopes = [slope for _, _, slope in lines]
    assert slopes[:-1] in ([], [0.0])
    assert slopes[-1] > 0
    for (limit, base, slope), (_, next_base, next_slope) in pairwise(lines):
        assert base + slope * limit == pytest.approx(next_base + next_slope * limit, rel=1e-9)


@settings(deadline=None)
@given(model=deployments, sequences=st.integers(1, 2048), each=contexts)
def test_lines_are_the_price_of_the_operator(
    model: GroupAttention, sequences: int, each: int
) -> None:
    context = sequences * each
    price = line_at(model.decode_lines(sequences), context)
    assert price == pytest.approx(float(model.decode(sequences, context).seconds), rel=1e-9)


@settings(deadline=None)
@given(model=deployments, sequences=st.integers(1, 512), each=contexts)
def test_more_context_and_more_sequences_cost_more(
    model: GroupAttention, sequences: int, each: int
) -> None:
    """More of either, or of both; a token more of context is free only where SMs bind."""
    context = sequences * each
    base = float(model.decode(sequences, context).seconds)
    longer = float(model.decode(sequences, context + 1).seconds)
    bends = [limit for limit, _, slope in model.decode_lines(sequences) if slope == 0]
    if bends and context + 1 < bends[0]:
        assert longer == pytest.approx(base, rel=1e-12)
    elif not bends or context >= bends[0]:
        assert longer > base
    assert longer >= base * (1 - 1e-12)
    assert float(model.decode(sequences + 1, context).seconds) > base
    assert float(model.decode(sequences + 1, context + each).seconds) > base


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", ["llama-2-7b", "llama-3.1-8b", "llama-3.1-70b"])
def test_decode_reads_at_most_at_the_peak_bandwidth(gpu: str, model: str) -> None:
    """Over all of a GPU's memory, and computes at most at the peak rate."""
    d = deploy(model, gpu)
    longest = int(d.gpu.memory / d.kv_bytes_per_token())
    for context in np.geomspace(1, longest, 40).astype(int):
        o = CostModel(d).attention.decode(1, int(context))
        assert float(o.seconds) * d.gpu.bandwidth >= float(o.bytes)
        assert float(o.seconds) * d.gpu.flops("bf16") >= float(o.flops)


@pytest.mark.parametrize("gpu", GPUS)
def test_long_contexts_read_at_most_of_the_bandwidth(gpu: str) -> None:
    """A GB of KV a layer: between 0.6 and 1.0 of the peak, and nearly what the part reaches."""
    d = deploy("llama-2-7b", gpu)
    o = CostModel(d).attention.decode(16, 65_536)
    reached = float(o.bytes) / float(o.seconds) / d.gpu.bandwidth
    assert 0.6 < reached < 1.0
    assert 0.9 * d.gpu.attention.bandwidth < reached < d.gpu.attention.bandwidth


@pytest.mark.parametrize("gpu", GPUS)
def test_a_decode_has_a_floor(gpu: str) -> None:
    """One token of context: about ten microseconds a layer whatever the GPU's bandwidth, the floor
    and the work of 8 KV heads spread over the SMs."""
    part = data_sheet(gpu)
    each = float(attention(gpu=gpu).decode(1, 1).seconds) / 32
    assert 5e-6 < each < 25e-6
    assert each == pytest.approx(part.attention.floor + 8 * part.attention.unit / part.sms)


def test_an_array_of_passes_is_each_pass() -> None:
    """A pass without sequences takes nothing; 64 short contexts keep SMs busy, long ones memory."""
    sequences = np.array([0.0, 1.0, 3.0, 64.0, 64.0])
    context = np.array([0.0, 9.0, 3000.0, 640.0, 250_000.0])
    many = attention().decode(sequences, context)
    assert np.asarray(many.seconds)[0] == np.asarray(many.bytes)[0] == 0
    for index in (1, 2, 3, 4):
        one = attention().decode(float(sequences[index]), float(context[index]))
        assert np.asarray(many.seconds)[index] == one.seconds
        assert np.asarray(many.flops)[index] == one.flops
