"""The real conversation trace, where it is at hand: an hour of traffic on one H100."""

from __future__ import annotations

import pytest

import sim
from tests.places import SHARED, VLLM

TRACE = SHARED / "data" / "traces" / "azure_conv_2023.csv"
pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"the trace is not at {TRACE}")


@pytest.mark.parametrize(("time_scale", "state"), [(1.0, "stable"), (0.25, "overloaded")])
def test_every_request_is_accounted_for(time_scale: float, state: str) -> None:
    scenario = sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": VLLM,
            "workload": {"trace": {"path": str(TRACE), "time_scale": time_scale}},
        }
    )
    summary = sim.simulate(scenario).summary
    assert summary["completed"] == 19_366
    assert summary["failed"] == 0
    assert summary["total_input_tokens"] == 22_361_870
    assert summary["infersim"]["verdict"]["state"] == state
