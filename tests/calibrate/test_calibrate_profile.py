"""From measurements to a file that can be named as ``gpu:``, and a run priced by it."""

import itertools
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sim
from calibrate import session
from calibrate.bench.routing import LAWS, whole_shape
from calibrate.device import DeviceFacts
from calibrate.lazy_torch import installed
from calibrate.measurements import Measurement
from calibrate.profile import to_data, write_profile
from calibrate.residual import axes_of, jumpy_axes_of
from sim import catalog
from sim.commands.calibrate import app
from sim.cost.kernels import gemm, serial, serial_experts
from sim.cost.kernels.form import Ceilings
from sim.cost.measured import gemm_of
from sim.cost.measured_experts import MeasuredExperts, fit_of
from sim.errors import InfersimError
from sim.specs.experts import MixtureOfExperts
from tests.engine_fixtures import llama

CPU = DeviceFacts("cpu", "Some CPU", 2**35, 1, 2**25, {"torch": "2.13.0"})
H200 = DeviceFacts("cuda", "NVIDIA H200", 150 * 10**9, 132, 5 * 10**7, {"driver": "570"})
CEILINGS = Ceilings(8e11, 1e10, 1)
TRUE = {
    "gemm": {
        "compute": 0.9, "bandwidth": 0.5, "latency": 8e-6, "half": 20.0, "norm": 3.0,
        "column": 3e-8,
    },
    "decode_attention": {
        "floor": 3e-5, "sequence": 4e-5, "share": 0.3, "compute": 0.05, "near": 1e6, "slow": 0.4,
    },
    "prefill_attention": {
        "floor": 2e-5, "sequence": 1e-5, "share": 0.5, "compute": 0.3, "least": 24.0,
        "softmax": 50.0, "head": 2e-6, "mask": 4e-10, "pack": 2e-10, "near": 3e6, "slow": 2.0,
    },
    "norm": {
        "latency": 5e-6, "share": 0.6, "blend": 1.5, "near": 1e6, "slow": 0.5, "large": 6e7,
        "fresh": 2.0,
    },
}  # fmt: skip
FORMS = {
    "gemm": serial.product("bf16"),
    "decode_attention": serial.decode("bf16"),
    "prefill_attention": serial.prefill("bf16"),
    "norm": serial.mover("norm"),
}


def rows(operator, shapes, noise=0.01, precision="bf16", seconds=None):
    """Measurements of a device whose kernels follow the form exactly, but for some noise."""
    random = np.random.default_rng(len(operator))
    columns = {name: np.array([float(s[name]) for s in shapes]) for name in shapes[0]}
    exact = seconds if seconds is not None else FORMS[operator].seconds(
        TRUE[operator], {"skew": np.ones(len(shapes)), **columns}, CEILINGS
    )  # fmt: skip
    noisy = exact * np.exp(random.normal(0, noise, len(shapes)))
    return [
        Measurement(operator, precision, "made up", shape, float(s), None, None, 9, "ok")
        for shape, s in zip(shapes, noisy, strict=True)
    ]


def heads():
    return [(32, 8, 64), (16, 4, 128), (8, 8, 128), (12, 4, 64), (4, 1, 128), (24, 8, 128)]


def all_rows(noise=0.01):
    products = [
        {"m": m, "n": n, "k": k}
        for m in (1, 4, 16, 64, 256, 1024)
        for n in (512, 640, 2048, 4096, 8192)
        for k in (512, 2048, 8192)
    ]
    decodes = [
        {"batch": b, "context": c, "q_heads": q, "kv_heads": kv, "head_dim": d}
        for b in (1, 8, 64)
        for c in (16, 128, 1024, 4096)
        for q, kv, d in heads()
    ]
    prefills = [
        {"batch": 1, "tokens": t, "context": c, "q_heads": q, "kv_heads": kv, "head_dim": d}
        for t in (1, 8, 64, 512)
        for c in (0, 256, 2048)
        for q, kv, d in heads()
    ]
    sizes = [{"bytes": 2.0 ** (power / 2)} for power in range(16, 60)]
    moved = np.array([size["bytes"] for size in sizes[-4:]])
    copies = rows("memory", sizes[-4:], 0.0, seconds=moved / 1e10)
    peak = rows("gemm", [{"m": 4096, "n": 8192, "k": 8192}], 0.0,
                seconds=np.array([2 * 4096 * 8192 * 8192 / 8e11]))  # fmt: skip
    return [
        *rows("gemm", products, noise), *rows("decode_attention", decodes, noise),
        *rows("prefill_attention", prefills, noise), *rows("norm", sizes, noise), *copies, *peak,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "my-cpu.yaml"
    return path, write_profile(all_rows(), CPU, path)


def test_known_parameters_are_recovered_within_2_percent(written):
    _, profile = written
    for operator, name in [
        ("gemm", "bandwidth"), ("gemm", "compute"),
        ("decode_attention", "sequence"), ("decode_attention", "compute"),
        ("norm", "latency"),
    ]:  # fmt: skip
        found = profile.kernels[operator]["bf16"].parameters[name]
        assert found == pytest.approx(TRUE[operator][name], rel=0.02), (operator, name)


def test_prompts_of_lengths_between_those_measured_are_priced(written):
    """Its parameters trade against one another; what they come to does not."""
    _, profile = written
    shape = {
        "batch": np.array([1.0, 3.0]), "tokens": np.array([300.0, 30.0]),
        "context": np.array([0.0, 900.0]), "q_heads": np.array(16.0),
        "kv_heads": np.array(8.0), "head_dim": np.array(64.0),
    }  # fmt: skip
    fit = profile.kernels["prefill_attention"]["bf16"]
    exact = FORMS["prefill_attention"].seconds(TRUE["prefill_attention"], shape, CEILINGS)
    found = FORMS["prefill_attention"].predict(fit, shape, CEILINGS)
    assert found == pytest.approx(exact, rel=0.02)


def test_the_error_on_held_out_shapes_is_the_noise(written):
    _, profile = written
    for fits in profile.kernels.values():
        score = fits["bf16"].holdout
        assert score.median < 0.012  # of 1 % noise, 0.67 % is the median
        assert abs(score.bias) < 0.005


def test_the_file_is_a_gpu_that_a_run_can_name(written):
    path, profile = written
    gpu = catalog.gpu(path)
    assert gpu.profile.kernels.keys() == profile.kernels.keys()
    assert gpu.bandwidth == pytest.approx(1e10, rel=0.01)
    assert gpu.flops("bf16") == pytest.approx(8e11, rel=0.01)
    assert gpu.efficiency.operator_latency == pytest.approx(5e-6, rel=0.02)
    scenario = sim.load_scenario(
        {
            "model": "llama-3.2-1b",
            "fleet": {"gpu": str(path)},
            "engine": "ideal",
            "max_model_len": 2048,
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "fixed", "value": 5},
            },
            "run": {"requests": 8},
        }
    )
    summary = sim.simulate(scenario).summary
    own = summary["infersim"]
    assert "Measured on Some CPU" in own["provenance"]
    assert profile.date in own["provenance"]
    assert "GEMM" in own["provenance"]
    assert own["error_band"]["half"] < 0.25
    assert own["error_band"]["parts"]["kernels"] < own["error_band"]["throughput"]
    # eight prompts of 100 tokens: 2 FLOP a weight at 0.9 of 0.8 TFLOP/s, more than that in all
    layers = catalog.model("llama-3.2-1b").parameters - 128256 * 2048
    assert summary["duration"] > 2 * layers * 800 / (0.9 * 8e11)
    assert summary["duration"] < 3 * 2 * layers * 800 / (0.9 * 8e11)


@pytest.mark.slow
def test_a_gpu_of_the_catalogue_keeps_its_data_sheet(tmp_path):
    known = catalog.gpu("h200-sxm")
    ceilings = Ceilings(known.flops("bf16"), known.bandwidth, known.sms)
    shapes = [
        {"m": m, "n": n, "k": k}
        for m in (1, 8, 64, 128, 512, 2048)
        for n, k in ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (1024, 8192))
    ]
    form = gemm.form("bf16")
    true = {p.name: p.start for p in form.parameters} | {"cached": 1.0}
    columns = {name: np.array([float(s[name]) for s in shapes]) for name in shapes[0]}
    measured = rows("gemm", shapes, 0.01, seconds=form.seconds(true, columns, ceilings))
    profile = write_profile(measured, H200, tmp_path / "mine.yaml")
    gpu = catalog.gpu(tmp_path / "mine.yaml")
    assert gpu.title == f"{known.title}, measured"
    assert (gpu.memory, gpu.bandwidth, gpu.sms) == (known.memory, known.bandwidth, known.sms)
    assert profile.kernels["gemm"]["bf16"].form == ""
    assert profile.kernels["gemm"]["bf16"].parameters["cached"] == 1.0  # its buffers rotate


MOE = {
    "latency": 6e-5, "expert": 5e-5, "token": 4e-6, "compute": 0.8, "bandwidth": 0.6, "half": 6.0,
    "alone": 1.5, "norm": 2.0, "moved": 3.0,
}  # fmt: skip
SHAPES = [(512, 256, 2, 8), (768, 512, 4, 16), (1024, 512, 8, 32), (2048, 512, 2, 4),
          (256, 512, 2, 4), (512, 1024, 1, 16)]  # fmt: skip


def expert_rows():
    """Experts that follow the form exactly, by all three laws."""
    form, made = serial_experts.form("bf16"), []
    for hidden, width, chosen, experts in SHAPES:
        for tokens in (1, 2, 8, 32, 128, 512):
            for law in LAWS:
                named = {"hidden": hidden, "width": width, "chosen": chosen, "experts": experts}
                shape = {**named, "tokens": tokens, "gpus": 1, "matrices": 3}
                whole = whole_shape("moe", shape, law)
                columns = {name: np.array([float(value)]) for name, value in whole.items()}
                seconds = float(form.seconds(MOE, columns, CEILINGS)[0])
                kernel = f"{law}: experts one by one"
                made.append(Measurement("moe", "bf16", kernel, shape, seconds, None, None, 9, "ok"))
    return made


def test_experts_are_fitted_from_tables_that_do_not_name_what_was_drawn(tmp_path):
    basis = [row for row in all_rows() if row.operator in ("gemm", "memory", "norm")]
    path = tmp_path / "experts.yaml"
    fit = write_profile([*basis, *expert_rows()], CPU, path).kernels["moe"]["bf16"]
    assert fit.holdout.median < 0.01
    assert fit.form == serial.NAME
    assert not {"rows", "touched", "single", "tiles16"} & fit.ranges.keys()
    assert fit.ranges["tokens"] == (1.0, 512.0)
    assert fit.kernel == "experts one by one"
    found = fit_of(catalog.gpu(path), "bf16", "bf16", 1)
    one = MeasuredExperts(found, catalog.gpu(path), 1024, MixtureOfExperts(32, 8, 512))
    assert one.timing(100.0).measured == 1.0
    assert one.timing(100.0).error < 0.01


def test_too_little_is_not_fitted(tmp_path):
    few = [row for row in all_rows() if row.operator != "decode_attention"]
    few += [row for row in all_rows() if row.operator == "decode_attention"][:7]
    profile = write_profile(few, CPU, tmp_path / "few.yaml")
    assert "decode_attention" not in profile.kernels
    with pytest.raises(InfersimError, match="no copy and no product"):
        write_profile(few[:1], CPU, tmp_path / "none.yaml")
    with pytest.raises(InfersimError, match="nothing to fit"):
        write_profile(few[:3], H200, tmp_path / "none.yaml")
    assert not (tmp_path / "none.yaml").exists()


def test_knots_lie_where_the_data_do():
    form = FORMS["gemm"]
    data = to_data(form, [row for row in all_rows() if row.operator == "gemm"])
    axes = axes_of(form, data)
    assert axes["m"][0] == 0.0
    assert axes["m"][-1] == 12.0
    assert np.prod([len(axis) for axis in axes.values()]) <= len(data) / 2
    jumpy = jumpy_axes_of(form, data)
    assert jumpy["m"][:4] == (0.0, 2.0, 4.0, 6.0)  # 1, 4, 16 and 64 rows
    assert (jumpy["m"][-1], len(jumpy["k"])) == (12.0, 3)


TICK = 0.1
"""Seconds that pass from one reading of a calibration's clock to the next: a busy machine measures
as many points as an idle one."""


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="PyTorch is not installed")
def test_a_cpu_is_measured_fitted_and_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readings = itertools.count()
    ticking = partial(session.Suite, clock=lambda: TICK * next(readings))
    monkeypatch.setattr(session, "Suite", ticking)
    small = llama(hidden_size=256, num_attention_heads=4, num_key_value_heads=2,
                  intermediate_size=512, vocab_size=1024, max_position_embeddings=512)  # fmt: skip
    Path("small.json").write_text(json.dumps(small))
    # how steady this machine is, is another question
    arguments = ["--device", "cpu", "--time-budget", "60s", "--threads", "1", "--accept-drift"]
    arguments += ["--models", "./small.json", "--precision", "bf16", "--out", "here.yaml"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stdout + done.stderr
    gpu = catalog.gpu(Path("here.yaml"))
    assert "gemm" in gpu.profile.kernels
    text = (tmp_path / "here.yaml").read_text()
    assert str(tmp_path) not in text
    scenario = sim.load_scenario(
        {
            "model": "./small.json",
            "fleet": {"gpu": "./here.yaml"},
            "engine": "reference",
            "max_model_len": 512,
            "workload": {
                "arrivals": {"kind": "constant", "rate": 0.05},
                "prompt_tokens": {"kind": "fixed", "value": 64},
                "output_tokens": {"kind": "fixed", "value": 4},
            },
            "run": {"requests": 5},
        }
    )
    summary = sim.simulate(scenario).summary
    assert summary["completed"] == 5
    assert summary["infersim"]["error_band"]["measured"] > 0.5


def test_products_follow_the_library_where_their_matrix_was_measured(tmp_path):
    """A library whose times jump from one number of rows to the next, by a fifth or so, and at
    other numbers for each matrix: a table of all matrices would smooth that away."""
    shapes = [
        {"m": m, "n": n, "k": 1024}
        for n in (512, 1024, 2048, 2816)
        for m in (1, 2, 3, 4, 5, 6, 8, 16, 64)
    ]
    odd = np.exp(np.random.default_rng(3).normal(0, 0.2, len(shapes)))
    columns = {name: np.array([float(s[name]) for s in shapes]) for name in "mnk"}
    seconds = FORMS["gemm"].seconds(TRUE["gemm"], columns, CEILINGS) * odd
    measured = [row for row in all_rows() if row.operator != "gemm"]
    measured += rows("gemm", shapes, 0.001, seconds=seconds)
    measured += [row for row in all_rows() if row.operator == "gemm"]  # few rows of each
    write_profile(measured, CPU, tmp_path / "own.yaml")
    gpu = catalog.gpu(tmp_path / "own.yaml")
    known = gpu.profile.kernels["gemm"]["bf16"].known
    assert set(known.values) >= {(float(n), 1024.0) for n in (512, 1024, 2048, 2816)}
    assert (640.0, 512.0) not in known.values
    products = gemm_of(gpu, "bf16", "bf16")
    found = [float(products.timing(s["m"], s["n"], s["k"]).seconds) for s in shapes]
    assert np.array(found) == pytest.approx(seconds, rel=0.04)
