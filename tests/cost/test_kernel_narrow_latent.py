"""The form of latent decoding with narrow tiles: tiles, parts and kernels by hand, never less time.

A cache in 16 bits has 1,152 B a token. The GPU is a B200: 2.25 PFLOP/s, 8 TB/s, 148 SMs.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import catalog
from sim.cost.kernels import narrow_latent as narrow
from sim.cost.kernels.choice import choose
from sim.cost.kernels.form import Ceilings, Floats
from sim.specs.profile import KernelFit, Score

B200 = Ceilings(peak=2.25e15, bandwidth=8e12, sms=148)
TRUE = {
    "floor": 1e-5,
    "share": 0.8,
    "compute": 0.9,
    "reader": 1.2,
    "blend": 4.0,
    "wave": 4e-6,
    "query": 2.0,
    "combine": 1e-6,
    "apart": 5e-6,
    "tile": 200.0,
}
ALONE = {"floor": 0.0, "wave": 0.0, "query": 0.0, "combine": 0.0, "apart": 0.0, "tile": 0.0,
         "blend": 200.0}  # fmt: skip


def seconds(batch: float, context: float | Floats, heads: float, **changes: float) -> Floats:
    columns = {"batch": batch, "context": context, "q_heads": heads, "latent": 512, "rope": 64}
    shape = {name: np.asarray(value, dtype=float) for name, value in columns.items()}
    return narrow.decode("bf16").seconds(TRUE | changes, shape, B200)


def test_each_narrow_tile_reads_the_cache_again() -> None:
    """148 sequences of 8,192 tokens: 16 heads are bound by memory, 32 are two waves of SMs that
    read at 1.2 of 8 TB/s."""
    cache = 148 * 8192 * 1152
    assert seconds(148, 8192, 16, **ALONE) == pytest.approx(cache / (0.8 * 8e12), rel=1e-3)
    assert seconds(148, 8192, 32, **ALONE) == pytest.approx(2 * cache / (1.2 * 8e12), rel=1e-3)


def test_a_wide_tile_alone_is_padded_to_a_pair() -> None:
    """64 and 128 heads: 128 rows of 2 x 1,088 FLOP for each token, on one SM or on two."""
    flops = 148 * 8192 * 128 * 2 * 1088
    expected = flops / (0.2 * 2.25e15)
    for heads in (33, 64, 128):
        found = seconds(148, 8192, heads, compute=0.2, **ALONE)
        assert found == pytest.approx(expected, rel=1e-6)


def test_idle_sms_share_a_context() -> None:
    """One sequence of 51,200 tokens with 16 heads has 100 parts of 512; of 4,000,000, all 148."""
    for context, parts in ((500, 1), (51_200, 100), (4_000_000, 148)):
        walk = context / parts * 1152 * 148 / (1.2 * 8e12)
        found = seconds(1, context, 16, **(ALONE | {"share": 1e9}))
        assert found == pytest.approx(walk)
        added = seconds(1, context, 16, **(ALONE | {"share": 1e9, "combine": 1e-6}))
        assert added - found == pytest.approx(1e-6 * np.log2(parts), abs=1e-12)


def test_short_contexts_of_many_heads_go_through_narrow_tiles() -> None:
    """4 sequences of 64 heads are 16 narrow tiles: 9 SMs for each, which walk 1,024 tokens of up to
    9,216. Beyond, parts of wide tiles are added up apart."""
    apart = {"apart": 1.0, "share": 1e9}
    assert seconds(4, 9216, 64, **(ALONE | apart)) < 1e-3
    assert seconds(4, 9217, 64, **(ALONE | apart)) > 1
    assert seconds(38, 100, 64, **(ALONE | apart)) < 1e-3  # 152 narrow tiles: wide, in one part


@given(
    batch=st.integers(1, 2000),
    heads=st.sampled_from([4, 16, 17, 32, 48, 64, 96, 128, 256]),
    contexts=st.lists(st.integers(1, 300_000), min_size=2, max_size=20),
    reader=st.sampled_from([0.3, 1.0, 3.0]),
)
def test_more_context_never_takes_less(
    batch: int, heads: int, contexts: list[int], reader: float
) -> None:
    found = seconds(batch, np.sort(np.array(contexts, dtype=float)), heads, reader=reader)
    assert (np.diff(found) >= -1e-15).all()


def test_a_profile_may_have_it() -> None:
    choice = choose("mla_decode", "fp8", catalog.gpu("b200-sxm"), narrow.NAME)
    assert choice is not None
    assert choice.suits(KernelFit(TRUE, {}, Score(0.1, 0.3, 0.0, 1), form=narrow.NAME))
    for framework in ("vllm", "trtllm", "sglang"):
        profile = catalog.gpu("b200-sxm", kernels=framework).profile
        assert profile is not None
        assert {fit.form for fit in profile.kernels["mla_decode"].values()} == {narrow.NAME}
