"""vLLM's own CPU operators as benchmarks: which points there are, and that they compute right."""

from __future__ import annotations

import importlib.util
import json

import pytest

pytest.importorskip("torch", reason="benchmarks need PyTorch")

from typer.testing import CliRunner

from calibrate.bench import families, vllm_cpu
from calibrate.bench.base import Scope, UnsupportedError
from calibrate.bench.decode_attention import point as decode_point
from calibrate.bench.gemm import layer_shapes
from calibrate.bench.gemm import point as product_point
from calibrate.bench.heads import Heads, layouts
from calibrate.bench.prefill_attention import point as prefill_point
from calibrate.lazy_torch import torch
from sim import catalog
from sim.cli import app
from tests.bench_fixtures import small_arena

MODEL = catalog.model("llama-3.2-1b")
HAVE_VLLM = importlib.util.find_spec("vllm") is not None
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
needs_vllm = pytest.mark.skipif(not HAVE_VLLM, reason="vllm is not installed")


def scope(kernels):
    return Scope("cpu", 2**33, 1, [MODEL], ["fp32"], tensor_parallel=(1,), kernels=kernels)


def test_an_engines_kernels_are_timed_at_the_models_own_shapes():
    found = families(scope("vllm"))
    operators = {name for family in found for name in family.shares}
    assert {"gemm", "decode_attention", "prefill_attention", "norm", "memory"} <= operators
    assert not {"layer", "launch", "file_to_device", "all_reduce"} & operators
    points = [point for family in found for point in family.points(scope("vllm"))]
    shapes = {(p.size("n"), p.size("k")) for p in points if p.operator == "gemm"}
    assert shapes == set(layer_shapes(MODEL, 1).values())
    heads = {p.size("q_heads") for p in points if p.operator.endswith("attention")}
    assert heads == {32}
    assert layouts(scope("vllm")) == {Heads(32, 8, 64): 1.0}
    longest = MODEL.max_position_embeddings
    for p in points:
        if p.operator == "prefill_attention":
            assert p.size("tokens") + p.size("context") <= longest


def test_of_pytorchs_nothing_is_left_out():
    torchs = [p.key for family in families(scope("torch")) for p in family.points(scope("torch"))]
    own = [p.key for family in families(scope("vllm")) for p in family.points(scope("vllm"))]
    assert set(own) < set(torchs)
    assert scope("torch").longest == float("inf")
    assert scope("vllm").turnover == MODEL.weight_bytes("fp32")


@pytest.mark.skipif(HAVE_VLLM, reason="vllm is installed")
def test_without_vllm_that_is_said(tmp_path):
    with pytest.raises(UnsupportedError, match="install infersim"):
        vllm_cpu.operators()
    done = CliRunner().invoke(
        app, ["calibrate", "--device", "cpu", "--kernels", "vllm", "-o", str(tmp_path / "x.yaml")]
    )
    assert done.exit_code == 2
    assert "--kernels vllm: " in done.output
    assert "Traceback" not in done.output


def test_only_on_a_cpu(tmp_path):
    done = CliRunner().invoke(
        app, ["calibrate", "--device", "cuda", "--kernels", "vllm", "-o", str(tmp_path / "x.yaml")]
    )
    assert done.exit_code == 2
    assert "only on a CPU" in done.output


def test_tables_of_two_libraries_do_not_mix(tmp_path):
    table = tmp_path / "x.csv"
    table.write_text("")
    (tmp_path / "x.csv.meta.json").write_text(json.dumps({"device": {}, "kernels": "vllm"}))
    done = CliRunner().invoke(
        app, ["calibrate", "--device", "cpu", "-o", str(tmp_path / "x.yaml"), "--resume"]
    )
    assert done.exit_code == 2
    assert "holds timings of vllm's kernels, not of torch's" in done.output


@needs_vllm
@pytest.mark.parametrize("heads", [Heads(12, 4, 64), Heads(4, 4, 128)])
def test_its_attention_is_attention(heads):
    assert vllm_cpu._agrees(small_arena(), heads, "fp32")


@needs_vllm
def test_its_products_are_products_over_matrices_that_stay_packed():
    arena = small_arena()
    products = vllm_cpu.Products(turnover=3 * 64 * 32 * 4)
    work = products.work(product_point("fp32", 5, 64, 32), arena)
    assert len(work.calls) == 3
    assert work.calls[0]().shape == (5, 64)
    assert torch.isfinite(work.calls[0]()).all()
    again = products.work(product_point("fp32", 7, 64, 32), arena)
    assert len(again.calls) == 3
    assert len(products._packed) == 1


@needs_vllm
def test_every_family_prepares_its_points():
    arena, heads = small_arena(), Heads(4, 2, 64)
    _, decode, prefill, *_ = families(scope("vllm"))
    for family, made in (
        (decode, decode_point("fp32", 3, 40, heads)),
        (prefill, prefill_point("fp32", 2, 17, 30, heads)),
    ):
        work = family.prepare(made, arena)
        work.calls[0]()
        assert "paged cache" in work.kernel
