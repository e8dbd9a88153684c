"""What a page is headed by: the traffic, the SLO and the changes that were really run."""

from __future__ import annotations

import pytest

import sim
from reports import render
from reports.frame.page import question
from sim.band_runs import run_ends
from sim.metrics.question.question_text import asked, changed
from tests.places import ROOT

CHAT = ROOT / "scenarios" / "chat.yaml"


def test_the_load_is_that_of_the_run_and_the_change_is_named() -> None:
    scenario = sim.load_scenario(CHAT, ["workload.arrivals.rate=25", "fleet.0.gpu=l40s"])
    found = asked(scenario) | changed(scenario)
    assert found["traffic"] == "25 requests/s, Poisson"
    assert found["lengths"] == "prompts 800, answers 220 tokens (mean)"
    assert found["slo"] == "99% of requests within TTFT 500 ms and TPOT 40 ms"
    assert found["changes"] == [
        "workload.arrivals.rate: 6.0 -> 25",
        "fleet.0.gpu: h100-sxm -> l40s",
    ]
    assert not found["still_asks"]


def test_the_description_stands_while_only_the_length_of_the_run_changes() -> None:
    found = changed(sim.load_scenario(CHAT, ["run.requests=100", "seed=7"]))
    assert found["still_asks"]
    assert found["changes"] == ["run.requests: 5000 -> 100", "seed: 42 -> 7"]
    assert changed(sim.load_scenario(CHAT))["changes"] == []


def test_what_a_study_varies_is_not_the_scenarios() -> None:
    chat, varied = sim.load_scenario(CHAT), ["workload.arrivals.rate"]
    found = asked(chat, varied) | changed(chat, varied)
    assert found["traffic"] == ""
    assert found["lengths"]
    assert not found["still_asks"]


@pytest.mark.parametrize(
    ("arrivals", "text"),
    [
        ({"kind": "burst"}, "40 requests at once"),
        ({"kind": "closed", "concurrency": 8}, "8 users in a closed loop"),
        ({"kind": "gamma", "rate": 2, "cv": 4}, "2 requests/s, bursty (CV 4)"),
        (
            {"kind": "ramp", "rate": 1, "final_rate": 9, "duration": "10min"},
            "1 to 9 requests/s over 10 min",
        ),
    ],
)
def test_every_law_of_arrivals_is_named(arrivals: dict[str, object], text: str) -> None:
    scenario = sim.load_scenario(CHAT).override({"workload.arrivals": arrivals, "run.requests": 40})
    assert asked(scenario)["traffic"] == text


def test_a_page_shows_the_load_and_not_an_outdated_question() -> None:
    scenario = sim.load_scenario(CHAT, ["workload.arrivals.rate=25", "run.requests=600"])
    result = sim.simulate(scenario)
    ends = run_ends(scenario, result.summary)
    assert ends is not None
    result.add_ends(ends)
    page = render(**result.page_contents())
    head = page.split("<main")[0]
    assert "25 requests/s, Poisson" in head
    assert "at 6 requests per second" not in head
    assert "workload.arrivals.rate: 6.0 \u2192 25" in head
    assert "<title>chat: 25 requests/s, Poisson on 1 \u00d7 h100-sxm, predicted run" in page
    assert ends["text"] in page.replace("\u202f%", "%")
    assert "error band</span>" not in page


def test_results_of_older_versions_keep_their_description() -> None:
    assert question("chat", "fleets", None, "Does it hold?")["lead"] == "Does it hold?"
