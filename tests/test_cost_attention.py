"""Attention: KV bytes from KV heads, FLOPs from query heads, lines in the context that join.

A token of KV on one GPU is 2 (key and value) x KV heads x head size x bytes a layer. A decoding
sequence reads the KV it holds and that of its new token, its query, and writes its result.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import catalog
from sim.cost import Deployment
from sim.cost.attention import PREFILL_SHARES, Attention, prefill_share
from sim.plan import Chunk
from sim.request import Request

IDEAL = catalog.engine("ideal")
GPUS = catalog.names("gpus")


def deploy(
    model: str = "llama-3.1-8b",
    gpu: str = "h100-sxm",
    kv_cache: str = "bf16",
    tensor_parallel: int = 1,
) -> Deployment:
    return Deployment(
        catalog.model(model), catalog.gpu(gpu), IDEAL, "bf16", "bf16", kv_cache, tensor_parallel
    )


def attention(
    model: str = "llama-3.1-8b",
    gpu: str = "h100-sxm",
    kv_cache: str = "bf16",
    tensor_parallel: int = 1,
) -> Attention:
    return Attention(deploy(model, gpu, kv_cache, tensor_parallel))


def chunk(tokens: int, context: int = 0) -> Chunk:
    return Chunk(Request(0, 0.0, tokens + context, 1), tokens, context)


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
    found = attention(model).prefill([chunk(512)])
    assert found.flops == 68_853_694_464
    assert found.bytes == traffic
    seconds, pairs = attention(model).prefill_seconds([chunk(512)])
    assert pairs == 131_328
    assert found.seconds == pytest.approx(seconds)


def test_a_chunk_sees_its_context() -> None:
    """256 tokens on top of 1,000: 256 x 1,000 + 256 x 257 / 2 = 288,896 pairs."""
    _, pairs = attention().prefill_seconds([chunk(256, 1000)])
    assert pairs == 288_896


@settings(deadline=None)
@given(parts=st.lists(st.integers(1, 700), min_size=1, max_size=6))
def test_chunks_of_a_prompt_see_the_same_pairs_as_the_whole(parts: list[int]) -> None:
    model, seen, done = attention(), 0.0, 0
    for part in parts:
        seen += model.prefill_seconds([chunk(part, done)])[1]
        done += part
    assert seen == model.prefill_seconds([chunk(done)])[1] == done * (done + 1) / 2


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


def test_h200_reaches_the_measured_rates() -> None:
    """Causal attention of 32 heads of 128 without a floor: 95, 296 and 527 TFLOP/s at prompts of
    256, 1,024 and 4,096 tokens."""
    d = deploy(gpu="h200-sxm")
    latency = 32 * d.gpu.efficiency.operator_latency
    for tokens, rate in ((256, 95e12), (1024, 296e12), (4096, 527e12)):
        found = Attention(d).prefill([chunk(tokens)])
        reached = float(found.flops) / (float(found.seconds) - latency)
        assert reached == pytest.approx(rate, rel=0.02)


def test_long_prompts_approach_the_plateau() -> None:
    """At 128k tokens floors do not count: the last share of the peak, and time grows with the
    square of the length."""
    d = deploy()
    shares = []
    for tokens in (2048, 8192, 32_768, 131_072):
        found = Attention(d).prefill([chunk(tokens)])
        shares.append(float(found.flops) / float(found.seconds) / d.gpu.flops("bf16"))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(PREFILL_SHARES[-1], rel=0.01)


@settings(deadline=None)
@given(tokens=st.integers(1, 8192), context=st.integers(1, 100_000))
def test_a_chunk_over_context_is_no_less_efficient_per_pair(tokens: int, context: int) -> None:
    model = attention()
    latency = model.prefill_seconds([])[0]
    alone, alone_pairs = model.prefill_seconds([chunk(tokens)])
    later, later_pairs = model.prefill_seconds([chunk(tokens, context)])
    assert later_pairs > alone_pairs
    assert (later - latency) / later_pairs <= (alone - latency) / alone_pairs * (1 + 1e-12)


@settings(deadline=None)
@given(tokens=st.integers(2, 8192), context=st.integers(0, 50_000), cut=st.floats(0, 1))
def test_one_chunk_costs_no_more_than_two(tokens: int, context: int, cut: float) -> None:
    """Cutting a prompt reads its KV once more and cannot save arithmetic."""
    model = attention()
    first = min(max(1, int(cut * tokens)), tokens - 1)
    whole = model.prefill_seconds([chunk(tokens, context)])[0]
    parts = model.prefill_seconds([chunk(first, context)])[0]
    parts += model.prefill_seconds([chunk(tokens - first, context + first)])[0]
    assert whole <= parts * (1 + 1e-9)


def test_prompts_of_one_pass_add_up_but_share_the_floor() -> None:
    model = attention()
    floor = model.prefill_seconds([])[0]
    one, two = (model.prefill_seconds([chunk(n)])[0] for n in (300, 900))
    both, pairs = model.prefill_seconds([chunk(300), chunk(900)])
    assert both == pytest.approx(one + two - floor)
    assert pairs == 300 * 301 / 2 + 900 * 901 / 2


# -- time of a decode ----------------------------------------------------------------------------

deployments = st.builds(
    attention,
    model=st.sampled_from(["llama-2-7b", "llama-3.1-8b", "llama-3.1-70b"]),
    gpu=st.sampled_from(GPUS),
    kv_cache=st.sampled_from(["bf16", "fp8"]),
    tensor_parallel=st.sampled_from([1, 2, 8]),
)


@settings(deadline=None)
@given(model=deployments, sequences=st.integers(1, 4096))
def test_lines_ascend_rise_and_join(model: Attention, sequences: int) -> None:
    lines = model.decode_lines(sequences)
    limits = [limit for limit, _, _ in lines]
    assert limits == sorted(set(limits))
    assert limits[0] > 0
    assert limits[-1] == math.inf
    assert all(slope > 0 for _, _, slope in lines)
    for (limit, base, slope), (_, next_base, next_slope) in pairwise(lines):
        assert base + slope * limit == pytest.approx(next_base + next_slope * limit, rel=1e-9)


@settings(deadline=None)
@given(model=deployments, sequences=st.integers(1, 2048), each=st.integers(1, 130_000))
def test_lines_are_the_price_of_the_operator(model: Attention, sequences: int, each: int) -> None:
    context = sequences * each
    price = line_at(model.decode_lines(sequences), context)
    assert price == pytest.approx(float(model.decode(sequences, context).seconds), rel=1e-9)


@settings(deadline=None)
@given(model=deployments, sequences=st.integers(1, 512), each=st.integers(1, 100_000))
def test_more_context_and_more_sequences_cost_more(
    model: Attention, sequences: int, each: int
) -> None:
    base = float(model.decode(sequences, sequences * each).seconds)
    assert float(model.decode(sequences, sequences * each + 1).seconds) > base
    assert float(model.decode(sequences + 1, sequences * each + each).seconds) > base


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", ["llama-2-7b", "llama-3.1-8b", "llama-3.1-70b"])
def test_decode_reads_at_most_at_the_peak_bandwidth(gpu: str, model: str) -> None:
    """Over all of a GPU's memory, and computes at most at the peak rate."""
    d = deploy(model, gpu)
    longest = int(d.gpu.memory / d.kv_bytes_per_token())
    for context in np.geomspace(1, longest, 40).astype(int):
        o = Attention(d).decode(1, int(context))
        assert float(o.seconds) * d.gpu.bandwidth >= float(o.bytes)
        assert float(o.seconds) * d.gpu.flops("bf16") >= float(o.flops)


@pytest.mark.parametrize("gpu", GPUS)
def test_long_contexts_read_at_most_of_the_bandwidth(gpu: str) -> None:
    """A GB of KV a layer: between 0.6 and 1.0 of the peak."""
    d = deploy("llama-2-7b", gpu)
    o = Attention(d).decode(16, 65_536)
    assert 0.6 < float(o.bytes) / float(o.seconds) / d.gpu.bandwidth < 1.0


def test_a_decode_has_a_floor() -> None:
    """One token of context: about ten microseconds a layer whatever the GPU's bandwidth."""
    for gpu in GPUS:
        assert 5e-6 < float(attention(gpu=gpu).decode(1, 1).seconds) / 32 < 25e-6


def test_an_array_of_passes_is_each_pass() -> None:
    sequences = np.array([0.0, 1.0, 3.0, 64.0])
    context = np.array([0.0, 9.0, 3000.0, 250_000.0])
    many = attention().decode(sequences, context)
    assert np.asarray(many.seconds)[0] == np.asarray(many.bytes)[0] == 0
    for index in (1, 2, 3):
        one = attention().decode(float(sequences[index]), float(context[index]))
        assert np.asarray(many.seconds)[index] == one.seconds
        assert np.asarray(many.flops)[index] == one.flops
