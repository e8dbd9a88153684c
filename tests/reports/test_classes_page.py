"""How the page of a run shows each class of the traffic."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import sim
from reports.frame.formats import NARROW_SPACE
from reports.frame.run_directory import SavedRun
from reports.pages.run import groups
from reports.pages.run.page import render
from reports.pages.run.verdict import verdict
from sim.metrics.terms.definitions import DEFINITIONS
from sim.scenario import load_scenario
from tests.planning_fixtures import SMALL

TWO = [{"name": "chat", "share": 0.5}, {"name": "bulk", "share": 0.5, "priority": 1}]


@cache
def run(*, apart: bool = True, slo: bool = True) -> SavedRun:
    """A small overload, in which ``bulk`` waits for ``chat``; or traffic of one kind."""
    workload = SMALL["workload"] | ({"classes": TWO} if apart else {})
    limits = {"ttft": "1s", "tpot": "1s", "attainment": 0.9} if slo else None
    scenario = load_scenario({**SMALL, "workload": workload, "slo": limits}).override(
        {
            "run.requests": 400,
            "run.warmup": 0,
            "workload.arrivals.rate": 2000.0,
            "scheduler.order": "priority" if apart else "fcfs",
        }
    )
    made = sim.simulate(scenario)
    return SavedRun(made.summary, made.requests, made.timeseries, scenario.to_yaml())


def test_a_row_for_each_class_has_its_own_latencies() -> None:
    table = groups.classes_table(run().summary, DEFINITIONS)
    titles = [column.title for column in table.columns]
    rows = {row[0].text: dict(zip(titles, row, strict=True)) for row in table.rows}
    assert list(rows) == ["chat", "bulk"]
    requests = run().requests
    for name, row in rows.items():
        mine = requests[requests["class"] == name]
        assert row["Completed"].value == len(mine)
        assert row["TTFT p99"].value == pytest.approx(
            1e3 * float(np.percentile(mine["ttft_s"], 99))
        )
        assert row["Within limits (%)"].value == pytest.approx(100 * mine["slo_met"].mean())
    assert rows["bulk"]["TTFT p50"].value > 2 * rows["chat"]["TTFT p50"].value
    assert "TTFT limit" not in titles  # one for all


def test_the_answer_about_the_slo_tells_the_classes_apart() -> None:
    detail = next(each for each in verdict(run().summary).answers if each.key == "slo").detail
    shares = run().requests.groupby("class")["slo_met"].mean()
    assert shares["chat"] > shares["bulk"] + 0.1
    told = detail.replace(NARROW_SPACE, " ").partition("By class: ")[2]
    assert told.startswith("chat ")
    assert ", bulk " in told
    assert groups.sentence(run(slo=False).summary) == ""


def test_latencies_of_the_classes_are_drawn_over_each_other() -> None:
    drawn = groups.plots(run().summary, run().requests)
    assert [each.title for each in drawn] == ["TTFT by class", "TPOT by class"]
    assert drawn[0].caption.endswith("Dashed: the limit.")
    page = render(run().summary, run().requests, run().timeseries, "", {})
    assert page.count('data-name="classes-ttft"') == 1
    assert 'id="table-classes"' in page


def test_traffic_of_one_kind_has_nothing_of_it() -> None:
    one = run(apart=False)
    assert not groups.classes_table(one.summary, DEFINITIONS).rows
    assert groups.plots(one.summary, one.requests) == []
    assert groups.sentence(one.summary) == ""
    assert "by class" not in render(one.summary, one.requests, one.timeseries, "", {}).lower()
