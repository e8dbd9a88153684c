"""Experts, latent attention and windows in a profile that is looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrate.bench import experts as bench
from calibrate.bench.routing import ExpertDraw, counts
from calibrate.device import DeviceFacts
from calibrate.inspection import experts, grid
from calibrate.inspection.compare import compare
from calibrate.inspection.document import document, points
from calibrate.inspection.find import FoundProfile, find
from calibrate.inspection.measured import read
from calibrate.measurement_store import MeasurementStore
from calibrate.measurements import Measurement
from sim import catalog
from sim.cost.kernels import serial, serial_experts, serial_latent, serial_windows
from sim.cost.kernels.choice import choose
from sim.cost.kernels.form import Form
from sim.specs.profile import KernelFit, Profile, Score
from tests.profile_fixtures import write_gpu

SMALL = bench.ExpertShape(512, 256, 2, 8)


def fitted(form: Form, **ranges: tuple[float, float]) -> KernelFit:
    parameters = {each.name: each.start for each in form.parameters}
    score = Score(0.05, 0.1, 0.0, 40)
    return KernelFit(parameters, ranges, score, form=serial.NAME, kernel="made up")


ATTENTION = {"q_heads": (4.0, 64.0), "kv_heads": (1.0, 64.0), "head_dim": (64.0, 256.0)}
OURS = Profile(
    "made up",
    "2026-01-01",
    {},
    {
        "moe": {
            "bf16": fitted(
                serial_experts.form("bf16"),
                tokens=(1.0, 512.0),
                hidden=(512.0, 2048.0),
                gpus=(1.0, 1.0),
                ranks=(1.0, 1.0),
            )
        },
        "mla_decode": {
            "bf16": fitted(
                serial_latent.decode("bf16"),
                batch=(1.0, 16.0),
                context=(16.0, 8192.0),
                q_heads=(4.0, 64.0),
            )
        },
        "window_decode": {
            "bf16": fitted(
                serial_windows.decode("bf16"),
                batch=(1.0, 16.0),
                context=(16.0, 32768.0),
                window=(128.0, 4096.0),
                **ATTENTION,
            )
        },
        "window_prefill": {
            "bf16": fitted(
                serial_windows.prefill("bf16"),
                batch=(1.0, 4.0),
                tokens=(64.0, 8192.0),
                context=(0.0, 4096.0),
                window=(128.0, 4096.0),
                **ATTENTION,
            )
        },
    },
)


@pytest.fixture
def found(tmp_path: Path) -> FoundProfile:
    path = write_gpu(tmp_path / "mine.yaml", OURS)
    rows = [
        Measurement(
            "moe",
            "bf16",
            f"{law}: expert by expert",
            bench.point("bf16", SMALL, tokens, law).shape,
            1e-4 * tokens,
            1e-4,
            1e-3,
            9,
            "ok",
        )
        for law in ("even", "skewed")
        for tokens in (1, 8, 64, 256)
    ]
    device = DeviceFacts("cpu", "Some CPU", 2**34, 1, 2**25, {})
    with MeasurementStore(tmp_path / "mine.csv", device, {"models": []}) as store:
        for row in rows:
            store.add(row)
    return find(str(path))


def test_each_has_curves_and_experts_their_measurements(found: FoundProfile) -> None:
    assert found.measurements is not None
    shown = document(found, read(found.measurements))
    drawn = {curve["operator"]: curve for curve in shown["curves"]}
    assert drawn.keys() == OURS.kernels.keys()
    assert drawn["window_prefill"]["variable"] == "tokens"
    assert "window" in drawn["window_decode"]["label"]
    assert all(np.isfinite(curve["seconds"]).all() for curve in shown["curves"])
    own = drawn["moe"]
    assert own["label"] == "hidden 512, width 256, chosen 2, experts 8, matrices 3"
    assert sorted(own["measured_at"]) == [1, 1, 8, 8, 64, 64, 256, 256]


def test_points_of_experts_are_predicted_at_what_was_drawn(found: FoundProfile) -> None:
    assert found.measurements is not None
    columns = points(found, read(found.measurements))
    assert len(columns["predicted"]) == 8
    form, fit = serial_experts.form("bf16"), OURS.kernels["moe"]["bf16"]
    gpu = found.gpu
    at = columns["shape"].index(next(s for s in columns["shape"] if "tokens 64" in s))
    drawn = counts(ExpertDraw(64, 8, 2, "even"))
    shape = {**bench.point("bf16", SMALL, 64).shape, "ranks": 1.0, **drawn}
    choice = choose("moe", "bf16", gpu, serial.NAME)
    assert choice is not None
    values = {name: np.asarray(float(shape[name])) for name in form.variables}
    seconds = float(form.seconds(fit.parameters, values, choice.ceilings))
    assert columns["predicted"][at] == pytest.approx(seconds)


def test_two_profiles_of_ones_own_are_compared_in_all_of_them(found: FoundProfile) -> None:
    compared = compare(found, found)
    assert {pair.operator for pair in compared.pairs} == OURS.kernels.keys()
    for pair in compared.pairs:
        assert pair.ratios is not None, pair.why
        assert pair.ratios.shapes > 10
        assert pair.ratios.extreme == 1.0


def test_prompts_that_no_window_cuts_are_no_shape_of_its_kernel() -> None:
    shapes = grid.shapes("window_prefill", {})
    assert len(shapes["window"]) > 50
    assert bool((shapes["tokens"] + shapes["context"] > shapes["window"]).all())


def test_experts_of_a_profile_are_those_of_the_simulator() -> None:
    """Cut in eight parts a layer of Mixtral takes a good eighth as long."""
    gpu = catalog.gpu("h100-sxm")
    assert gpu.profile is not None
    fit = gpu.profile.kernels["moe"]["bf16"]
    shape = {
        name: np.array([value, value], dtype=float)
        for name, value in zip(experts.LAYER, (4096, 14336, 2, 8, 3, 1, 1), strict=True)
    }
    shape |= {"tokens": np.array([64.0, 64.0]), "gpus": np.array([1.0, 8.0])}
    found = experts.times("moe", "bf16", gpu, fit, shape)
    assert 5 < found.seconds[0] / found.seconds[1] < 8
    assert found.flop[0] == 8 * found.flop[1]
