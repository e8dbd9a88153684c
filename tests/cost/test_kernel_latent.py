"""Forms of latent attention: bytes and FLOP by hand, lines in the context, what binds it.

A layer of DeepSeek-V3 keeps 512 + 64 numbers for each token; its 128 query heads have keys of 192
and values of 128 when they are projected up. The GPU is an H200: 989.4 TFLOP/s, 4.8 TB/s, 132 SMs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost.kernels import latent_attention as latent
from sim.cost.kernels import prefill_attention
from sim.cost.kernels.choice import choose, work
from sim.cost.kernels.form import Ceilings, Floats

H200 = Ceilings(peak=989.4e12, bandwidth=4.8e12, sms=132)
DECODE = {
    "floor": 1e-5,
    "share": 0.9,
    "compute": 0.7,
    "blend": 5.0,
    "wave": 5e-6,
    "query": 2.0,
}


def shape(
    batch: float, context: float | Floats, heads: float, rope: float = 64
) -> dict[str, Floats]:
    columns = {"batch": batch, "context": context, "q_heads": heads, "latent": 512, "rope": rope}
    return {name: np.asarray(value, dtype=float) for name, value in columns.items()}


def seconds(batch: float, context: float | Floats, heads: float, **changes: float) -> Floats:
    form = latent.decode("bf16")
    return form.seconds(DECODE | changes, shape(batch, context, heads), H200)


def test_bytes_and_flops_by_hand() -> None:
    """64 sequences of 16,384 tokens, 128 heads: 64 x 16,384 x 576 x 2 B of cache, 64 x 128 x
    (576 + 512) x 2 B of queries and results; 2 x 64 x 16,384 x 128 x (576 + 512) FLOP."""
    one = shape(64, 16384, 128)
    assert latent.read_bytes(one, 2.0) == 1_207_959_552 + 17_825_792
    assert latent.flops(one) == 2 * 64 * 16384 * 128 * 1088
    assert work("mla_decode", "bf16", one) == (latent.flops(one), latent.read_bytes(one, 2.0))
    assert work("mla_decode", "fp8", one)[1] == 1_207_959_552 / 2 + 17_825_792


def test_many_heads_are_bound_by_arithmetic_few_by_memory() -> None:
    """128 heads: 292 GFLOP at 0.7 of the peak are 421.8 us, 1.208 GB at 0.9 of the bandwidth 279.6;
    16 heads are padded to 64, so that arithmetic takes half as long as 128."""
    alone = {"floor": 0.0, "wave": 0.0, "query": 0.0, "blend": 200.0}
    assert seconds(64, 16384, 128, **alone) == pytest.approx(
        2 * 64 * 16384 * 128 * 1088 / (0.7 * 989.4e12), rel=1e-6
    )
    few = seconds(64, 16384, 16, **alone)
    assert few == pytest.approx(1_207_959_552 / (0.9 * 4.8e12), rel=1e-6)
    assert few == seconds(64, 16384, 64, **alone)


@pytest.mark.parametrize("heads", [16, 64, 128])
@pytest.mark.parametrize("batch", [1, 64, 300])
def test_a_line_in_the_context(heads: int, batch: int) -> None:
    contexts = np.array([1.0, 100.0, 5_000.0, 131_072.0])
    found = seconds(batch, contexts, heads)
    slopes = np.diff(found) / np.diff(contexts)
    assert slopes == pytest.approx(slopes[0], rel=1e-6)
    assert slopes[0] > 0


def test_waves_are_rounded_up() -> None:
    """66 sequences of 128 heads are 132 tiles, as many as SMs; one sequence more, two waves."""
    none = {"floor": 0.0, "query": 0.0, "share": 1e9, "compute": 1e9}
    assert seconds(66, 10, 128, **none) == pytest.approx(5e-6, rel=1e-3)
    assert seconds(67, 10, 128, **none) == pytest.approx(10e-6, rel=1e-3)
    assert seconds(132, 10, 16, **none) == pytest.approx(5e-6, rel=1e-3)


def test_prompts_have_as_many_flops_and_bytes_as_wider_keys() -> None:
    """1,000 new tokens on top of 500: 1,000 x 500 + 500,500 pairs, each 2 x 128 x (192 + 128)
    FLOP."""
    heads = dict(zip(("q_heads", "kv_heads", "head_dim"), latent.prefill_heads(128, 192, 128),
                     strict=True))  # fmt: skip
    columns = {"batch": 1, "tokens": 1000, "context": 500, **heads}
    one = {name: np.asarray(value, dtype=float) for name, value in columns.items()}
    assert prefill_attention.flops(one) == 1_000_500 * 2 * 128 * 320
    assert prefill_attention.read_bytes(one, 2.0) == 2 * (1000 + 1500) * 128 * 320


def test_a_profile_may_have_both() -> None:
    gpu = replace(catalog.gpu("h200-sxm"), profile=None)
    for operator in ("mla_decode", "mla_prefill"):
        found = choose(operator, "fp8", gpu)
        assert found is not None
        assert found.ceilings.peak == 989.4e12
    prompts = choose("mla_prefill", "bf16", gpu)
    assert prompts is not None
    given = {p.name: p.start for p in prompts.form.parameters if p.low == p.high}
    assert given == latent.PREFILL_SAME
