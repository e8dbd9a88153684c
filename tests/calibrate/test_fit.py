"""Known parameters are found again, held-out shapes stay unseen, tables earn their keep."""

import numpy as np
import pytest

from calibrate import fit as fitting
from calibrate.data import Data
from sim.cost.kernels import Ceilings, gemm, stream
from sim.cost.kernels.form import interpolate

DEVICE = Ceilings(peak=989e12, bandwidth=3.35e12, sms=132)
STREAM = stream.form("stream")
GEMM = gemm.form("bf16")
TRUE = {"latency": 3e-6, "share": 0.6, "blend": 2.5}
AXES = {"bytes": tuple(float(x) for x in range(10, 33, 2))}


def made(noise=0.02, seed=0, shapes=300, bend=None) -> Data:
    """Copies of 1 kB to 4 GB, three timings of each, ``bend`` a smooth extra factor."""
    rng = np.random.default_rng(seed)
    size = np.repeat(2.0 ** rng.uniform(10, 32, shapes), 3)
    seconds = STREAM.seconds(TRUE, {"bytes": size}, DEVICE)
    if bend is not None:
        seconds = seconds * np.exp(bend(np.log2(size)))
    return Data(
        {"bytes": size}, seconds * np.exp(rng.normal(0, noise, len(size))), np.ones(len(size))
    )


def products(noise=0.02, seed=0) -> tuple[Data, dict[str, float]]:
    true = {p.name: p.start for p in GEMM.parameters} | {
        "compute": 0.72, "bandwidth": 0.81, "latency": 4.2e-6, "wave": 1.5e-6, "norm": 2.2,
        "split": 3e-6, "ragged": 0.0, "partial": 0.6, "huge": 0.9, "droop": 0.15,
    }  # fmt: skip
    rows = [1, 4, 16, 48, 64, 96, 128, 160, 200, 256, 384, 512, 768, 1024, 1500, 2048, 4096, 8192]
    sides = [512, 1024, 2048, 3072, 4096, 6144, 8192, 16384]
    grid = np.array([(m, n, k) for n in sides for k in sides for m in rows], dtype=float)
    shape = dict(zip("mnk", grid.T, strict=True))
    drawn = np.random.default_rng(seed).normal(0, noise, len(grid))
    seconds = GEMM.seconds(true, shape, DEVICE) * np.exp(drawn)
    return Data(shape, seconds, np.ones(len(grid))), true


def test_known_parameters_are_recovered():
    found, intervals = fitting.solve(STREAM, made(), DEVICE)
    for name in ("latency", "share"):
        assert found[name] == pytest.approx(TRUE[name], rel=0.02)
        assert intervals[name][0] < TRUE[name] < intervals[name][1]


@pytest.mark.slow
def test_known_parameters_of_a_gemm_are_recovered():
    data, true = products()
    found, _ = fitting.solve(GEMM, data, DEVICE)
    for name in ("compute", "bandwidth", "latency"):
        assert found[name] == pytest.approx(true[name], rel=0.02), name
    for name in ("wave", "norm", "split", "partial"):
        assert found[name] == pytest.approx(true[name], rel=0.1), name
    predicted = GEMM.seconds(found, data.shape, DEVICE)
    exact = GEMM.seconds(true, data.shape, DEVICE)
    assert np.percentile(np.abs(predicted / exact - 1), 99) < 0.02


@pytest.mark.slow
def test_a_parameter_that_changes_nothing_has_no_interval():
    data, _ = products()
    _, intervals = fitting.solve(GEMM, data, DEVICE)
    cached = next(p for p in GEMM.parameters if p.name == "cached")
    assert intervals["cached"] == pytest.approx((cached.low, cached.high))
    low, high = intervals["bandwidth"]
    assert high / low < 1.05


def test_outliers_do_not_pull():
    data = made()
    spoilt = data.seconds.copy()
    spoilt[::12] *= 3  # 8 % of the timings, disturbed by something else
    found, _ = fitting.solve(STREAM, Data(data.shape, spoilt, data.weight), DEVICE)
    assert found["latency"] == pytest.approx(TRUE["latency"], rel=0.03)
    assert found["share"] == pytest.approx(TRUE["share"], rel=0.03)


def test_weight_decides_between_contradicting_points():
    data = made(noise=0.0)
    twice = Data(
        {"bytes": np.tile(data.shape["bytes"], 2)},
        np.concatenate([data.seconds, 2 * data.seconds]),
        np.concatenate([np.full(len(data), 1.0), np.full(len(data), 1e-3)]),
    )
    found, _ = fitting.solve(STREAM, twice, DEVICE)
    assert found["share"] == pytest.approx(TRUE["share"], rel=0.02)


def test_of_a_large_table_a_sample_is_enough():
    large = made(shapes=fitting.ENOUGH)
    assert len(large) > 2 * fitting.ENOUGH
    found, _ = fitting.solve(STREAM, large, DEVICE)
    assert found["share"] == pytest.approx(TRUE["share"], rel=0.01)


def test_a_split_never_shares_a_shape():
    data, _ = products()
    for seed in range(5):
        out = fitting.split(GEMM, data, seed)
        pairs = list(zip(data.shape["n"], data.shape["k"], strict=True))
        inside = {p for p, held in zip(pairs, out, strict=True) if not held}
        outside = {p for p, held in zip(pairs, out, strict=True) if held}
        assert not inside & outside
        assert len(outside) == round(fitting.HELD_OUT * 64)


def test_folds_keep_shapes_together_and_are_about_equal():
    data, _ = products()
    fold = fitting.folds(GEMM, data)
    group = fitting.groups(GEMM, data)
    assert all(len(set(fold[group == g])) == 1 for g in range(64))
    assert np.bincount(fold).tolist() == [16 * 18] * 4


def test_every_point_is_predicted_by_a_fit_that_had_not_seen_its_shape():
    data = made(noise=0.0)
    spoilt = data.seconds.copy()
    odd = data.shape["bytes"] == data.shape["bytes"][0]
    spoilt[odd] *= 1.5  # one shape is unlike all others: nothing else can tell
    data = Data(data.shape, spoilt, data.weight)
    predicted = fitting.cross_predict(STREAM, data, DEVICE, TRUE, AXES, 0.03)
    assert predicted[odd] / data.seconds[odd] == pytest.approx(1 / 1.5, rel=0.03)
    assert np.abs(predicted / data.seconds - 1)[~odd].max() < 0.15


def bend(x):
    return 0.15 * np.sin((x - 10) / 22 * 2 * np.pi)


def test_a_residual_table_recovers_a_smooth_correction():
    data = made(noise=0.01, shapes=600, bend=bend)
    table = fitting.residual_table(STREAM, data, DEVICE, TRUE, AXES, 0.03)
    x = np.linspace(11, 31, 50)
    assert interpolate(table, {"bytes": x}) == pytest.approx(bend(x), abs=0.02)


def test_outliers_do_not_pull_the_table():
    data = made(noise=0.01, shapes=600, bend=bend)
    spoilt = data.seconds.copy()
    spoilt[::10] *= 4
    table = fitting.residual_table(
        STREAM, Data(data.shape, spoilt, data.weight), DEVICE, TRUE, AXES, 0.03
    )
    x = np.linspace(11, 31, 50)
    assert interpolate(table, {"bytes": x}) == pytest.approx(bend(x), abs=0.06)


def test_a_table_fades_where_nothing_was_measured():
    data = made(noise=0.0, bend=lambda x: 0.3 + 0 * x)
    below = data.take(data.shape["bytes"] < 2.0**16)
    table = fitting.residual_table(STREAM, below, DEVICE, TRUE, AXES, 0.03)
    far = abs(float(interpolate(table, {"bytes": np.array(40.0)})))
    assert far < 0.3
    assert far == pytest.approx(abs(table.values[-1]))  # the edge's value outside the grid


def test_a_table_on_pure_noise_is_refused():
    for seed in range(8):
        data = made(noise=0.05, seed=seed, shapes=150)
        assert fitting.choose_ridge(STREAM, data, DEVICE, TRUE, AXES, seed) is None


def test_a_table_that_helps_is_kept():
    data = made(noise=0.02, bend=bend)
    assert fitting.choose_ridge(STREAM, data, DEVICE, TRUE, AXES) in fitting.SMOOTH.ridges


def test_a_fit_is_scored_on_what_it_had_not_seen():
    data = made(bend=bend, shapes=400)
    plain = fitting.fit(STREAM, data, DEVICE)
    corrected = fitting.fit(STREAM, data, DEVICE, axes=AXES)
    assert plain.residual is None
    assert corrected.holdout.median < 0.6 * plain.holdout.median
    assert plain.holdout.points == 3 * 80
    assert set(plain.regimes) == {"below 1 MB", "1 to 32 MB", "from 32 MB"}
    assert corrected.ranges["bytes"] == (data.shape["bytes"].min(), data.shape["bytes"].max())


def test_chosen_points_can_be_judged_instead():
    data = made()
    large = data.shape["bytes"] > 1e6
    judged = fitting.fit(STREAM, data, DEVICE, judged=large)
    assert judged.holdout.points == large.sum()
    assert "below 1 MB" not in judged.regimes
    with pytest.raises(ValueError, match="no point to judge"):
        fitting.fit(STREAM, data, DEVICE, judged=~np.isfinite(data.seconds))


def test_the_same_data_give_the_same_fit():
    data = made()
    assert fitting.fit(STREAM, data, DEVICE, axes=AXES) == fitting.fit(
        STREAM, data, DEVICE, axes=AXES
    )


def test_two_shapes_are_too_few():
    size = np.array([1e6, 1e6, 2e6])
    with pytest.raises(ValueError, match="at least three shapes"):
        fitting.fit(STREAM, Data({"bytes": size}, size / 1e12, np.ones(3)), DEVICE)


def test_errors_are_shares_of_what_was_measured() -> None:
    found = fitting.score(np.array([2.0, 0.5, 1.1]), np.ones(3))
    assert (found.median, found.bias) == pytest.approx((0.5, 0.1))
