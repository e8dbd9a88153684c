"""Requests that are refused because they would be late: who, and what that is good for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.errors import ScenarioError
from sim.request import Refusal

SCENARIO: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "a10g"},
    "engine": "ideal",
    "max_model_len": 2048,
    "scheduler": {"max_num_seqs": 16},
    "admission": {"policy": "deadline"},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 60},
        "prompt_tokens": {"kind": "fixed", "value": 800},
        "output_tokens": {"kind": "fixed", "value": 40},
    },
    "slo": {"ttft": "500ms"},
    "run": {"requests": 1500, "warmup": 0},
}
"""Twice what the GPU computes."""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_overload_is_served_as_far_as_it_goes(seed: int) -> None:
    """Without admission everybody waits for everybody and nearly all are late; with it, nine of ten
    who are taken are in time, and the GPU is as busy with them."""
    shed = sim.simulate({**SCENARIO, "seed": seed})
    all_taken = sim.simulate({**SCENARIO, "seed": seed, "admission": None})
    own = shed.summary["infersim"]["requests"]
    assert own["completed"] + own["rejected"] == 1500
    refused = shed.requests["status"] == "rejected"
    assert set(shed.requests["reason"][refused]) == {Refusal.LATE}
    taken = shed.record.completed
    late = shed.record.ttft[taken] > 0.5
    assert late.mean() < 0.1
    served = shed.summary["request_throughput"]
    assert served > 0.97 * all_taken.summary["request_throughput"]
    assert all_taken.summary["request_goodput"] < 0.05 * shed.summary["request_goodput"]


def test_nobody_is_refused_where_there_is_room() -> None:
    easy = {**SCENARIO["workload"], "arrivals": {"kind": "poisson", "rate": 5}}
    result = sim.simulate({**SCENARIO, "workload": easy})
    plain = sim.simulate({**SCENARIO, "workload": easy, "admission": None})
    assert result.record.requests.tobytes() == plain.record.requests.tobytes()


def test_a_prompt_that_alone_takes_longer_than_its_deadline_is_refused() -> None:
    """The expectation is the prompt at the speed of a full iteration, and half of the deadline may
    be expected to pass: between deadlines of half the latency and of four times, the answer
    changes."""
    one = {**SCENARIO, "run": {"requests": 1, "warmup": 0}}
    alone = float(sim.simulate({**one, "admission": None}).record.ttft[0])
    kinds = [
        np.isnan(sim.simulate({**one, "slo": {"ttft": alone * times}}).record.ttft[0])
        for times in (0.5, 4.0)
    ]
    assert kinds == [True, False]


@pytest.mark.parametrize(("engine", "refused"), [("vllm", True), ("ideal", False)])
def test_the_time_that_a_request_has_waited_already_counts(engine: str, refused: bool) -> None:
    """One token is computed in far less than 5 ms, but 8 have passed in the front end of vLLM."""
    workload = {**SCENARIO["workload"], "prompt_tokens": {"kind": "fixed", "value": 1}}
    one = {"engine": engine, "workload": workload, "run": {"requests": 1, "warmup": 0}}
    result = sim.simulate({**SCENARIO, **one, "slo": {"ttft": "10ms"}})
    assert (result.summary["infersim"]["requests"]["rejected"] == 1) is refused


def test_classes_have_their_own_deadlines() -> None:
    classes = [
        {"name": "soon", "share": 0.5, "deadline": "300ms"},
        {"name": "later", "share": 0.5, "deadline": "3s"},
    ]
    workload = {**SCENARIO["workload"], "classes": classes}
    rows = sim.simulate({**SCENARIO, "workload": workload, "slo": {}}).requests
    refused = (rows["status"] == "rejected").groupby(rows["class"]).mean()
    assert refused["soon"] > refused["later"] + 0.2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"slo": {}}, "no request has a deadline"),
        ({"scheduler": {"order": "sjf"}}, "not modelled for the order sjf"),
        ({"scheduler": {"client_timeout": "9s"}}, "send again what was refused"),
    ],
)
def test_what_is_not_modelled_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        sim.load_scenario({**SCENARIO, **changes})
