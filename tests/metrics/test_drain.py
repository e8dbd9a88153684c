"""A token costs what it does while requests come, not what the end of a run makes of it."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.cost.power import PowerModel
from sim.result import Result

PRICE = 3.6
"""USD per GPU hour: a thousandth of a dollar a second."""


def run(rate: float, **changes: Any) -> Result:
    """100 requests of 900 tokens of answer: each takes long to end after the last has come."""
    scenario = {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm", "price_per_gpu_hour": PRICE},
        "max_model_len": 2048,
        "workload": {
            "arrivals": {"kind": "constant", "rate": rate},
            "prompt_tokens": {"kind": "fixed", "value": 100},
            "output_tokens": {"kind": "fixed", "value": 900},
        },
        "run": {"requests": 100},
    }
    return sim.simulate(scenario | changes)


def noted(result: Result) -> list[str]:
    notes = result.summary["infersim"]["notes"]
    return [note for note in notes if "only finished what it had begun" in note]


def test_a_token_costs_the_rate_at_which_requests_come() -> None:
    """10 requests/s of 900 tokens are 9,000 tokens a thousandth of a dollar, however long the last
    answers take after that."""
    result = run(10.0)
    duration, cost = result.summary["duration"], result.summary["infersim"]["cost"]
    assert duration > 12
    assert cost["usd"] == pytest.approx(PRICE / 3600 * duration)
    assert cost["usd_per_million_output_tokens"] == pytest.approx(1e-3 / 9000 * 1e6)
    assert cost["usd_per_million_tokens"] == pytest.approx(1e-3 / 10_000 * 1e6)
    (note,) = noted(result)
    assert note.startswith("10 requests/s were accepted and served while they came")


def test_a_token_draws_what_it_does_without_the_rest_at_the_end() -> None:
    """Joules of a token are those of the run less the rest of the GPU after the last arrival."""
    result = run(10.0)
    energy, duration = result.summary["infersim"]["energy"], result.summary["duration"]
    whole = energy["mean_watts_per_gpu"] * duration
    rest = whole - energy["joules_per_output_token"] * 90_000
    idle = rest / (duration - 10.0)
    assert idle == pytest.approx(PowerModel(result.record.pools[0].deployment).idle)
    assert energy["joules_per_request"] == pytest.approx(900 * energy["joules_per_output_token"])


def test_a_long_run_has_no_drain_to_name() -> None:
    assert noted(run(1.0, run={"requests": 400})) == []


@pytest.mark.parametrize(
    "arrivals", [{"kind": "closed", "concurrency": 8}, {"kind": "burst"}], ids=["closed", "burst"]
)
def test_requests_that_do_not_come_by_the_clock_cost_the_whole_run(arrivals: Any) -> None:
    workload = {
        "arrivals": arrivals,
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 900},
    }
    result = run(0.0, workload=workload)
    cost = result.summary["infersim"]["cost"]
    assert cost["usd_per_million_output_tokens"] == pytest.approx(cost["usd"] / 90_000 * 1e6)
    assert noted(result) == []


def test_an_overloaded_fleet_costs_the_whole_run() -> None:
    """It works on at its capacity after the last arrival."""
    result = run(200.0, run={"requests": 3000})
    cost, outputs = result.summary["infersim"]["cost"], result.summary["total_output_tokens"]
    assert result.summary["infersim"]["verdict"]["state"] == "overloaded"
    assert cost["usd_per_million_output_tokens"] == pytest.approx(cost["usd"] / outputs * 1e6)
