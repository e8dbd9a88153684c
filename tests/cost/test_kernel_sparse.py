"""Forms of sparse latent attention: pairs, bytes and FLOP by hand, the bend in the context.

DeepSeek-V3.2 chooses 2,048 tokens by an indexer of 64 heads whose keys have 128 numbers. The GPU is
an H200: 989.4 TFLOP/s, 4.8 TB/s, 132 SMs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import catalog
from sim.cost.kernels import sparse_attention as sparse
from sim.cost.kernels.choice import choose, work
from sim.cost.kernels.form import Ceilings, Floats
from sim.specs.profile import KernelFit, Score

H200 = Ceilings(peak=989.4e12, bandwidth=4.8e12, sms=132)
DECODE = {
    "floor": 5e-5,
    "compute": 0.7,
    "split": 0.2,
    "flat": 0.0,
    "share": 0.7,
    "query": 2.0,
}
PREFILL = {"floor": 1e-4, "host": 1e-3, "compute": 0.6, "rate": 0.4, "choice": 2e-7,
           "few": 0.5, "few_flat": 0.0}  # fmt: skip


def shape(**values: float | Floats) -> dict[str, Floats]:
    widths = {"latent": 512, "rope": 64, "index_heads": 64, "index_dim": 128, "topk": 2048}
    return {name: np.asarray(v, dtype=float) for name, v in (widths | values).items()}


def decode(batch: float, context: float | Floats, heads: float, **changes: float) -> Floats:
    one = shape(batch=batch, context=context, q_heads=heads)
    return sparse.decode("bf16").seconds(DECODE | changes, one, H200)


def test_work_of_decoding_by_hand() -> None:
    """64 sequences of 16,384 tokens read 64 x (2,048 x 576 x 2 + 16,384 x 132) B, and queries and
    results of 64 x 128 x 1,088 x 2 B."""
    flops, moved = work("dsa_decode", "bf16", shape(batch=64, context=16384, q_heads=128))
    assert moved == 64 * (2048 * 1152 + 16384 * 132) + 17_825_792
    assert flops == 64 * (128 * 2048 * 2 * 1088 + 16384 * 2 * 64 * 128)


def test_work_of_prompts_by_hand() -> None:
    """3,000 tokens on top of 1,000: the first 1,048 queries see all, 1,001 to 2,048 keys, the other
    1,952 see 2,048 each."""
    one = shape(batch=1, tokens=3000, context=1000, q_heads=128)
    chosen = 1048 * 1000 + 1048 * 1049 / 2 + 1952 * 2048
    rated = 3000 * 1000 + 3000 * 3001 / 2
    assert sparse.pairs(3000, 1000, 2048) == chosen
    flops, moved = work("dsa_prefill", "bf16", one)
    assert flops == chosen * 128 * 2 * 1088 + rated * 2 * 64 * 128
    assert moved == 4000 * (1152 + 132) + 3000 * 128 * 1088 * 2
    seconds = sparse.prefill("bf16").seconds(PREFILL, one, H200)
    expected = 1e-4 + chosen * 128 * 2176 / (0.6 * 989.4e12)
    assert seconds == pytest.approx(expected + rated * 16384 / (0.4 * 989.4e12) + 3000 * 2e-7)


def test_fewer_heads_than_a_tile_may_go_another_way() -> None:
    """100 prompts of 100 tokens: 5,050 pairs each of 64 padded heads at half the speed, or 100 x
    2,048 places."""
    one = shape(batch=100, tokens=100, context=0, q_heads=16)
    common = 1e-4 + 505_000 * 16384 / (0.4 * 989.4e12) + 10_000 * 2e-7
    for flat, places in ((0.0, 505_000), (1.0, 10_000 * 2048), (0.5, 505_000 / 2 + 10_240_000)):
        found = sparse.prefill("bf16").seconds(PREFILL | {"few_flat": flat}, one, H200)
        expected = common + places * 64 * 2176 / (0.6 * 0.5 * 989.4e12)
        assert found == pytest.approx(expected)
    whole = shape(batch=100, tokens=100, context=0, q_heads=64)
    found = sparse.prefill("bf16").seconds(PREFILL | {"few_flat": 1.0}, whole, H200)
    assert found == pytest.approx(common + 505_000 * 64 * 2176 / (0.6 * 989.4e12))


def test_heads_that_are_missing_in_a_tile_may_count_in_part() -> None:
    """16 heads, and a quarter of the 48 missing ones: 28. A fit from before counts all of 64."""
    one = shape(batch=100, tokens=100, context=0, q_heads=16)
    common = 1e-4 + 505_000 * 16384 / (0.4 * 989.4e12) + 10_000 * 2e-7
    for given, heads in (({"few_pad": 0.25}, 28), ({"few_pad": 1.0}, 64), ({}, 64)):
        found = sparse.prefill("bf16").seconds(PREFILL | given, one, H200)
        assert found == pytest.approx(common + 505_000 * heads * 2176 / (0.6 * 0.5 * 989.4e12))
    whole = shape(batch=100, tokens=100, context=0, q_heads=128)
    padded, not_padded = (
        sparse.prefill("bf16").seconds(PREFILL | {"few_pad": pad}, whole, H200) for pad in (1, 0)
    )
    assert padded == not_padded


def test_places_without_a_token_may_count_in_whole_tiles() -> None:
    """100 prompts of 100 tokens have 505,000 pairs and 10,000 x 2,048 places; fewer heads are not
    affected, nor prompts whose queries all have as many tokens as are chosen."""
    one = shape(batch=100, tokens=100, context=0, q_heads=128)
    common = 1e-4 + 505_000 * 16384 / (0.4 * 989.4e12) + 10_000 * 2e-7
    prefill = sparse.prefill("bf16").seconds
    for given, places in (({}, 505_000), ({"flat": 0.5}, 505_000 / 2 + 10_240_000)):
        expected = common + places * 128 * 2176 / (0.6 * 989.4e12)
        assert prefill(PREFILL | given, one, H200) == pytest.approx(expected)
    for other in ({"q_heads": np.asarray(16.0)}, {"context": np.asarray(2048.0)}):
        without, flat = (prefill(PREFILL | {"flat": f}, one | other, H200) for f in (0.0, 1.0))
        assert flat == pytest.approx(float(without))


def test_a_profile_from_before_still_has_its_prompts() -> None:
    """Its fit lacks ``few_pad`` and ``flat``; one that lacks another parameter is refused."""
    choice = choose("dsa_prefill", "bf16", catalog.gpu("h200-sxm"))
    assert choice is not None
    fit = KernelFit(PREFILL, {}, Score(0.1, 0.3, 0.0, 1))
    assert choice.suits(fit)
    fewer = {name: value for name, value in PREFILL.items() if name != "few"}
    assert not choice.suits(replace(fit, parameters=fewer))


def test_a_short_prompt_takes_as_long_as_launching_it() -> None:
    one = shape(batch=1, tokens=16, context=0, q_heads=128)
    assert sparse.prefill("bf16").seconds(PREFILL, one, H200) == 1e-3


@pytest.mark.parametrize("batch", [1, 64, 300])
def test_behind_the_chosen_tokens_only_the_indexer_grows(batch: int) -> None:
    """A token of the context then costs its 132 B of the indexer at 0.7 of the bandwidth."""
    contexts = np.array([256.0, 1024.0, 2048.0, 4096.0, 131072.0])
    slopes = np.diff(decode(batch, contexts, 128)) / np.diff(contexts)
    assert slopes[0] == pytest.approx(slopes[1])
    assert slopes[2] == pytest.approx(batch * 132 / (0.7 * 4.8e12))
    assert slopes[2] == pytest.approx(slopes[3])
    assert slopes[1] > slopes[2]


def test_a_flat_kernel_goes_through_all_places() -> None:
    short, long = decode(64, np.array([16.0, 2048.0]), 128, flat=1.0)
    assert long - short == pytest.approx(64 * 2032 * 132 / (0.7 * 4.8e12))
    assert long == decode(64, 2048.0, 128)


def test_few_heads_may_be_cut_into_narrow_tiles() -> None:
    """132 queries of 32 heads are two waves of tiles of 16, each 0.7 of one of 64: longer than 64
    heads. A fit from before has none."""
    nothing = {"floor": 0.0, "query": 0.0, "share": 1e9}
    wave = float(decode(132, 2048, 64, **nothing))
    assert decode(132, 2048, 32, **nothing) == wave
    for heads, waves in ((16, 0.7), (17, 1.4), (32, 1.4), (33, 1.0), (64, 1.0), (128, 2.0)):
        assert decode(132, 2048, heads, narrow=0.7, **nothing) == pytest.approx(waves * wave)
        assert decode(132, 2048, heads, narrow=0.0, **nothing) == decode(
            132, 2048, heads, **nothing
        )


def test_idle_sms_help_one_query_a_little() -> None:
    """One sequence of 64 heads is one tile of 132 SMs: it takes 132^-0.2 of a whole wave."""
    nothing = {"floor": 0.0, "query": 0.0, "share": 1e9}
    wave = 2048 * 64 * 2176 * 132 / (0.7 * 989.4e12)
    assert decode(132, 2048, 64, **nothing) == pytest.approx(wave)
    assert decode(264, 2048, 64, **nothing) == pytest.approx(2 * wave)
    assert decode(1, 2048, 64, **nothing) == pytest.approx(wave * 132**-0.2)


def test_a_profile_may_have_both() -> None:
    gpu = replace(catalog.gpu("h200-sxm"), profile=None)
    assert all(choose(operator, "fp8", gpu) for operator in ("dsa_decode", "dsa_prefill"))
