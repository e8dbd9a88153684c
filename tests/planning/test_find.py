"""``infersim find``: known answers, the same answer as a grid, and what is no question at all."""

import json
import math
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from reports.figures.charts import chart
from reports.frame.page import typeset
from sim import simulate
from sim.cli import app
from sim.errors import InfeasibleError, UsageError
from sim.metrics.slo.objectives import Attained, KeptLimit, Objective, slo_objectives
from sim.planning.answers.find import attained_by_load, nearest
from sim.planning.answers.find import curve as curve_of
from sim.planning.fleet.choose import choose
from sim.planning.fleet.constraints import read_constraints
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.load.find import TOLERANCE, Ends, FoundLoad, find
from sim.planning.load.find_document import document
from sim.planning.load.finder import Finder
from sim.planning.load.loads import axis_of, traffic_of
from sim.planning.load.played import ProbeRun
from sim.planning.load.probe import LONG_ENOUGH, _concluded
from sim.planning.load.search import knee
from sim.planning.load.sentences import ends_text, own_load, sureness
from sim.planning.load.sentences import highest as highest_text
from sim.planning.load.settled import settle
from sim.scenario import Scenario, load_scenario
from sim.terminal.console import as_text
from tests import made_up
from tests.answers import find_view, render_find
from tests.planning_fixtures import SMALL, be_brief, small

ONE_SERVER = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "ideal",
    "scheduler": {"max_num_seqs": 1},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 0.5},
        "prompt_tokens": {"kind": "fixed", "value": 16},
        "output_tokens": {"kind": "fixed", "value": 20},
    },
    "run": {"requests": 1500},
}
"""Requests of one length, one at a time: M/D/1."""


@cache
def service() -> tuple[float, float]:
    """Seconds that the server is busy with a request, and to its first token."""
    alone = load_scenario(ONE_SERVER, {"workload.arrivals": {"kind": "burst"}, "run.requests": 1})
    row = simulate(alone).record
    return float(row.e2el[0]), float(row.ttft[0])


def waits_at_most(time: float, rate: float, each: float) -> float:
    """The chance that a request of M/D/1 waits no longer than ``time`` (Erlang, 1909)."""
    terms = [
        (-rate * (time - k * each)) ** k / math.factorial(k) * math.exp(rate * (time - k * each))
        for k in range(int(time / each) + 1)
    ]
    return (1 - rate * each) * math.fsum(terms)


def highest(share: float, wait: float, each: float) -> float:
    """The highest rate at which that share of requests waits at most ``wait``."""
    rates = np.linspace(0.01, 0.99, 2000) / each
    chances = np.array([waits_at_most(wait, float(rate), each) for rate in rates])
    return float(rates[np.flatnonzero(chances >= share)[-1]])


@pytest.mark.slow
def test_the_highest_rate_of_one_server_is_the_analytic_one() -> None:
    each, first = service()
    share, wait = 0.9, 2.0 * each
    exact = highest(share, wait, each)
    slo = {"ttft": wait + first, "attainment": share}
    asked = load_scenario(ONE_SERVER, {"slo": slo})
    finder = Finder(asked, "rate", slo_objectives(asked))
    found = settle(finder, 1, TOLERANCE, None)
    assert found.best is not None
    assert found.best.load == pytest.approx(exact, rel=0.04)
    assert finder.saturation.rate == pytest.approx(1 / each, rel=0.01)
    assert found.fails is not None
    assert found.fails.breaks == "ttft"


@pytest.mark.slow
def test_without_an_slo_the_highest_stable_rate_is_found() -> None:
    each, _ = service()
    found = find(load_scenario(ONE_SERVER), "rate")
    # the verdict calls an M/D/1 stable up to a utilisation of 0.8
    assert found.best.load == pytest.approx(0.8 / each, rel=0.025)
    busy = [probe for probe in found.probes if 0.8 <= (probe.utilisation or 0) <= 1.2]
    assert busy
    assert all(probe.runs >= 3 for probe in busy)  # a run is one busy period there
    told = document(found)
    assert told["criterion"] == "stable"
    assert "The scenario has no SLO" in " ".join(told["sentences"])
    assert told["first_to_break"] == "capacity"


def steep() -> Scenario:
    return small(run__requests=400, slo={"ttft": "60ms", "tpot": "14ms", "attainment": 0.95})


@cache
def found_steep(sure: bool = False) -> tuple[FoundLoad, tuple[float, ...]]:
    """The answer for ``steep``, which many tests read, and the loads that were told meanwhile;
    decided by as many requests as usual if ``sure``, and otherwise by few."""
    told: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        if not sure:
            be_brief(patch)  # only slow tests, which are not brief, ask for more
        return find(steep(), "rate", tell=lambda probe: told.append(probe.load)), tuple(told)


@pytest.mark.slow
@pytest.mark.usefixtures("brief_answers")
def test_the_rate_is_that_of_a_fine_grid() -> None:
    """Of all loads that are tried, without a search, by the runs that decide."""
    scenario = steep()
    found = settle(Finder(scenario, "rate", slo_objectives(scenario)), 1, TOLERANCE, None)
    assert found.best is not None
    grid = Finder(scenario, "rate", slo_objectives(scenario))
    loads = [found.best.load * (0.9 + 0.01 * step) for step in range(21)]
    held = [load for load in loads if grid.probe(load, 1, stretch=found.stretch, whole=True).holds]
    assert len(held) not in (0, len(loads))
    assert found.best.load == pytest.approx(max(held), rel=TOLERANCE)


def test_the_curve_tries_no_load_again() -> None:
    # a rough search ends a step of 10 % above its guess, where the curve has a point too
    loads = [probe.load for probe in find(steep(), "rate", tolerance=0.2).probes]
    assert min(high / low for low, high in pairwise(loads)) > 1.001


def test_the_answer_says_how_it_was_found() -> None:
    found, told = found_steep()
    written = document(found)
    loads = [probe["load"] for probe in written["probes"]]
    assert loads == sorted(set(loads))
    assert {written["load"], written["fails_at"]} < set(told)
    assert written["run_lengths"]["first_load"] in told
    assert written["fails_at"] / written["load"] <= 1.02
    assert written["own"] == {**written["own"], "load": 20.0, "holds": True}
    assert written["headroom"] == pytest.approx(written["load"] / 20 - 1)
    assert written["first_to_break"] in ("ttft", "tpot")
    assert written["knee"]["load"] <= written["load"]
    at_best = written["at_best"]["promises"][0]
    assert at_best["low"] <= at_best["attainment"] <= at_best["high"]
    assert at_best["attainment"] >= at_best["target"] == 0.95
    json.dumps(written, allow_nan=False)


@pytest.mark.parametrize(("low", "told"), [(3.9, "3.9 to 4.175"), (3.957, "or more, up to 4.175,")])
def test_a_load_that_chance_leaves_nothing_below_has_one_end_alone(low: float, told: str) -> None:
    found = {
        "unit": "requests/s",
        "load": 3.957,
        "fails_at": 4.0,
        "trust": {"sure_up_to": None},
        "chance": {"holds_up_to": low, "fails_from": 4.175},
        "sure": False,
        "criterion": "slo",
    }
    text = f"Highest load: 3.957 requests/s ({told} by chance, with 95 % confidence)"
    assert highest_text(found) == text


def test_one_word_says_how_sure_a_load_is() -> None:
    told = document(found_steep()[0])
    said, slower = told["trust"], told["ends"]["slower"]
    assert (said["highest"], said["own"]) == ("a guess", "sure")
    assert said["sure_up_to"] == min(slower, told["chance"]["holds_up_to"])
    assert said["sure_up_to"] <= said["likely_up_to"] <= told["load"]
    assert told["sure_up_to"] == said["sure_up_to"]
    high = max(told["ends"]["faster"], told["chance"]["fails_from"])
    assert told["fails_for_sure_at"] == said["fails_for_sure_at"] == high
    text = f"a load up to {said['sure_up_to']:.3g} requests/s is sure to hold"
    assert text in " ".join(told["sentences"])


def test_half_a_band_moves_the_load_by_the_same_power_of_the_speed() -> None:
    ends = Ends(error=0.21, slower=81.0, faster=144.0)
    assert ends.within(100.0, 0.21) == pytest.approx((81.0, 144.0))
    assert ends.within(100.0, 0.1) == pytest.approx((90.0, 120.0))  # 1.1 twice is 1.21
    assert Ends(0.21, None, None).within(100.0, 0.1) == (math.inf, math.inf)


@pytest.mark.slow
def test_a_load_is_simulated_until_it_is_decided() -> None:
    found = found_steep(sure=True)[0]
    assert found.fails is not None
    for probe in (found.best, found.fails):  # by a number of runs that hangs on nothing in them
        assert probe.runs == LONG_ENOUGH // (probe.requests // probe.runs) > 3
    for probe in found.probes:
        (attained,) = probe.attained
        assert attained.low <= attained.share <= attained.high
        assert probe.sure == (attained.low >= 0.95 or attained.high < 0.95)
        assert probe.requests >= 400 * probe.runs


def test_one_limit_missed_for_sure_decides_whatever_another_does() -> None:
    """Of one run, 40 of 100 requests are within one limit; the other's interval has the target."""
    first, second = Objective({"ttft": 1.0}, 0.9, 90), Objective({"tpot": 0.1}, 0.9, 90)
    doubtful = Attained(first, 0.91, 0.85, 0.95, (KeptLimit("ttft_p90", 0.91, 0.9, 0.9),), 100, 100)
    missed = Attained(second, 0.4, 0.31, 0.5, (KeptLimit("tpot_p90", 0.4, 0.9, 2.0),), 100, 100)
    kept = replace(missed, share=1.0, low=0.96, high=1.0)
    unknown = dict.fromkeys(("utilisation", "utilisation_error", "headroom"))
    verdict = {**unknown, "state": "stable"}
    band = {"throughput": 0.1, "parts": {}, "basis": ""}
    run = ProbeRun({}, verdict, 100, band, None, (), False)
    outcomes = [
        _concluded(5.0, (doubtful, other), [run]).outcome for other in (missed, kept, doubtful)
    ]
    assert outcomes == ["fails", "too close to call", "too close to call"]


@pytest.mark.slow
@pytest.mark.usefixtures("brief_answers")
def test_the_same_question_has_the_same_answer() -> None:
    first, second = (find(steep(), "rate", tolerance=0.1) for _ in range(2))
    assert document(first) == document(second)


def test_the_highest_concurrency_is_whole_and_next_to_one_that_fails() -> None:
    closed = {"kind": "closed", "concurrency": 4}
    scenario = small(workload__arrivals=closed, slo={"tpot": "9ms", "attainment": 0.9})
    found = find(scenario, "concurrency")
    assert found.fails is not None
    assert found.best.load == int(found.best.load)
    assert found.fails.load - found.best.load <= max(1, 0.02 * found.best.load)
    assert found.own is not None
    assert found.own.load == 4
    assert document(found)["unit"] == "users"
    seats = document(found)["saturated"]
    assert isinstance(seats, int)
    assert f"Full batches hold {seats:,} requests at a time." in document(found)["breaks"]


@pytest.mark.slow
def test_the_opening_of_a_closed_loop_does_not_count() -> None:
    closed = {"kind": "closed", "concurrency": 4}
    asked = small(workload__arrivals=closed, slo={"ttft": "100ms", "attainment": 0.95})
    found = find(asked, "concurrency")
    users = int(found.best.load)
    # all prompts at once: the first of each user come later than ever again

    def kept(count: int) -> tuple[float, float]:
        loop = {"workload.arrivals.concurrency": count, "run.requests": 25 * count}
        late = simulate(asked.override(loop)).record.ttft > 0.1
        return 1 - float(late[:count].mean()), 1 - float(late[2 * count :].mean())

    opening, steady = kept(users)
    assert opening < 0.7
    assert steady >= 0.945
    assert kept(round(1.2 * users))[1] < 0.95
    told = document(found)
    assert told["opening_left_out"]
    assert "first two requests per user do not count" in " ".join(told["sentences"])
    strict = find(asked.override({"run.warmup": 0}), "concurrency", tolerance=0.1)
    assert strict.best.load < 0.7 * users
    assert strict.knee is not None
    assert strict.knee.load <= strict.knee.between[1] <= strict.best.load  # not of what fails
    assert not document(strict)["opening_left_out"]
    assert not document(found_steep()[0])["opening_left_out"]


def test_batches_that_fill_too_slowly_may_fill_in_time_under_more_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    static = small(scheduler={"batching": "static", "max_num_seqs": 8})
    (objective,) = slo_objectives(static)
    finder = Finder(static, "rate", [objective])
    full = finder.saturation.rate

    class Window:
        def __init__(self, load: float) -> None:
            self.load, self.holds = load, 0.37 * full <= load <= 0.43 * full
            self.strain = -math.inf if self.holds else math.inf

    monkeypatch.setattr(finder, "probe", lambda load, replicas, **_: Window(load))
    best, fails = finder.find(1, 0.02)
    assert best is not None
    assert fails is not None
    assert best.load <= 0.43 * full < fails.load <= 1.03 * best.load


def test_batches_that_never_fill_in_time_are_told_so() -> None:
    static = small(scheduler={"batching": "static", "max_num_seqs": 64})
    with pytest.raises(InfeasibleError, match="requests wait for a batch") as caught:
        find(static, "rate")
    assert "no load that was tried" in str(caught.value)


def test_a_horizon_that_cuts_requests_off_is_refused() -> None:
    """Requests take up to 0.4 s, and the SLO asks for 99 %: 1 s is too short at any load."""
    for horizon, shown in (("20ms", "20 ms"), ("1s", "1 s")):
        with pytest.raises(UsageError, match=f"run.horizon={shown} cuts off") as caught:
            find(small(run__horizon=horizon), "rate")
        assert "cannot be met" not in str(caught.value)
    with pytest.raises(InfeasibleError, match=r"cannot be met at any load.* That is sure: "):
        find(small(run__horizon="20s", slo={"ttft": "1ms"}), "rate")
    asked = small(run__horizon="1s")
    made = layouts(asked, ["h100-sxm"], [1], [])
    with pytest.raises(InfeasibleError, match=r"cut off: run\.horizon=1 s cuts off"):
        choose(asked, FleetQuestion(tuple(made), 20.0, 0.0, 1, read_constraints(None)))


def test_a_load_that_the_error_band_leaves_open_is_called_so_as_by_a_run() -> None:
    """The rule of ``run``, ``compare`` and ``diagnose``: met at one end of the band, missed at the
    other."""
    told = document(found_steep()[0])
    slower, faster = told["ends"]["slower"], told["ends"]["faster"]
    band = {probe["load"]: slower < probe["load"] <= faster for probe in told["probes"]}
    assert any(band.values())
    assert not all(band.values())
    for probe in told["probes"]:
        if band[probe["load"]]:
            assert (probe["outcome"], probe["sure"]) == ("too close to call", False)
    load = max(load for load, inside in band.items() if inside and load <= told["load"])
    verdict = simulate(steep().override({"workload.arrivals.rate": load}))
    verdict.confirm()
    assert verdict.summary["infersim"]["verdict"]["slo_state"] == "too close to call"


def test_an_own_load_in_the_error_band_is_too_close_to_call() -> None:
    own = {"load": 22.0, "holds": True, "doubt": "band", "probe": {}}
    told = {"own": own, "unit": "requests/s", "headroom": 0.1, "trust": {"own": "likely"}}
    assert own_load(told).endswith(
        "is too close to call: it holds at the predicted times (likely), and their error band "
        "leaves it open."
    )


def test_large_errors_are_times_as_a_run_says_them() -> None:
    ends = {"error": 1.25, "slower": 3.0, "faster": 14.0, "first_tokens": (0.8, 1.5)}
    told = {"ends": ends, "unit": "requests/s", "whole_runs": "", "limits_ms": {"tpot": 40.0}}
    start = "If iterations take 2.25 times as long as predicted: 3 requests/s; 0.44 times: 14."
    assert ends_text(told)[0] == start


def test_the_ends_count_first_tokens_where_they_are_limited() -> None:
    ends = {"error": 0.25, "slower": 3.0, "faster": None, "first_tokens": (0.8, 1.5)}
    told = {"ends": ends, "unit": "requests/s", "whole_runs": "", "limits_ms": {"ttft": 40.0}}
    assert ends_text(told)[0] == (
        "If iterations take 1.25 times as long as predicted, and TTFT a further 1.50 times: "
        "3 requests/s; 0.80 and 0.80 times: above what was tried."
    )
    never = {**told, "ends": {**ends, "slower": 0.0}}
    assert "a further 1.50 times: no load holds; 0.80 and" in ends_text(never)[0]


def test_an_own_load_that_fails_below_the_highest_is_no_headroom() -> None:
    own = {"load": 1.0, "holds": False, "doubt": None, "probe": {"breaks": "ttft"}}
    told = {"own": own, "unit": "requests/s", "headroom": 3.0}
    assert "though the highest load does" in own_load(told)
    assert "50% of it would" in own_load({**told, "headroom": -0.5})


def test_room_for_far_more_load_is_written_out() -> None:
    told = {"own": {"load": 0.001, "holds": True, "doubt": None}, "unit": "requests/s"}
    told["trust"] = {"own": "sure"}
    assert own_load({**told, "headroom": 23211.0}).endswith("holds, and may grow to 23,000 times.")
    assert own_load({**told, "headroom": 0.041}).endswith("holds, and may grow by 4%.")
    assert own_load({**told, "headroom": 0.53}).endswith("holds, and may grow to 1.5 times.")
    told["trust"] = {"own": "likely"}
    likely = "holds at the predicted times (likely), and may grow to 1.5 times."
    assert own_load({**told, "headroom": 0.53}).endswith(likely)


def test_a_trace_is_sped_up(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{i / 10},{100 + i % 7 * 30},{10 + i % 11}\n" for i in range(400))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}", encoding="utf-8")
    scenario = load_scenario(
        {**SMALL, "workload": {"trace": {"path": str(path)}}, "run": {}}, {"slo.ttft": "50ms"}
    )
    traffic = traffic_of(scenario)
    axis = axis_of(scenario, "rate", traffic)
    assert axis.own == pytest.approx(10.0)
    assert dict(axis.settings(100.0)) == {"workload.trace.time_scale": 0.1}
    found = find(scenario, "rate")
    assert all(probe.runs == 1 for probe in found.probes)  # nothing in it is random
    assert found.best.load > 10
    slower = replace(found, best=replace(found.best, headroom=0.02))  # than full batches as timed
    assert document(slower)["saturated"] == pytest.approx(1.02 * found.best.load)


def test_a_trace_that_was_cut_has_more_requests_to_decide_by(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{i / 10},{100 + i % 7 * 30},{10 + i % 11}\n" for i in range(400))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}", encoding="utf-8")
    told = {}
    for requests in (200, None):
        scenario = load_scenario(
            {**SMALL, "workload": {"trace": {"path": str(path)}}, "run": {"requests": requests}},
            {"slo.ttft": "50ms"},
        )
        told[requests] = document(find(scenario, "rate"))
        assert {probe["requests"] for probe in told[requests]["probes"]} == {requests or 400}
    assert told[200]["first_requests"] == 200
    assert told[None]["first_requests"] is None
    open_ones = [{**each, "sure": False} for each in told.values()]
    assert "Only 200 requests of the trace were taken" in sureness(open_ones[0])
    assert "A trace has no more requests" in sureness(open_ones[1])


def test_a_limit_that_nobody_keeps_has_no_load() -> None:
    with pytest.raises(InfeasibleError, match="the TPOT limit is too tight") as caught:
        find(small(slo={"tpot": "1ms"}), "rate")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("changes", "kind", "told"),
    [
        ({"workload.arrivals": {"kind": "burst"}}, "rate", "no rate to look for"),
        (
            {"workload.arrivals": {"kind": "closed", "concurrency": 3}},
            "rate",
            "clients wait.*--max concurrency",
        ),
        ({"slo": {}}, "concurrency", "never overloaded"),
    ],
)
def test_loads_that_do_not_exist_are_refused(changes: Any, kind: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        find(load_scenario(SMALL, changes), kind)


@pytest.mark.parametrize(
    ("arrivals", "own", "doubled"),
    [
        (
            {"kind": "ramp", "rate": 2, "final_rate": 8, "duration": 60},
            8,
            {"workload.arrivals.rate": 4, "workload.arrivals.final_rate": 16},
        ),
        (
            {"kind": "diurnal", "rate": 2, "peak_rate": 10, "period": 600},
            6,
            {"workload.arrivals.rate": 4, "workload.arrivals.peak_rate": 20},
        ),
    ],
)
def test_rates_that_change_grow_as_a_whole(
    arrivals: dict[str, Any], own: float, doubled: dict[str, float]
) -> None:
    scenario = small(workload__arrivals=arrivals)
    axis = axis_of(scenario, "rate", traffic_of(scenario))
    assert axis.own == own
    assert dict(axis.settings(own)) == {}
    assert dict(axis.settings(2 * own)) == doubled


def test_the_knee_is_where_power_is_greatest() -> None:
    # M/M/1: throughput over latency is load (1 - load), greatest at one half
    found = found_steep()[0]
    probe = found.probes[0]
    curve = [
        type(probe)(
            **{
                **probe.__dict__,
                "load": load,
                "figures": {"request_throughput": load, "mean_e2el_ms": 1e3 / (1 - load)},
            }
        )
        for load in (0.1, 0.3, 0.5, 0.7, 0.9)
    ]
    at = knee(curve)
    assert at is not None
    assert (at.load, at.between, at.at_end) == (0.5, (0.3, 0.7), False)
    assert knee(curve[:2]) is None


def test_the_command_writes_before_it_prints(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(steep().to_yaml(), encoding="utf-8")
    out = tmp_path / "out"
    words = ["find", str(path), "--jobs", "1", "--tolerance", "0.2", "--json", "-o", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    saved = json.loads((out / "result.json").read_text("utf-8"))
    assert printed == {**saved, "directory": str(out), "page": str(out / "report.html")}
    page = (out / "report.html").read_text("utf-8")
    for sentence in saved["sentences"][1:3]:
        assert typeset(sentence) in page
    again = CliRunner().invoke(app, ["find", str(path), "-o", str(out)])
    assert again.exit_code == 2
    assert "not empty" in again.stderr


@pytest.mark.parametrize("arguments", [["--tolerance", "0"], ["--max", "speed"], ["--set", "x=1"]])
def test_questions_that_are_none_exit_with_2(arguments: list[str], tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(steep().to_yaml(), encoding="utf-8")
    done = CliRunner().invoke(app, ["find", str(path), "--jobs", "1", "--no-report", *arguments])
    assert done.exit_code == 2
    assert not done.stdout


def test_the_table_fits_the_terminal() -> None:
    from rich.console import Console

    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(find_view(document(found_steep()[0])))
    text = captured.get()
    assert "Highest load" in text
    assert max(map(len, text.splitlines())) <= 88


def long_prompts(**changes: Any) -> Scenario:
    """Half of the requests are longer than ``max_model_len``."""
    prompts = {"kind": "uniform", "low": 10, "high": 2000}
    slo = {"ttft": "200ms", "tpot": "20ms", "attainment": 0.95}
    return small(workload__prompt_tokens=prompts, run__requests=300, slo=slo, **changes)


@pytest.mark.usefixtures("brief_answers")
def test_rejected_requests_are_no_reason_for_a_faster_gpu() -> None:
    with pytest.raises(InfeasibleError) as caught:
        find(long_prompts(), "rate")
    told = str(caught.value)
    assert "are longer than max_model_len (1,024 tokens" in told
    assert "; set max_model_len to 2,0" in told
    assert "Of the requests that are accepted, 100% are within the SLO" in told
    assert "faster GPU" not in told
    cured = int(re.findall(r"set max_model_len to ([\d,]+)", told)[0].replace(",", ""))
    best = find(long_prompts(max_model_len=cured), "rate", tolerance=0.2).best
    assert best.rejection is None or best.rejection.share < 0.01  # of another seed


@pytest.mark.slow
@pytest.mark.usefixtures("brief_answers")
def test_a_few_rejected_requests_are_named_in_the_answer() -> None:
    found = find(long_prompts(max_model_len=1998), "rate")
    told = document(found)
    assert 0 < told["rejection"]["share"] < 0.05
    assert told["first_to_break"] == "tpot"
    assert any(line.startswith("Rejected at any load: ") for line in told["sentences"])
    assert all(probe["rejected"] > 0 for probe in told["probes"])


def test_run_and_find_agree_on_what_breaks_first() -> None:
    found = found_steep()[0]
    assert found.fails is not None
    above = found.probes[-1].load
    verdict = simulate(steep().override({"workload.arrivals.rate": above})).summary["infersim"][
        "verdict"
    ]
    kept = {name: entry["attainment"] for name, entry in verdict["limits"].items()}
    assert verdict["first_limit"] == min(kept, key=lambda name: kept[name])
    assert found.probes[-1].breaks == verdict["first_limit"]


def test_what_the_interval_leaves_open_is_neither_holds_nor_fails() -> None:
    told = document(replace(found_steep()[0], ends=None))
    outcomes = {probe["load"]: probe["outcome"] for probe in told["probes"]}
    for probe in told["probes"]:
        kept = probe["promises"][0]
        decided = kept["low"] >= 0.95 or kept["high"] < 0.95
        inside = told["chance"]["holds_up_to"] < probe["load"] < told["chance"]["fails_from"]
        assert (probe["outcome"] == "too close to call") == (inside or not decided)
        assert (probe["requests_to_decide"] is None) == decided
    assert "too close to call" in outcomes.values()
    low, high = told["chance"]["holds_up_to"], told["chance"]["fails_from"]
    assert {outcome for load, outcome in outcomes.items() if load <= low} == {"holds"}
    above = {outcome for load, outcome in outcomes.items() if load >= high}
    assert {"fails"} <= above <= {"fails", "too close to call"}  # one may be left undecided
    assert told["chance"]["holds_up_to"] <= told["load"] < told["chance"]["fails_from"]
    assert not told["sure"]
    shown = "".join(told["sentences"])
    assert (
        f"the SLO is met at {told['chance']['holds_up_to']:.4g} requests/s and missed at " in shown
    )
    assert f"missed at {told['chance']['fails_from']:.4g}." in shown
    drawn = chart(curve_of(told, "tpot"))
    dots = {trace.name: trace for trace in drawn.data if trace.mode == "markers"}
    assert len(dots["too close to call"].x) == list(outcomes.values()).count("too close to call")
    assert dots["too close to call"].marker.color != dots["holds"].marker.color


def test_latencies_are_those_of_the_share_that_the_slo_asks_for() -> None:
    found = found_steep()[0]
    told = document(found)
    assert told["shares"]["tpot"] == 0.95
    assert found.own is not None
    assert found.own.runs == 1  # so that the run is the very one
    own, summary = told["own"]["probe"], simulate(steep()).summary
    assert own["slo_tpot_ms"] == pytest.approx(summary["p95_tpot_ms"])
    assert own["slo_ttft_ms"] == pytest.approx(summary["p95_ttft_ms"])
    drawn = chart(curve_of(told, "tpot"))
    assert "p95" in drawn.layout.yaxis.title.text
    best = next(t for t in drawn.data if t.name == "holds")
    assert own["slo_tpot_ms"] in best.y


def test_the_terminal_shows_the_loads_around_the_answer() -> None:
    told = document(found_steep()[0])
    shown = [told["probes"][place] for place in nearest(told)]
    loads = [probe["load"] for probe in shown]
    assert len(shown) < len(told["probes"])
    ends = {told["load"], told["fails_at"], told["own"]["load"], *told["chance"].values()}
    assert {told["load"], told["fails_at"], told["own"]["load"]} <= set(loads[: len(ends)])
    text = as_text(find_view(told))
    rows = [line for line in text.splitlines() if re.match(r"^[\d.,]+ .*(holds|fails)", line)]
    drawn = [float(row.split()[0].replace(",", "")) for row in rows]
    assert drawn == sorted(drawn)
    assert len(drawn) == len(shown)
    apart = [abs(probe["load"] / told["load"] - 1) for probe in told["probes"]]
    closest = sorted(apart)[:5]
    assert set(closest) <= {abs(load / told["load"] - 1) for load in loads}


def test_figures_show_every_load() -> None:
    made = made_up.highest_load()
    for metric in ("ttft", "tpot"):
        drawn = chart(curve_of(made, metric))
        points = [t for t in drawn.data if t.mode == "markers"]
        assert sum(len(t.x) for t in points) == len(made["probes"])
        region = next(shape for shape in drawn.layout.shapes if shape.name == "within the SLO")
        assert region.x1 == made["load"]
        assert region.y1 == made["limits_ms"][metric]
    shares = chart(attained_by_load(made))
    assert sum(len(t.x) for t in shares.data if t.mode == "markers") == len(made["probes"])


def test_a_page_without_an_slo_can_be_written() -> None:
    page = render_find(
        document(find(load_scenario(ONE_SERVER, {"run.requests": 300}), "rate", tolerance=0.5))
    )
    assert "figure-curve-ttft" in page
    assert "figure-attainment" not in page
