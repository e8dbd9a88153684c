"""The table of metrics: whole, and the only place where a new metric is described."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sim.metrics import repetitions
from sim.metrics.terms.definitions import DEFINITIONS, METRIC, METRICS, STUDIED, path_of
from sim.metrics.terms.metric import Metric
from sim.planning.points.figures import FIGURES
from sim.simulation import simulate
from tests.places import ROOT
from tests.planning_fixtures import small

SUMMARY = simulate(small()).summary


def test_a_key_stands_once() -> None:
    assert len(METRIC) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)
def test_a_metric_is_defined_and_in_the_summary(metric: Metric) -> None:
    if metric.key == "capacity":  # made of the verdict's utilisation
        return
    if metric.optional:
        assert path_of(metric.key).split(".")[1] not in SUMMARY["infersim"]
        return
    assert metric.definition in DEFINITIONS
    found = SUMMARY
    for step in path_of(metric.key).split("."):
        assert step in found
        found = found[step]


def test_every_number_with_an_interval_is_a_metric() -> None:
    """Those that are not described are counts and ranks that no table has."""
    known = {key for key in repetitions.headlines(SUMMARY) if key in METRIC}
    wanted = (m for m in METRICS if (m.repeated or m.compared) and not m.optional)
    assert {metric.key for metric in wanted} <= known
    assert set(STUDIED) <= known | {"capacity"}


WITH_A_NEW_ROW = """
from sim.metrics.terms import definitions as table

new = table.Metric(
    "request_fairness", "goodput", "requests/s", "higher",
    title="Fairness", called="fairness", table="throughput", compared=True, repeated=True,
)
table.METRICS += (new,)
table.METRIC[new.key] = new

from reports.pages.run import tables
from sim.metrics import repetitions
from sim.planning.answers import compare
from sim.planning.contrast.difference_words import head
from sim.planning.points.figures import FIGURES
from sim.planning.answers import run_tables

assert new in tables.lines("throughput")
assert FIGURES[-1][:2] == ("request_fairness", "Fairness")
assert head(FIGURES[-1]._asdict()) == "Fairness (requests/s)"
assert repetitions.DETAILS[-1] == new
assert compare.definition(FIGURES[-1]._asdict()) == "goodput"
assert new in run_tables.METRICS
"""


def test_a_new_metric_is_one_row_and_its_computation() -> None:
    """Two files: the table, of which all lists are made, and the summary, which has the value."""
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_NEW_ROW], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_titles_of_metrics_are_written_in_the_table_alone() -> None:
    titles = {m.title for m in METRICS if m.compared and m.kind == "ms"} | {"Output tokens/s"}
    pattern = re.compile("|".join(f'"{re.escape(title)}"' for title in sorted(titles)))
    files = [
        path.relative_to(ROOT).as_posix()
        for package in ("sim", "calibrate", "reports")
        for path in (ROOT / package).rglob("*.py")
        if pattern.search(path.read_text("utf-8"))
    ]
    assert files == []


def test_comparisons_have_the_compared_metrics() -> None:
    assert [figure.key for figure in FIGURES] == [m.key for m in METRICS if m.compared]
