"""A scenario that states no formats has those in which its model is published."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.scenario import Scenario, load_scenario
from tests.planning_fixtures import SMALL


def formats(model: str, gpu: str = "h100-sxm", **precision: Any) -> dict[str, Any]:
    found = load({"model": model, "fleet": {"gpu": gpu, "tensor_parallel": 8}}, precision)
    return found.precision.model_dump(exclude={"quantisation", "kv_cache"})


def load(changes: dict[str, Any], precision: dict[str, Any]) -> Scenario:
    return load_scenario({**SMALL, **changes, **({"precision": precision} if precision else {})})


def test_a_checkpoint_is_loaded_as_it_is_published() -> None:
    gpt = {"weights": "bf16", "activations": "bf16", "experts": "mxfp4"}
    assert formats("gpt-oss-120b") == gpt
    fp8 = {"weights": "fp8-block", "activations": "fp8", "experts": None}
    assert formats("deepseek-v3") == fp8
    assert formats("llama-3.1-8b")["weights"] == "bf16"


def test_what_is_written_comes_first() -> None:
    wide = {"weights": "bf16", "activations": "bf16", "experts": None}
    assert formats("gpt-oss-120b", weights="bf16") == wide
    assert formats("deepseek-v3", weights="bf16") == wide
    assert formats("deepseek-v3", activations="bf16") == {
        "weights": "fp8-block", "activations": "bf16", "experts": None,
    }  # fmt: skip
    assert formats("deepseek-v3", experts="nvfp4")["experts"] == "nvfp4"


def test_products_are_of_16_bits_where_a_gpu_has_no_narrower_ones() -> None:
    found = formats("deepseek-v3", gpu="a100-sxm-80gb")
    assert found == {"weights": "fp8-block", "activations": "bf16", "experts": None}


def test_another_model_is_stored_in_its_own_formats() -> None:
    given = {**SMALL, "model": "gpt-oss-20b", "fleet": [{"gpu": "h100-sxm"}]}
    scenario = load_scenario(given)
    assert scenario.precision.experts == "mxfp4"
    assert scenario.override({"model": "llama-3.1-8b"}).precision.experts is None
    again = load_scenario(scenario.resolved())
    assert again.precision == scenario.precision


@pytest.mark.parametrize(
    ("given", "experts"),
    [([], "mxfp4"), (["--weights", "bf16"], "bf16"), (["--weights", "fp8"], "fp8")],
)
def test_fit_counts_what_is_published_unless_asked_otherwise(
    given: list[str], experts: str
) -> None:
    shown = CliRunner().invoke(app, ["fit", "gpt-oss-20b", "--gpu", "h100-sxm", *given])
    assert shown.exit_code == 0, shown.output
    line = next(line for line in shown.output.splitlines() if "  experts " in line)
    assert f"in {experts} " in line
    assert ("is published in mxfp4" in " ".join(shown.output.split())) == bool(given)
