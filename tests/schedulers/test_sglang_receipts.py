"""SGLang's interval between looks for new requests (``--scheduler-recv-interval``)."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.errors import ScenarioError

ASKED = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "sglang",
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 4},
        "prompt_tokens": {"kind": "fixed", "value": 256},
        "output_tokens": {"kind": "uniform", "low": 40, "high": 120},
    },
    "run": {"requests": 60, "warmup": 0},
}


def served(interval: int, *, ahead: bool = True, **changes: Any) -> sim.Result:
    knobs = {"scheduler_recv_interval": interval, "async_scheduling": ahead}
    return sim.simulate(sim.load_scenario({**ASKED, "scheduler": knobs, **changes}))


@pytest.mark.parametrize("ahead", [True, False])
def test_requests_wait_half_an_interval_of_decodes_on_average(ahead: bool) -> None:
    found = [served(interval, ahead=ahead).summary for interval in (1, 10, 40)]
    waits = [each["mean_ttft_ms"] - found[0]["mean_ttft_ms"] for each in found]
    step = found[0]["median_itl_ms"]
    assert all(each["completed"] == 60 for each in found)
    assert 0.3 * 10 * step < waits[1] < 0.8 * 10 * step
    assert waits[2] > 2 * waits[1]
    assert waits[2] < 40 * step


@pytest.mark.parametrize("ahead", [True, False])
def test_an_engine_at_rest_receives_at_once(ahead: bool) -> None:
    """One client: nothing runs when its next request comes."""
    alone = {**ASKED["workload"], "arrivals": {"kind": "closed", "concurrency": 1}}
    first, late = (served(each, ahead=ahead, workload=alone) for each in (1, 40))
    assert late.summary["mean_ttft_ms"] == pytest.approx(first.summary["mean_ttft_ms"])


def test_it_is_a_key_of_sglang_alone() -> None:
    with pytest.raises(ScenarioError, match="scheduler_recv_interval is a key of `policy: sgl"):
        served(10, engine="vllm")


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("arrivals", ["closed", "poisson"])
def test_leaps_are_the_iterations_one_by_one(ahead: bool, arrivals: str) -> None:
    laws = {"closed": {"concurrency": 4}, "poisson": {"rate": 30}}
    workload = {**ASKED["workload"], "arrivals": {"kind": arrivals, **laws[arrivals]}}
    knobs = {"scheduler_recv_interval": 7, "async_scheduling": ahead}
    scenario = sim.load_scenario({**ASKED, "workload": workload, "scheduler": knobs})
    leaps, steps = (sim.simulate(scenario, leap=each).record for each in (True, False))
    assert leaps.requests.tobytes() == steps.requests.tobytes()
    assert leaps.end == steps.end
