"""The reference engine on this CPU, for real and briefly: its run beside its prediction."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

from typer.testing import CliRunner

from calibrate.lazy_torch import torch
from sim.cli import app
from tests.engine_fixtures import write_tiny


def invoke(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def observed(tmp_path):
    """A real run of a burst."""
    threads = torch.get_num_threads()
    try:
        invoke("observe", write_tiny(tmp_path, "reference"), "--device", "cpu", "--threads", "1",
               "--precision", "bf16", "-o", tmp_path / "run")  # fmt: skip
    finally:
        torch.set_num_threads(threads)
    return tmp_path / "run"


def test_a_real_run_has_the_batches_that_are_predicted(observed, tmp_path):
    found = json.loads(invoke("validate-run", observed, "--json", "-o", tmp_path / "page.html"))
    agreement = found["composition"]["agreement"]
    assert agreement["first_difference"] is None
    assert agreement["same"] == agreement["observed"] == agreement["predicted"] > 50
    assert found["iterations"]["all"]["busy_observed"] > 0
    assert len(found["figures"]) == 24
    levels = {level["name"]: level for level in found["composition"]["levels"]}
    for name in ("iterations", "preemptions", "peak running", "KV used, peak"):
        assert levels[name]["observed"] == pytest.approx(levels[name]["predicted"])
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_an_engine_fitted_to_a_real_run_prices_it_better(observed, tmp_path):
    path = tmp_path / "cpu-engine.yaml"
    fit = json.loads(invoke("validate-run", observed, "--fit-engine", path, "--json"))
    assert fit["after"][0]["typical"] < fit["before"][0]["typical"]
    shown = invoke("validate-run", observed, "--no-page", "--set", f"engine={path}")
    assert "IN SAMPLE" in shown
