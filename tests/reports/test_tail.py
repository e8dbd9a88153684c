"""The tail on a run's page: its course, its prompts, and its slowest requests."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from reports.figures import over_run
from reports.pages.run import response
from tests.report_fixtures import make_run


def frame(ttft: list[float]) -> pd.DataFrame:
    run = make_run(len(ttft))
    requests = run.requests.copy()
    requests["status"], requests["warmup"] = "completed", False
    requests["arrival_s"] = np.arange(len(ttft), dtype=float)
    requests["ttft_s"] = ttft
    return requests


def test_a_course_has_the_percentiles_of_each_stretch() -> None:
    found = over_run.course(frame([1.0] * 40 + [3.0] * 40), "ttft", 99.0)
    assert found is not None
    assert found.size == 40
    assert found.median.tolist() == [1.0, 3.0]
    assert found.at.tolist() == [19.5, 59.5]


def test_a_course_follows_arrivals_not_the_order_of_the_table() -> None:
    requests = frame([1.0] * 40 + [3.0] * 40).iloc[::-1]
    found = over_run.course(requests, "ttft", 50.0)
    assert found is not None
    assert found.high.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("count", [0, 1, 79])
def test_few_requests_have_no_course(count: int) -> None:
    assert over_run.course(frame([1.0] * 80).head(count), "ttft", 99.0) is None


def test_a_burst_has_no_course() -> None:
    requests = frame([1.0] * 100)
    requests["arrival_s"] = 0.0
    assert over_run.course(requests, "ttft", 99.0) is None


def test_the_slowest_always_have_a_point() -> None:
    ttft = [0.001 * (7919 * n % 5000) for n in range(5000)]
    points = over_run.drawn(frame(ttft))
    assert len(points) <= over_run.MOST
    slowest = sorted(ttft)[-over_run.SLOWEST :]
    assert points["ttft_s"].tail(over_run.SLOWEST).tolist() == slowest


def test_the_caption_says_which_requests_have_a_point() -> None:
    few, many = (frame([0.1] * count) for count in (600, 6000))
    assert (over_run.caption(few), len(over_run.drawn(few))) == ("Every request.", 600)
    assert over_run.caption(many).startswith("One of 12 requests, ")
    assert len(over_run.drawn(many)) == 5900 // 12 + 1 + over_run.SLOWEST


def test_the_table_has_the_longest_ttft_first() -> None:
    requests = frame([float(n % 50) for n in range(100)])
    requests.loc[requests["ttft_s"] == 49.0, "status"] = "rejected"
    rows = response.slowest(requests).rows
    assert len(rows) == response.SLOWEST
    at = [column.title for column in response.slowest(requests).columns].index("TTFT")
    assert [row[at].value for row in rows][:4] == [48_000.0, 48_000.0, 47_000.0, 47_000.0]


def test_a_run_without_requests_says_so() -> None:
    requests = frame([1.0] * 3).head(0)
    summary = make_run(3).summary
    assert response.slowest(requests).rows == ()
    assert [plot.spec for plot in response.over_time(summary, requests)] == [None, None]
    assert response.by_prompt(summary, requests).spec is None


def test_the_line_is_broken_where_many_arrive_and_none_is_completed() -> None:
    requests = frame([1.0] * 200)
    requests.loc[60:119, "status"] = "timed out"
    requests.loc[60:119, "ttft_s"] = np.nan
    found = over_run.course(requests, "ttft", 99.0)
    assert found is not None
    (broken,) = np.flatnonzero(np.isnan(found.high))
    before, after = found.at[broken - 1], found.at[broken + 1]
    arrivals = requests["arrival_s"]
    assert before < arrivals[60]
    assert after > arrivals[119]
    drawn = over_run.latency_over_time(found, "ttft", 99.0)
    assert [value is None for value in drawn.data[0].y] == list(np.isnan(found.high))


def test_a_few_that_are_lost_break_no_line() -> None:
    requests = frame([1.0] * 200)
    requests.loc[60:90, "status"] = "timed out"
    found = over_run.course(requests, "ttft", 99.0)
    assert found is not None
    assert not np.isnan(found.high).any()


def test_a_heat_map_counts_each_request_once() -> None:
    run = make_run(800)
    prompts, times = response.densities(run.requests)
    for plot in (prompts, times):
        (trace,) = json.loads(str(plot.spec))["data"]
        counted = sum(count or 0 for row in trace["z"] for count in row)
        assert counted == (run.requests["ttft_s"] > 0).sum()
        assert len(trace["y"]) == len(trace["z"]) + 1
    assert response.densities(run.requests.head(300)) == []
    assert response.densities(run.requests.assign(arrival_s=0.0)) == []
