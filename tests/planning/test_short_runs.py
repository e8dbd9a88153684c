"""Decisions that rest on short runs use the state of the SLO that the run states."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console, RenderableType

import sim
from sim.planning.answers import findings_of
from sim.planning.causes.diagnose import diagnose
from sim.planning.causes.diagnose_document import document as diagnosis_document
from sim.planning.causes.sensitivity import document as sensitivity_document
from sim.planning.causes.sensitivity import sensitivity
from sim.planning.points.executors import local
from sim.planning.points.grid import Axis
from sim.planning.sweep.sweep import Sweep, document
from sim.scenario import load_scenario
from tests.answers import render_sweep, sensitivity_view, sweep_view
from tests.places import CHAT

SHORT = 400
"""Requests that do not fill the batches of the chat scenario."""


def chat(rate: float, **changes: object) -> sim.Scenario:
    asked = {"workload.arrivals.rate": rate, "run.requests": SHORT, **changes}
    return load_scenario(CHAT).override(asked)


def swept(scenario: sim.Scenario, *rates: float) -> dict[str, Any]:
    asked = Sweep(scenario, (Axis("workload.arrivals.rate", rates),))
    return document(asked, list(local(1).run(scenario, asked.grid)))


def shown(view: RenderableType) -> str:
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return " ".join(captured.get().split())


def test_a_load_above_the_capacity_is_not_met_in_a_sweep() -> None:
    found = swept(chat(10.0, **{"slo.attainment": 0.95}), 15.0, 27.33)
    (answer,) = found["answers"]
    assert (answer["meets"], answer["misses"], answer["open"]) == (15.0, None, [27.33])
    assert answer["text"] == "SLO met up to 15 requests/s; too close to call at 27.33"
    told = shown(sweep_view(found))
    assert "and a longer one may miss it; " in told
    assert "the interval contains the target" not in told
    assert "too close to call at 27.33" in render_sweep(found)


def test_the_page_of_a_sweep_does_not_name_a_short_run_as_the_best_within_the_slo() -> None:
    found = swept(chat(10.0, **{"slo.attainment": 0.95}), 15.0, 27.33)
    several = {**found, "answers": []}
    assert findings_of("sweep", several).headline.title.endswith(" tokens/s, with 15 requests/s")
    none = {**several, "results": 2 * found["results"][1:]}
    headline = findings_of("sweep", none).headline
    assert headline.title == "None of 2 points meets the SLO for sure"
    assert headline.tone == "warn"


@pytest.mark.slow
def test_diagnose_says_what_run_says_of_a_short_run() -> None:
    found = diagnose(chat(27.33, **{"slo.attainment": 0.95}), local(1), target="x.yaml")
    told = diagnosis_document(found)
    assert found.slo == "too close to call"
    assert not found.at_ease
    assert told["verdict"]["slo_state"] == "too close to call"
    assert told["headline"].startswith("The SLO is too close to call: 99.")
    assert "so far, 95% are asked for. More seems to arrive than" in told["headline"]
    enough = told["verdict"]["requests_to_decide"]
    assert f"Simulate {enough:,} requests or more." in told["headline"]
    assert "Do that before changing anything." in told["headline"]
    few = next(trial for trial in told["trials"] if trial["name"] == "utilization")
    assert "SLO too close to call, still 99." in few["told"]


def test_sensitivity_names_the_inputs_that_a_short_run_leaves_open() -> None:
    told = sensitivity_document(sensitivity(chat(17.5), local(1)))
    assert told["flips"] == []
    assert "no input alone is sure to flip it" in told["answer"]
    assert "Too close to call: " in told["answer"]
    assert "prompt lengths x 1.2" in told["answer"]
    (short,) = (note for note in told["notes"] if note.startswith("Too few requests for a p99"))
    assert short in shown(sensitivity_view(told))
