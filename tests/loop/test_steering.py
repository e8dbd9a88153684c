"""Replicas that operators drain, start and fail: how long each is held, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2, "price_per_gpu_hour": 3600},  # a dollar a second
    "workload": {
        "arrivals": {"kind": "constant", "rate": 4},
        "prompt_tokens": {"kind": "fixed", "value": 400},
        "output_tokens": {"kind": "fixed", "value": 200},
    },
    "run": {"requests": 240, "warmup": 0, "horizon": "60s"},
}


def steered(*steps: dict[str, Any], leap: bool = True) -> Any:
    """The run of the scenario with these ``steps``; a start takes 5 s."""
    steering = {"steps": list(steps), "cold_start": "5s"}
    return sim.simulate({**SCENARIO, "steering": steering}, leap=leap).record


def dollars(record: Any) -> float:
    """What the run cost, from its first arrival to its end at 60 s."""
    return float(sim.simulate(record.scenario).summary["infersim"]["cost"]["usd"])


@pytest.mark.parametrize("leap", [True, False])
def test_a_drained_replica_is_held_until_it_has_nothing_left(leap: bool) -> None:
    """From 20 s on it takes nothing; held to its last token, and again from 40 s, 5 s before it is
    ready. The other one is held all the time."""
    record = steered(
        {"at": 20, "do": "drain", "replica": 1}, {"at": 40, "do": "start", "replica": 1}, leap=leap
    )
    rows, held = record.requests, record.held
    mine = rows[rows["replica"] == 1]
    last = mine["finish"][mine["arrival"] < 20].max()
    assert 20 < last < 25
    spans = [(row["replica"], row["since"], row["until"]) for row in held]
    assert spans == [(0, 0.0, 60.0), (1, 0.0, last), (1, 40.0, 60.0)]
    assert mine["arrival"][mine["arrival"] > 20].min() >= 45


def test_what_is_given_back_is_not_paid() -> None:
    gone = steered({"at": 20, "do": "drain", "replica": 1})
    (until,) = gone.held["until"][gone.held["replica"] == 1]
    assert dollars(gone) == pytest.approx(60 + until, rel=1e-6)
    assert dollars(steered({"at": 20, "do": "drain", "replica": 1}, {"at": 20.1, "do": "start",
                            "replica": 1})) == pytest.approx(120, rel=1e-6)  # fmt: skip


def test_a_replica_that_failed_stays_held() -> None:
    """As one that fails by the scenario; drained before, it is given back when it fails."""
    failed = steered({"at": 20, "do": "fail", "replica": 1})
    assert not len(failed.held)
    assert dollars(failed) == pytest.approx(120, rel=1e-6)
    both = steered(
        {"at": 20, "do": "drain", "replica": 1}, {"at": 20.5, "do": "fail", "replica": 1}
    )
    own = both.held[both.held["replica"] == 1]
    assert np.array_equal(own["until"], [20.5])
