"""The form of experts: FLOP, bytes and padding by hand, what binds it, a fit of known parameters.

Mixtral 8x7B: hidden size 4,096, 8 experts of width 14,336, of which a token chooses 2. The GPU is
an H200: 989.4 TFLOP/s, 4.8 TB/s, 132 SMs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrate.data import Data
from calibrate.fit import solve
from sim.cost.kernels import expert_tiles, moe
from sim.cost.kernels.choice import work
from sim.cost.kernels.form import Ceilings, Floats
from sim.specs.experts import MixtureOfExperts
from sim.specs.popularity import chances

H200 = Ceilings(peak=989.4e12, bandwidth=4.8e12, sms=132)
START = {p.name: p.start for p in moe.PARAMETERS}
NOTHING = {"latency": 0.0, "several": 0.0, "moved": 0.0, "all": 0.0, "wave": 0.0, "partial": 0.0}
PLAIN = START | NOTHING | {
    "compute": 1.0, "bandwidth": 1.0, "norm": 200.0, "reader": 1e9,
    "rows16": 1e-3, "rows32": 1e-3, "rows64": 1e-3, "rows256": 1e-3,
}  # fmt: skip
"""Arithmetic or reads, whichever takes longer, in tiles of 128 rows."""


def mixtral(tokens: float, tiles: float, touched: float = 8, **changes: float) -> dict[str, Floats]:
    columns = {"hidden": 4096, "width": 14336, "chosen": 2, "experts": 8, "gpus": 1, "ranks": 1}
    counts = {"tokens": tokens, "rows": 2 * tokens, "touched": touched}
    columns |= {"matrices": 3, **counts, **dict.fromkeys(moe.TILES, tiles), **changes}
    return {name: np.asarray(value, dtype=float) for name, value in columns.items()}


def seconds(shape: dict[str, Floats], **changes: float) -> Floats:
    return moe.form("bf16").seconds(PLAIN | changes, shape, H200)


def test_flops_and_bytes_by_hand() -> None:
    """One token: 2 x 2 x 3 x 4,096 x 14,336 FLOP; two experts of 3 x 4,096 x 14,336 x 2 B; for each
    of its two rows 2 x 4,096 numbers in and out and 3 x 14,336 between the products."""
    one = mixtral(1, tiles=2, touched=2)
    assert moe.flops(one) == 704_643_072
    assert moe.weight_bytes(one, 2.0) == 704_643_072
    found = work("moe", "bf16", one)
    assert found == (704_643_072, 704_643_072 + 2 * (2 * 4096 + 3 * 14_336) * 2)
    assert work("moe_ranks", "nvfp4", one)[1] - found[1] == 704_643_072 * (0.5625 / 2 - 1)


def test_many_rows_take_their_padded_flops() -> None:
    """512 tokens fill a tile of 128 rows for each expert: 2 x 1,024 x 3 x 4,096 x 14,336 FLOP. 516
    may need a second tile for each, and take twice as long."""
    full = seconds(mixtral(512, tiles=8), bandwidth=1e9)
    assert full == pytest.approx(2 * 1024 * 3 * 4096 * 14_336 / 989.4e12, rel=1e-6)
    twice = seconds(mixtral(516, tiles=16), bandwidth=1e9)
    assert twice == pytest.approx(2 * full, rel=1e-6)


def test_few_rows_take_the_reads_of_their_experts() -> None:
    """Two experts of 352,321,536 B at 4.8 TB/s; a half of each on one of two GPUs."""
    one = seconds(mixtral(1, tiles=2, touched=2), compute=1e9)
    assert one == pytest.approx(704_643_072 / 4.8e12, rel=1e-6)
    half = seconds(mixtral(1, tiles=2, touched=2, gpus=2), compute=1e9)
    assert half == pytest.approx(one / 2, rel=1e-6)


def test_the_library_chooses_the_lowest_tile_that_is_fast_enough() -> None:
    """16 rows for an expert: tiles of 16 rows at half the speed beat those of 128 rows, of which
    seven eighths are padding."""
    shape = mixtral(64, tiles=8)
    tall = seconds(shape, bandwidth=1e9)
    low = seconds(shape, bandwidth=1e9, rows16=0.5)
    assert low == pytest.approx(tall * 16 / 128 / 0.5, rel=1e-6)


def test_an_sm_reads_no_faster_than_it_can() -> None:
    """A tile reads 4,096 x 128 or 14,336 x 128 weights at three times its SM's share of the
    bandwidth; the first product has 448 tiles, 3.39 waves, the second not even one."""
    found = seconds(mixtral(1, tiles=2, touched=2), compute=1e9, bandwidth=1e9, reader=3.0)
    read = (448 / 132 * 4096 + 1 * 14_336) * 128 * 2
    assert found == pytest.approx(read / (3 * 4.8e12 / 132), rel=1e-6)


def test_what_is_added_on_top() -> None:
    """Rows of this GPU and of all GPUs: in and out and twice between; and a floor."""
    shape = mixtral(4, tiles=4, rows=2)
    plain = seconds(shape)
    assert seconds(shape, latency=3e-5) - plain == pytest.approx(3e-5)
    assert seconds(shape, several=4e-6) - plain == pytest.approx(3e-6)
    own, every = 2 * (4 * 4096 + 6 * 14_336), 4 * 2 * 4096 + 8 * (2 * 4096 + 6 * 14_336)
    assert seconds(shape, moved=1.0) - plain == pytest.approx(own / 4.8e12)
    assert seconds(shape, all=1.0) - plain == pytest.approx(every / 4.8e12)
    assert seconds(shape, apart=4e-5) == plain  # all experts are here
    ranks = mixtral(4, tiles=4, rows=2, ranks=2)
    assert seconds(ranks, apart=4e-5) - seconds(ranks) == pytest.approx(4e-5)


def test_fits_from_before_tell_no_rows_apart() -> None:
    ranks = mixtral(4, tiles=4, rows=2, ranks=2)
    before = {name: value for name, value in PLAIN.items() if name != "apart"}
    assert moe.form("bf16").seconds(before, ranks, H200) == seconds(ranks)


def test_a_partly_filled_wave_may_count_as_a_whole_one() -> None:
    """448 + 64 tiles of a token on 132 SMs: 3.39 and 0.48 waves, or 4 and 1."""
    shape = mixtral(1, tiles=2, touched=2)
    plain = seconds(shape, compute=1e9)
    assert seconds(shape, compute=1e9, wave=1e-6) - plain == pytest.approx(1e-6 * 512 / 132)
    assert seconds(shape, compute=1e9, wave=1e-6, partial=1.0) - plain == pytest.approx(5e-6)


def test_a_cache_helps_small_experts_only() -> None:
    cached = Ceilings(989.4e12, 4.8e12, 132, 50e6)
    form, small = moe.form("bf16"), mixtral(1, tiles=2, touched=2, width=256)
    changes = PLAIN | {"compute": 1e9, "cached": 2.0}
    ratio = form.seconds(changes, small, H200) / form.seconds(changes, small, cached)
    assert ratio == pytest.approx(2.0, rel=0.01)
    large = mixtral(1, tiles=2, touched=2)
    assert form.seconds(changes, large, cached) == pytest.approx(
        form.seconds(changes, large, H200), rel=1e-3
    )


# -- expected tiles --------------------------------------------------------------------------------


@pytest.mark.parametrize(("experts", "chosen"), [(8, 2), (128, 8), (32, 4), (16, 1)])
def test_experts_touched_are_those_of_the_record(experts: int, chosen: int) -> None:
    tokens = np.array([1.0, 2, 7, 64, 513, 4096])
    mixture = MixtureOfExperts(experts, chosen, 768)
    (touched,) = expert_tiles.expected(tokens, chances(experts, chosen), (math.inf,))
    assert touched == pytest.approx(mixture.touched(tokens), rel=1e-9)


def test_tiles_of_two_rows_by_hand() -> None:
    """Four tokens, each expert chosen with chance 1/2: 0 to 4 rows with weights 1 4 6 4 1 of 16, so
    0, 1, 1, 2, 2 tiles: 20/16 for each of four experts."""
    (tiles,) = expert_tiles.expected(np.array([4.0]), chances(4, 2), (2,))
    assert tiles == pytest.approx([4 * 20 / 16])


def test_large_numbers_agree_with_drawn_ones() -> None:
    random = np.random.default_rng(1)
    found = chances(64, 4, 1.01)
    each = np.repeat(found.chance, found.number.astype(int))
    for tokens in (300, 5000):
        rows = random.binomial(tokens, each, size=(300, 64))
        for height in (16, 64, 256):
            drawn = np.ceil(rows / height).sum(axis=1).mean()
            (tiles,) = expert_tiles.expected(np.array([float(tokens)]), found, (height,))
            assert tiles[0] == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.2])
@pytest.mark.parametrize(("experts", "chosen"), [(8, 2), (128, 8), (512, 22)])
def test_every_token_has_its_experts(experts: int, chosen: int, skew: float) -> None:
    found = chances(experts, chosen, skew)
    assert found.rows == pytest.approx(chosen)
    assert found.number.sum() == experts
    assert found.chance.max() <= 1.0


def test_skew_touches_fewer_experts_and_wastes_more_of_the_tiles() -> None:
    """64 tokens touch fewer of 128 experts where some are popular; 2,048 tokens fill tiles of 128
    rows, one for most experts, unless a few experts have most of the rows."""
    even, skewed = chances(128, 8), chances(128, 8, 1.2)
    tokens, heights = np.array([64.0, 1800.0]), (math.inf, 128)
    touched, tiles = expert_tiles.expected(tokens, even, heights)
    fewer, more = expert_tiles.expected(tokens, skewed, heights)
    assert fewer[0] < 0.8 * touched[0]
    assert more[1] > 1.2 * tiles[1]


# -- fit -------------------------------------------------------------------------------------------


def test_a_fit_recovers_made_up_parameters() -> None:
    """Timings of four models on one GPU and cut in four, made with known parameters."""
    true = START | {"latency": 2.2e-5, "compute": 0.61, "bandwidth": 0.83, "norm": 3.0, "all": 2.0}
    tokens = np.array([1.0, 4, 16, 64, 256, 1024, 4096, 16384])
    columns: dict[str, list[float]] = {name: [] for name in moe.VARIABLES}
    models = [(4096, 14336, 2, 8), (2048, 768, 8, 128), (5120, 8192, 1, 16), (7168, 2048, 8, 256)]
    for hidden, width, chosen, experts in models:
        counted = expert_tiles.expected(tokens, chances(experts, chosen), (math.inf, *moe.HEIGHTS))
        for gpus in (1, 4):
            for at, count in enumerate(tokens):
                sizes = (hidden, width, chosen, experts, gpus, 1, 3, count, count * chosen)
                row = [*sizes, *(each[at] for each in counted)]
                for name, value in zip(moe.VARIABLES, row, strict=True):
                    columns[name].append(float(value))
    shape = {name: np.array(values) for name, values in columns.items()}
    form = moe.form("bf16").given(
        **{n: true[n] for n in true if n not in ("latency", "compute", "bandwidth", "all")}
    )
    made = form.seconds(true, shape, H200)
    found, _ = solve(form, Data(shape, made, np.ones(len(made))), H200)
    for name in ("latency", "compute", "bandwidth", "all"):
        assert found[name] == pytest.approx(true[name], rel=0.01), name
