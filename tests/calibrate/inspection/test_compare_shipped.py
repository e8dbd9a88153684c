"""Two profiles of the catalogue side by side, every operator that they have."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from typer.testing import CliRunner

from sim.cli import app


@cache
def compared() -> list[dict[str, Any]]:
    """What the command says of each operator of the two."""
    done = CliRunner().invoke(app, ["calibrate", "diff", "h100-sxm", "h200-sxm", "--json"])
    assert done.exit_code == 0, done.output
    pairs: list[dict[str, Any]] = json.loads(done.stdout)["operators"]
    return pairs


def test_latent_attention_is_compared_over_usual_shapes() -> None:
    """The H200 is an H100 with 1.43 times its bandwidth: nothing of it takes longer by much."""
    pairs = compared()
    found = {(pair["operator"], pair["precision"]): pair["ratio"] for pair in pairs}
    for operator in ("mla_decode", "mla_prefill", "dsa_decode", "dsa_prefill"):
        for precision in ("bf16", "fp8"):
            ratio = found[operator, precision]
            assert ratio["shapes"] > 10
            assert 1 / 1.5 < ratio["p10"] <= ratio["median"] <= ratio["p90"] < 1.2


def test_experts_are_compared_as_they_are_predicted() -> None:
    """Over layers and tokens that both have measured, with the tables of known layers. The H200
    reads weights 1.43 times as fast, and multiplies no faster."""
    pairs = compared()
    found = {(pair["operator"], pair["precision"]): pair["ratio"] for pair in pairs}
    for operator, precision in (("moe", "bf16"), ("moe", "fp8"), ("moe_ranks", "fp8")):
        ratio = found[operator, precision]
        assert ratio["shapes"] > 40
        assert 1 / 1.6 < ratio["p10"] <= ratio["median"] <= ratio["p90"] < 1.1
    assert "hidden" in found["moe", "bf16"]["at"]
    assert all(pair["why"] == "" for pair in pairs)
