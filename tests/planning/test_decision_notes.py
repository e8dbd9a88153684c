"""What a run says of itself, every decision that is made of runs says too, in terminal and page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from sim import simulate
from sim.errors import UsageError
from sim.planning.answers.ablate import headline as ablation_headline
from sim.planning.causes.ablate import ablate
from sim.planning.causes.ablate import document as ablation
from sim.planning.causes.diagnose import diagnose
from sim.planning.causes.diagnose_document import document as diagnosis
from sim.planning.causes.sensitivity import document as sensitivity_document
from sim.planning.causes.sensitivity import sensitivity
from sim.planning.contrast.compare import Comparison
from sim.planning.fleet.choose import choose
from sim.planning.fleet.constraints import Constraints
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.fleet.plan_document import document as plan_document
from sim.planning.load.find import find
from sim.planning.load.find_document import document as find_document
from sim.planning.load.loads import further_notes
from sim.planning.points.executors import local
from sim.planning.points.footnote_words import footnotes, notes_of
from sim.planning.points.grid import Axis
from sim.planning.sweep.sweep import Sweep
from sim.planning.sweep.sweep import document as sweep_document
from sim.scenario import Scenario
from sim.terminal.console import as_text
from tests.answers import (
    ablate_view,
    compare_view,
    find_view,
    headlines,
    plan_view,
    render_ablation,
    render_compare,
    render_find,
    render_plan,
    render_sensitivity,
    render_sweep,
    sensitivity_view,
    sweep_view,
)
from tests.planning_fixtures import small
from tests.report_fixtures import on_page

pytestmark = pytest.mark.usefixtures("brief_answers")

EXPERTS = str(Path(__file__).parents[1] / "models" / "tiny-experts")
TIMED = (
    "Experts are timed from the GPU's data sheet, since its profile has no kernel timings of them"
)
DAY = {"kind": "diurnal", "rate": 2, "peak_rate": 30, "period": "20s"}
CUT = small(workload__arrivals=DAY, run={"requests": 40}, slo={"ttft": "60s", "attainment": 0.5})


def swept(scenario: Scenario, *axis: Any) -> dict[str, Any]:
    sweep = Sweep(scenario, (Axis(axis[0], axis[1:]),))
    return sweep_document(sweep, list(local(1).run(scenario, sweep.grid)))


def compared(scenario: Scenario, *axis: Any) -> dict[str, Any]:
    return Comparison(scenario, (Axis(axis[0], axis[1:]),), wanted=1).run(local(1))


def words(page: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", page)).split())


def shown(view: Any) -> str:
    return " ".join(as_text(view).split())


def test_a_sweep_and_a_comparison_of_a_part_of_a_day_say_that_its_peak_is_missing() -> None:
    note = simulate(CUT).summary["infersim"]["notes"][0]
    assert "its peak at 10 s is not in it" in note
    points = swept(CUT, "fleet.0.replicas", 1, 2)
    variants = compared(CUT, "fleet.0.replicas", 1, 2)
    for text in (
        *(shown(sweep_view(points)), words(render_sweep(points))),
        *(shown(compare_view(variants)), words(render_compare(variants))),
    ):
        assert note in text
    assert f"?: too close to call. {note}" in shown(sweep_view(points))
    whole = swept(CUT.override({"run.requests": 320}), "fleet.0.replicas", 1, 2)
    assert "ends after" not in shown(sweep_view(whole))


def test_a_part_of_a_day_needs_more_than_nothing() -> None:
    found = diagnosis(diagnose(CUT, local(1), target="x.yaml"))
    assert not found["at_ease"]
    assert (
        "its peak at 10 s is not in it. For a whole cycle: run.requests=320." in found["headline"]
    )
    assert found["headline"].endswith("Do that before changing anything.")


def test_a_note_that_some_points_have_names_them() -> None:
    found = swept(CUT, "run.requests", 40, 320)
    (note,) = [text for text in found["run_notes"] if "ends after" in text]
    assert note.startswith("requests=40: The run ends after ")
    runs = [(label, simulate(CUT).summary) for label in ("a", "a", "b")]
    assert notes_of(runs) == [runs[0][1]["infersim"]["notes"][0]]


def test_a_note_whose_numbers_differ_names_whose_they_are() -> None:
    def run(label: str, most: int) -> tuple[str, dict[str, Any]]:
        return label, {"infersim": {"notes": [f"Drafts pay with up to {most} requests."]}}

    told = notes_of([run("16", 16), run("64", 64), run("256", 107)])
    assert told == ["16: Drafts pay with up to 16 requests."]
    told = notes_of([run("16", 107), run("64", 107), run("256", 99)])
    assert told == ["16 and 1 more: Drafts pay with up to 107 requests."]
    assert notes_of([run("16", 9), run("64", 9)]) == ["Drafts pay with up to 9 requests."]


def test_a_sweep_and_a_comparison_say_how_sure_their_metrics_are() -> None:
    asked = small(run__requests=60)
    points = swept(asked, "workload.arrivals.rate", 1.0, 40.0)
    variants = compared(asked, "fleet.0.gpu", "h100-sxm", "l4")
    bands = [row["summary"]["infersim"]["error_band"] for row in points["results"]]
    widest = max(bands, key=lambda band: band["throughput"])["text"]
    told = f"How sure, where the band is widest: {widest}"
    assert told in shown(sweep_view(points))
    assert on_page(told) in words(render_sweep(points))
    (sure,) = [note for note in variants["notes"] if note.startswith("How sure, where the band")]
    l4 = simulate(asked.override({"fleet.0.gpu": "l4"})).summary["infersim"]["error_band"]
    assert sure.endswith(l4["text"])
    assert sure in shown(compare_view(variants))
    assert on_page(sure) in words(render_compare(variants))


def test_a_sensitivity_is_judged_and_sure_as_run_is() -> None:
    asked = small(run__requests=200, slo={"tpot": "7.1ms", "attainment": 0.9})
    found = sensitivity(asked, local(1))
    told = sensitivity_document(found)
    assert told["verdict"]["slo_doubts"] == ["band"]
    start = "Is the SLO met? Too close to call, missed at the predicted times, "
    assert told["answer"].startswith(start)
    own = found.base["infersim"]
    lines = [*told["footnotes"], f"How sure: {own['error_band']['text']}", own["ends"]["text"]]
    assert any(line.startswith("?: too close to call, the error band") for line in lines)
    for line in lines:
        assert line in shown(sensitivity_view(told))
        assert on_page(line) in words(render_sensitivity(told))


def test_the_mark_is_explained_where_it_is_shown_and_nowhere_else() -> None:
    clear = swept(small(run__requests=1500), "workload.arrivals.rate", 2.0)
    assert clear["results"][0]["summary"]["infersim"]["verdict"]["slo_state"] == "met"
    assert "?" not in shown(sweep_view(clear))
    met = {"slo_state": "met", "slo_doubts": [], "requests_to_decide": None}
    chance = {"slo_state": "too close to call", "slo_doubts": ["chance"], "cut": None}
    pace = {"trace": None, "horizon": 5.0, "requests": 60, "rate": 20.0, "curve": None}
    both = [met, {**chance, "requests_to_decide": 9000, "reach": pace}]
    assert footnotes([met]) == []
    assert footnotes(both) == [
        "?: too close to call, the interval contains the target; up to 9,000 requests "
        "(run.requests=9000 and run.horizon=450) would decide."
    ]
    banded = {**chance, "slo_doubts": ["band"], "requests_to_decide": None}
    partly = {**banded, "slo_doubts": ["band", "chance at an end"]}
    open_by_band = "?: too close to call, the error band of the predicted times leaves it open; "
    where = "where an interval, or that of an end, contains the target."
    assert footnotes([partly]) == [f"{open_by_band}more requests narrow it {where}"]
    assert footnotes([banded, partly]) == [f"{open_by_band}more requests narrow it only {where}"]
    assert footnotes([banded]) == [
        "?: too close to call, the error band of the predicted times leaves it open; more "
        "requests do not narrow it."
    ]


def test_every_decision_says_that_experts_are_timed_from_the_data_sheet() -> None:
    """In int8, that is, of which no kernel was timed; of 16 bits some were."""
    timed = small(model=EXPERTS, run__requests=60, slo={"ttft": "2s", "tpot": "1s"})
    assert further_notes(timed) == ["Every expert is taken to be chosen equally often."]
    asked = timed.override({"precision.weights": "int8"})
    assert any(TIMED in note for note in simulate(asked).summary["infersim"]["notes"])
    points = swept(asked, "workload.arrivals.rate", 1.0, 2.0)
    variants = compared(asked, "scheduler.max_num_seqs", 8, 16)
    note, _ = further_notes(asked)  # what find and plan show, as below
    assert TIMED in note
    for text in (
        *(shown(sweep_view(points)), words(render_sweep(points))),
        *(shown(compare_view(variants)), words(render_compare(variants))),
    ):
        assert TIMED in text


@pytest.mark.slow
def test_find_and_plan_say_that_they_set_few_requests_aside() -> None:
    few = find_document(find(small(run__requests=20), "rate", tolerance=0.5))
    (note,) = few["notes"]
    assert note.startswith("run.requests=20 is set aside: ")
    assert f"Runs of {few['run_lengths']['first']:,} requests or more" in note
    assert few["run_lengths"]["first"] > 20
    for text in (shown(find_view(few)), words(render_find(few))):
        assert note in text
    assert further_notes(small(run__requests=3000), few["run_lengths"]["first"]) == []
    asked = small(run__requests=20)
    made = tuple(layouts(asked, ["h100-sxm"], [1], []))
    found = choose(asked, FleetQuestion(made, 20.0, 0.0, 1, Constraints()))
    fleets = plan_document(found, given=["seed=3", "run.requests=20"])
    (note,) = fleets["notes"]
    command = fleets["fleets"][0]["run"]
    assert "run.requests=20" not in command
    decided = found.best[0].sized.at_target
    assert decided.requests // decided.runs >= found.best[0].sized.usual > 20
    assert f"--set seed=3 --set run.requests={decided.requests // decided.runs} " in command
    assert note.startswith("run.requests=20 is set aside: ")
    for text in (shown(plan_view(fleets)), words(render_plan(fleets))):
        assert note in text


def test_an_ablation_of_an_overload_and_of_a_part_of_a_day_says_so() -> None:
    overload = small(workload__arrivals__rate=2000, run={"requests": 9000, "horizon": "2s"})
    told = ablation(ablate(overload, local(1)))
    assert ", and both are overloaded by this traffic" in ablation_headline(told)
    assert not any("refuse" in note for note in told["notes"])  # unfinished is not refused
    day = ablation(ablate(CUT, local(1)))
    sure = simulate(CUT).summary["infersim"]["error_band"]["text"]
    for line in (simulate(CUT).summary["infersim"]["notes"][0], f"How sure: {sure}"):
        assert line in shown(ablate_view(day))
        assert on_page(line) in words(render_ablation(day))


def test_variants_whose_runs_are_too_short_are_not_said_to_keep_up() -> None:
    asked = small(run__requests=300, workload__arrivals__rate=900)
    found = compared(asked, "scheduler.long_prefill_token_threshold", 0, 256)
    assert [each["state"] for each in found["variants"]] == 2 * ["too short to tell"]
    first = headlines(found)[0]
    assert first == "Both ran too short to tell whether they keep up (run.requests)."
    assert first in shown(compare_view(found))
    assert first in words(render_compare(found))


@pytest.mark.parametrize("kind", ["poisson", "constant", "gamma, cv: 2"])
def test_a_rate_that_cannot_be_meant_is_refused(kind: str) -> None:
    named, _, more = kind.partition(", ")
    law = {"kind": named, "rate": "1e9", **({"cv": 2} if more else {})}
    told = r"at most 1,000,000/s is possible; for all at once: arrivals \{kind: burst\}"
    with pytest.raises(UsageError, match=told):
        small(workload__arrivals=law)
    small(workload__arrivals={**law, "rate": "1e6"})


def test_the_requests_that_would_tell_are_those_of_a_row() -> None:
    """The run as it is may need fewer, which its own text says: so a footnote names the row."""

    def short(count: int) -> dict[str, Any]:
        return {
            "slo_state": "too close to call",
            "slo_doubts": ["length"],
            "requests_to_decide": count,
        }

    (several,) = footnotes([short(10_000), short(100_000)])
    assert "100,000 requests or more (run.requests) would tell in the row that takes" in several
    (alike,) = footnotes([short(10_000), short(10_000)])
    assert alike.endswith("10,000 requests or more (run.requests) would tell in such a row.")
