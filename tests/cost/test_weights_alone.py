"""Weights alone in few bits: Marlin reads them nearly as fast as full ones, gpt-fast does not."""

from __future__ import annotations

import pytest

from calibrate.scoring.presets import engine_file
from sim import catalog
from sim.cost.rooflines import MARLIN_BANDWIDTH
from sim.errors import UsageError
from sim.result import simulate
from sim.scenario import load_scenario

ASKED = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "l4"},
    "engine": "ideal",
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 64},
        "output_tokens": {"kind": "fixed", "value": 8},
    },
    "run": {"requests": 1},
}


def token(engine: str, weights: str) -> float:
    """Time of a token on a card without kernel timings, one request alone."""
    asked = load_scenario(ASKED).override({"engine": engine, "precision.weights": weights})
    found: float = simulate(asked).summary["mean_tpot_ms"]
    return found


def test_marlin_reads_int4_nearly_as_fast_as_gemms_read_16_bits() -> None:
    """A little over a quarter of the time, for its scales and what is not quantised."""
    assert 0.26 < token("vllm", "int4-group") / token("vllm", "bf16") < 0.42
    assert pytest.approx(3.87 / 4, abs=0.005) == MARLIN_BANDWIDTH


def test_an_engine_may_state_its_own() -> None:
    own = engine_file("gpt-fast")
    assert catalog.engine(own).weight_only["int4"] == 0.5
    assert token(own, "int4-group") > 1.3 * token("ideal", "int4-group")


def test_states_have_the_format_that_is_asked_for() -> None:
    asked = load_scenario(ASKED).override({"model": "qwen3.5-27b", "fleet.0.gpu": "h100-sxm"})
    half, full = (simulate(asked.override({"precision.state": name})) for name in ("fp16", "fp32"))
    assert half.summary["mean_tpot_ms"] < full.summary["mean_tpot_ms"]
    model = half.record.pools[0].deployment.model
    states = {getattr(group.attention, "state_precision", None) for group in model.layers}
    assert states == {"fp16", None}
    with pytest.raises(UsageError, match=r"llama-3\.1-8b has no layers with states"):
        simulate(load_scenario(ASKED).override({"precision.state": "fp16"}))
