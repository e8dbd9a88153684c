"""Short runs begin empty: where more may arrive than is served, their SLO is not called met."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

import sim
from reports.pages.run.head import cards
from reports.pages.run.slo import limits
from reports.pages.run.verdict import verdict as page_verdict
from sim.band_runs import run_ends
from sim.metrics.enough import doubts
from sim.metrics.enough.doubts import DoubtFacts
from sim.metrics.load.long_enough import (
    enough_of_all,
    enough_requests,
    holds_without_start,
    may_be_too_much,
    relaxation,
    too_much,
    too_short,
    unsettled,
)
from sim.metrics.load.peak import Peak
from sim.metrics.load.stability import Load
from sim.metrics.record.queues import Drift
from sim.metrics.record.run_record import RunRecord
from sim.metrics.repetitions import combine
from sim.metrics.states import DoubtKind, SloState
from sim.metrics.words.slo_text import deciding, headroom_text, slo_text
from sim.result import Result, simulate
from sim.scenario import load_scenario
from sim.scenario.sections.arrivals import Arrivals, DiurnalArrivals, PoissonArrivals
from sim.terminal.findings import run_view
from tests.places import CHAT


def chat(rate: float, requests: int, **changes: object) -> sim.Scenario:
    asked = {"workload.arrivals.rate": rate, "run.requests": requests, **changes}
    return load_scenario(CHAT).override(asked)


def verdict_of(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = result.summary["infersim"]["verdict"]
    return found


def with_ends(scenario: sim.Scenario) -> Result:
    result = simulate(scenario)
    ends = run_ends(scenario, result.summary)
    assert ends is not None
    result.add_ends(ends)
    return result


def shown(result: Result) -> str:
    console = Console(width=88, color_system=None)
    with console.capture() as capture:
        console.print(run_view(result.summary))
    return " ".join(capture.get().split())


def made_up(
    utilisation: float,
    error: float,
    requests: int,
    present: float = 0.0,
    law: Arrivals | None = None,
) -> Load:
    times = np.linspace(0.0, 100.0, requests)
    return Load(
        rate=10.0,
        offered=10.0,
        utilisation=utilisation,
        by_pool=(utilisation,),
        error=error,
        late=utilisation,
        batch=256.0,
        backlog=0,
        drift=Drift(0.0, 0.0),
        arrived=times,
        costs=np.full(requests, 0.1),
        estimated=False,
        present=present,
        law=law,
    )


def doubted(load: Load, top: Peak | None = None) -> list[DoubtKind]:
    """What leaves an SLO open that the requests of a run with this ``load`` met so far."""
    run = cast(RunRecord, SimpleNamespace(cut=None))
    return [
        each.kind
        for each in doubts.doubts(DoubtFacts(run, load, top, {"slo_state": SloState.OPEN}))
    ]


@pytest.mark.parametrize(("rate", "target"), [(27.33, 0.95), (25.0, 0.99)])
def test_a_short_run_into_an_overload_does_not_meet_its_slo(rate: float, target: float) -> None:
    short = simulate(chat(rate, 400, **{"slo.attainment": target}))
    verdict = verdict_of(short)
    assert verdict["attainment"] > target
    assert (verdict["slo_met"], verdict["slo_state"]) == (True, "too close to call")
    assert verdict["slo_headroom"] is None
    enough = verdict["requests_to_decide"]
    assert f"Simulate {enough:,} requests or more." in slo_text(verdict)
    longer = verdict_of(simulate(chat(rate, enough, **{"slo.attainment": target})))
    assert longer["slo_state"] == "missed"
    assert "Simulate" not in longer["text"]


def test_terminal_and_page_do_not_call_it_met() -> None:
    result = with_ends(chat(27.33, 400, **{"slo.attainment": 0.95}))
    told, page = shown(result), page_verdict(result.summary)
    said = "More seems to arrive than full batches serve, so a longer run would miss it"
    assert "SLO too close to call: so far met, 99." in told
    assert said in told
    assert page.headline == "Too short to tell, SLO too close to call"
    (answer,) = (answer for answer in page.answers if answer.key == "slo")
    assert answer.short.startswith("Too close to call: ")
    assert answer.tone == "warn"
    assert said in answer.detail
    shown_limits = limits(result.summary)
    assert {limit.tone for limit in shown_limits.values()} == {"warn"}
    texts = [" ".join(card.details) for card in cards(result.summary)]
    assert sum("kept so far" in text for text in texts) == 2
    assert "SLO too close to call" in result._repr_html_()
    for text in (told, *(answer.detail for answer in page.answers)):
        assert "met at both ends" not in text
    assert "(met only if faster, and that in too short a run to tell)" in told


def test_the_number_to_simulate_is_one_that_settles_it() -> None:
    told = set()
    for requests in (400, 800, 1600):
        text = verdict_of(simulate(chat(27.33, requests)))["text"]
        told.add(text.partition("Simulate ")[2].partition(" ")[0])
    (enough,) = told
    settled = verdict_of(simulate(chat(27.33, int(enough.replace(",", "")))))
    assert settled["state"] == "overloaded"
    assert "Simulate" not in settled["text"]


def test_a_slower_end_that_is_too_short_leaves_the_slo_open() -> None:
    result = with_ends(chat(16.0, 400))
    verdict = verdict_of(result)
    assert result.summary["infersim"]["ends"]["slower"]["verdict"]["slo_met"]
    assert verdict["slo_state"] == "too close to call"
    assert "too short to tell" in slo_text(verdict)
    assert "error band" not in slo_text(verdict)


def test_a_long_run_with_room_meets_its_slo() -> None:
    assert verdict_of(simulate(chat(20.0, 2000)))["slo_state"] == "met"


def test_repetitions_do_not_make_a_short_run_long() -> None:
    one = simulate(chat(27.33, 400, **{"slo.attainment": 0.95})).summary
    verdict = combine([one, one, one])["infersim"]["verdict"]
    assert verdict["slo_met"]
    assert verdict["slo_state"] == "too close to call"
    assert verdict["requests_to_decide"] == one["infersim"]["verdict"]["requests_to_decide"]


def test_what_leaves_a_load_open() -> None:
    assert doubted(made_up(1.2, 0.01, 50_000)) == [DoubtKind.LOAD]
    assert doubted(made_up(0.95, 0.04, 400)) == [DoubtKind.LENGTH]
    assert doubted(made_up(0.8, 0.04, 400)) == []
    assert doubted(made_up(0.995, 0.003, 50_000)) == []


def test_a_doubt_says_what_it_is_about_and_how_many_requests_settle_it() -> None:
    day = DiurnalArrivals(kind="diurnal", rate=2.0, peak_rate=18.0, period=1000.0)
    load = made_up(0.95, 0.04, 400, law=day)
    run = cast(RunRecord, SimpleNamespace(cut=SimpleNamespace(has_peak=False)))
    open_ = {"slo_state": SloState.OPEN}
    found = doubts.doubts(DoubtFacts(run, load, Peak(1.2, "at the peak"), open_))
    assert [each.about for each in found] == [
        "an overload would not show yet",
        "the peak of the day was still to come",
        "the busiest part is cut off",
    ]
    assert {each.needs for each in found} == {enough_of_all(load)}


STEADY_RATE = PoissonArrivals(kind="poisson", rate=10.0)


def test_a_run_near_saturation_has_to_outlast_its_relaxation_time() -> None:
    load = made_up(0.9, 0.01, 4000, present=100.0, law=STEADY_RATE)
    assert relaxation(load) == 2000.0  # twice 100 / (1 - 0.9)
    assert unsettled(load)
    assert doubted(load) == [DoubtKind.LENGTH]
    enough = enough_of_all(load)
    assert enough is not None
    assert not unsettled(made_up(0.9, 0.01, enough, 100.0, STEADY_RATE))
    assert not unsettled(replace(load, law=None)), "of a trace there is no usual state to reach"
    assert not unsettled(made_up(0.79, 0.01, 4000, 1000.0, STEADY_RATE))
    assert not unsettled(made_up(1.1, 0.01, 4000, 1000.0, STEADY_RATE))


@pytest.mark.parametrize("utilisation", [0.8, 0.85, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("requests", [300, 2000, 5000])
def test_whoever_simulates_as_long_as_advised_has_settled(
    utilisation: float, requests: int
) -> None:
    load = made_up(utilisation, 0.8 / requests**0.5, requests, 150.0, STEADY_RATE)
    enough = enough_of_all(load)
    assert enough is not None
    assert enough >= 2 * requests
    if not may_be_too_much(load):
        assert not unsettled(made_up(utilisation, 0.001, enough, 150.0, STEADY_RATE))


@pytest.mark.parametrize("utilisation", [0.96, 1.0, 1.05, 1.1])
@pytest.mark.parametrize("requests", [100, 400, 1600, 6400])
def test_whoever_simulates_enough_has_enough(utilisation: float, requests: int) -> None:
    found = made_up(utilisation, 1.0 / requests**0.5, requests)
    enough = enough_requests(found)
    for drift in (-0.05, 0.0, 0.05):  # as far as the utilisation may have been off
        longer = made_up(utilisation + drift, 1.0 / enough**0.5, enough)
        if too_much(longer):
            surplus = enough * (1 - 1 / longer.utilisation)
            assert surplus > 2 * longer.batch, "the batches fill up, and as many wait"
        else:
            assert not too_short(longer)


def test_a_day_that_is_cut_before_its_peak_is_too_short() -> None:
    day = DiurnalArrivals(kind="diurnal", rate=2.0, peak_rate=18.0, period=1000.0)
    peak, morning = Peak(1.08, "at the peak"), made_up(0.6, 0.01, 500, law=day)
    assert doubted(morning, peak) == [DoubtKind.LENGTH]
    whole = replace(morning, arrived=morning.arrived * 10)
    assert doubted(whole, peak) == []
    assert doubted(morning, Peak(0.9, "at the peak")) == []


def test_headroom_up_to_the_capacity_is_not_what_the_slo_needs() -> None:
    result = with_ends(chat(26.0, 2000))
    verdict = verdict_of(result)
    assert verdict["utilisation"] >= 1
    assert verdict["slo_met"] is False
    told = headroom_text(verdict)
    assert told == "None that is sure: the SLO is missed at the predicted times."


def test_an_slo_that_both_ends_of_the_band_miss_is_missed() -> None:
    base = simulate(chat(25.0, 2000)).summary
    verdict = base["infersim"]["verdict"]
    assert (verdict["slo_met"], verdict["slo_state"]) == (False, "too close to call")
    for faster, state in (("missed", "missed"), ("too close to call", "too close to call")):
        result = simulate(chat(25.0, 2000))
        ends = {
            name: {"verdict": {**verdict, "slo_met": False, "slo_state": told}}
            for name, told in (("slower", "missed"), ("faster", faster))
        }
        result.add_ends({**ends, "decided": True, "text": ""})
        judged = verdict_of(result)
        assert judged["slo_state"] == state
        assert slo_text(judged).startswith(f"SLO {state}")
        assert (judged["slo_headroom"] == 0.0) == (state == "missed")
        assert (judged["requests_to_decide"] is None) == (state == "missed")


def test_an_slo_that_the_band_leaves_open_says_so_and_that_requests_do_not_narrow_it() -> None:
    result = with_ends(chat(20.0, 5000, **{"slo.tpot": "27ms"}))
    text = slo_text(verdict_of(result))
    assert text.startswith("SLO met at the predicted times: 99.")
    assert text.endswith(
        "The error band of the predicted times leaves it open; more requests do not narrow it, "
        "and a longer run may hold less."
    )


def test_an_slo_that_only_the_faster_end_meets_is_missed_at_the_predicted_times() -> None:
    """Also where the fleet is overloaded; where chance decides too, it is too close to call."""
    missed = {"slo_met": False, "slo_state": "too close to call", "slo_doubts": ["band"]}
    limits = {"ttft": {"limit_ms": 500.0, "attainment": 0.006, "target": 0.95}}
    missed |= {"limits": limits, "attainment": 0.006, "target": 0.95, "first_limit": "ttft"}
    missed |= {"requests_to_decide": None, "attainment_low": 0.004, "attainment_high": 0.008}
    ends = {"error": 0.38, "faster": {"verdict": {"slo_met": True}}}
    text = slo_text(missed, "", ends)
    assert text.startswith("SLO missed at the predicted times, first by TTFT: only 0.60% of ")
    assert "It is met only if iterations are 38% faster, as they may be;" in text
    late = slo_text(missed | {"slo_met": True, "slo_doubts": ["load"], "utilisation": 1.3})
    assert late.startswith("SLO met so far: ")
    assert "a longer run would miss it" in late
    by_chance = slo_text(missed | {"slo_doubts": ["chance", "band"]}, "", ends)
    assert by_chance.startswith("SLO too close to call: missed, first by TTFT, only 0.60% of ")


def test_chance_at_an_end_of_the_band_is_what_more_requests_narrow() -> None:
    result = simulate(chat(20.0, 2000))
    decided = {**verdict_of(result), "slo_met": True, "slo_state": "met", "slo_doubts": []}
    result.summary["infersim"]["verdict"] = decided
    chance = {"slo_met": False, "slo_state": "too close to call", "slo_doubts": ["chance"]}
    ends = {"slower": {"verdict": {**decided, **chance}}, "faster": {"verdict": decided}}
    result.add_ends({**ends, "decided": False, "text": ""})
    judged = verdict_of(result)
    assert judged["slo_doubts"] == ["band", "chance at an end"]
    text = slo_text(judged)
    assert text.startswith("SLO met at the predicted times: ")
    assert "At one end of the band chance decides, which more requests may settle; of a" in text


def numbers_asked_for(text: str) -> set[str]:
    """Every number of requests that a text asks for."""
    asked = r"(?:Simulate|About|At least) ([\d,]+) requests"
    return set(re.findall(asked, text))


@pytest.mark.parametrize(
    ("rate", "requests"), [(6.0, 300), (20.0, 300), (22.0, 2000), (22.0, 5000), (25.0, 5000)]
)
def test_all_of_a_run_asks_for_one_number_of_requests(rate: float, requests: int) -> None:
    assert len(numbers_asked_for(" ".join(str(simulate(chat(rate, requests))).split()))) == 1


def test_certainty_grows_with_the_length() -> None:
    """103 % of the capacity: few requests are not surer of it than many."""
    texts = [verdict_of(simulate(chat(27.33, requests)))["text"] for requests in (300, 2000, 5000)]
    for few in texts[:2]:
        assert few.startswith("Too short to tell: the traffic takes between 1")
        assert "probably" not in few
    assert texts[2].startswith("Too short to tell: probably overloaded, the traffic takes 105% of")


def test_an_interval_of_the_utilisation_is_stated_where_it_is_wide() -> None:
    few, many = (verdict_of(simulate(chat(22.0, requests)))["text"] for requests in (300, 2000))
    assert few.startswith("Near saturation: the traffic takes between 81% and 101% of the capacity")
    assert many.startswith("Near saturation: the traffic takes 85% of the capacity")


def test_the_headroom_of_few_requests_is_hedged() -> None:
    told = headroom_text(verdict_of(simulate(chat(25.0, 300))))
    assert told == "None that is sure: the SLO is too close to call."
    without = simulate(chat(25.0, 300).override({"slo": {}}))
    told = headroom_text(verdict_of(without))
    assert told == ("None that is sure: the traffic takes between 92% and 115% of the capacity.")
    beyond = headroom_text(verdict_of(simulate(chat(27.33, 300))))
    assert beyond.startswith("None: the traffic would have to shrink by more than 0.7")


@pytest.mark.parametrize(("rate", "requests"), [(23.5, 2000), (24.0, 2000), (24.0, 5000)])
def test_a_short_run_below_the_capacity_is_no_surer_than_long_ones(
    rate: float, requests: int
) -> None:
    for seed in (1, 2, 3):
        verdict = verdict_of(simulate(chat(rate, requests, seed=seed)))
        assert verdict["settled"] is False
        assert verdict["slo_state"] != "met"


def test_a_run_that_has_not_settled_bounds_its_percentiles_from_below_only() -> None:
    own = simulate(chat(25.0, 5000)).summary["infersim"]
    entry, sure = own["precision"]["p99_tpot_ms"], own["precision"]
    assert entry["low"] is not None
    assert (entry["high"], sure["sufficient"]) == (None, False)
    assert sure["requests_needed"] > 5000
    assert own["precision"]["text"] in own["notes"]


@pytest.mark.parametrize(("low", "state"), [(0.991, "too close to call"), (0.992, "met")])
def test_late_requests_may_all_have_come_after_the_start(
    low: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near saturation the first 150 of 1,000 requests find a fleet emptier than usual: that
    of all at least 99.1 % are in time leaves open whether 99 % of the 850 others are."""
    judged = {
        "slo_state": "met",
        "slo_doubts": [],
        "limits": {"ttft": {}},
        "attainment": 0.995,
        "attainment_low": low,
        "target": 0.99,
    }
    monkeypatch.setattr(doubts, "judge_slo", lambda *_: judged)
    monkeypatch.setattr(doubts, "usual", lambda _: None)
    run = SimpleNamespace(scenario=chat(20.0, 1000), cut=None)
    found = made_up(0.9, 0.001, 1000, 7.5, run.scenario.workload.arrivals)
    assert not unsettled(found)
    told = doubts.slo_verdict(cast(Any, run), found, None)
    assert told["slo_state"] == state
    if state == "too close to call":  # as long as asked for, if the share stays what it is
        enough = told["requests_to_decide"]
        narrower = 0.995 - (0.995 - low) * (1000 / enough) ** 0.5
        assert holds_without_start(narrower, 0.99, relaxation(found) / enough)


def test_a_longer_run_that_finds_a_standard_error_more_load_has_settled() -> None:
    load = made_up(0.9, 0.015, 4000, 160.0, STEADY_RATE)
    enough = enough_of_all(load)
    assert enough is not None
    found = made_up(0.915, 0.003, enough, 160.0 * 0.1 / 0.085, STEADY_RATE)
    assert relaxation(found) > 1.3 * relaxation(load)
    assert not unsettled(found)


def test_a_share_at_its_target_is_no_matter_of_a_number_of_requests() -> None:
    verdict = {"slo_doubts": ["chance"], "attainment_low": 0.97, "attainment_high": 0.995}
    verdict |= {"target": 0.99, "cut": None, "requests_to_decide": 1_000_000}
    assert deciding(verdict).endswith(" About 1,000,000 requests would decide.")
    told = deciding(verdict | {"requests_to_decide": 20_000_000})
    assert "20,000,000" not in told
    assert told.endswith(
        " Millions of requests would be needed to decide: the share is at its target."
    )


def test_so_near_the_capacity_no_number_of_requests_is_advised() -> None:
    near = made_up(0.99, 0.005, 20_000, 400.0, STEADY_RATE)
    run = cast(RunRecord, SimpleNamespace(cut=None))
    facts = DoubtFacts(run, near, None, {"slo_state": SloState.OPEN})
    assert {(each.kind, each.needs) for each in doubts.doubts(facts)} == {(DoubtKind.LENGTH, None)}
    verdict = {"slo_doubts": ["length"], "requests_to_decide": None, "slo_met": True}
    verdict |= {"utilisation": 0.99, "utilisation_error": 0.005, "cut": None}
    assert deciding(verdict) == (
        " The run is too short to tell, and a longer one may be too: the traffic is within 2% of "
        "the capacity, which is not known more closely."
    )
    vague = deciding(verdict | {"utilisation_error": 0.02, "requests_to_decide": 50_000})
    assert "2%" not in vague
    assert vague.endswith("Simulate 50,000 requests or more.")
