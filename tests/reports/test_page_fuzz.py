"""Whatever came of a run or a study, its page can be made, read and trusted.

Empty, single, rejected, interrupted and very long runs, columns without numbers, hostile names;
studies in which one, all or nothing worked. A page says a dash, never ``nan``, ``None`` or ``inf``.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports.frame.page import SCRIPTS
from reports.frame.run_directory import SavedRun
from reports.pages.run.slo import limits
from tests.page_kinds import DECISIONS, KINDS, long_run
from tests.report_fixtures import make_run, plan_frame, summary_of
from tests.reports.test_report import Reader, rejected_run, render

NAMES = (
    "</script><script>window.pwned = 1</script><b>",
    "<img src=x onerror='window.pwned=1'>",
    "\"'`${window.pwned=1}{{ 7 * 7 }}{% raw %}&lt;&amp;<!--",
    "x" * 500,
    "عربي \u202e reversed \u2066",
    "🙂👩‍👩‍👧‍👦 \u0000\u0001 line\nbreak\ttab",
    "",
)
SMALL = {"max_examples": 12, "deadline": None, "derandomize": True}
QUIET = settings(**SMALL, suppress_health_check=[HealthCheck.too_slow])  # type: ignore[arg-type]
LIMIT = 1.5e6
"""Bytes of the page of a run, however long it was."""


def check(html: str, sections: Mapping[str, str]) -> Reader:
    """Assert what holds for every page: it parses, is whole, and its numbers are numbers."""
    reader = Reader(html)  # reads all JSON too
    links = {a["href"][1:] for tag, a in reader.tags if tag == "a" and a["href"].startswith("#")}
    assert set(sections) <= reader.ids() >= links
    assert html.count("<script") == html.count("</script>")
    scripts = [attributes for tag, attributes in reader.tags if tag == "script"]
    own = sum("type" not in each for each in scripts)  # one is of runs alone, one of plans
    assert own in (len(SCRIPTS) - 2, len(SCRIPTS) - 1), "a script of somebody else"
    assert not [
        tag for tag, attributes in reader.tags if tag in ("img", "b") or "onerror" in attributes
    ]
    shown = re.findall(r'<td class="num"[^>]*>(.*?)</td>|<p class="value">(.*?)<', html, re.DOTALL)
    numbers = [re.sub(r"<[^>]*>", "", unescape("".join(each))) for each in shown]
    assert not [text for text in numbers if re.search(r"nan|none|inf\b|infinity", text, re.I)]
    assert not re.search(r'data-value="(nan|None|-?inf)"', html)
    return reader


# ---- runs ----------------------------------------------------------------------------------------


def empty_run() -> SavedRun:
    run = make_run(5)
    requests, series = run.requests.iloc[:0], plan_frame([])
    return SavedRun(summary_of(requests, series, {}), requests, series, run.scenario_yaml)


def interrupted_run() -> SavedRun:
    """Half of it had happened: the other requests have no end."""
    run = make_run(60)
    requests = run.requests.copy()
    late = requests["arrival_s"] > requests["arrival_s"].median()
    requests.loc[late, "status"] = "unfinished"
    for column in ("first_token_s", "finish_s", "ttft_s", "tpot_s", "e2el_s"):
        requests.loc[late, column] = math.nan
    summary = summary_of(requests, run.timeseries, {"ttft": 500.0})
    summary["infersim"]["interrupted"] = True
    return SavedRun(summary, requests, run.timeseries, run.scenario_yaml, "interrupted")


def blank_run() -> SavedRun:
    """Columns in which no number is known, and a summary full of what is no number."""
    run = make_run(30)
    requests, summary = run.requests.copy(), copy.deepcopy(run.summary)
    for column in ("tpot_s", "queue_s", "scheduled_s"):
        requests[column] = math.nan
    for key in ("p99_tpot_ms", "mean_tpot_ms", "output_throughput", "p99_ttft_ms"):
        summary[key] = math.nan
    summary["request_throughput"] = math.inf
    return SavedRun(summary, requests, run.timeseries, run.scenario_yaml)


RUNS: Mapping[str, Callable[[], SavedRun]] = {
    "empty": empty_run,
    "one request": lambda: make_run(1),
    "all rejected": rejected_run,
    "interrupted": interrupted_run,
    "no numbers": blank_run,
    "one iteration": lambda: dataclasses.replace(
        make_run(3), timeseries=make_run(3).timeseries.iloc[:1]
    ),
    "large": lambda: long_run(50_000),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_run_has_a_page(name: str) -> None:
    run = RUNS[name]()
    html, sections = render(run), dict(KINDS["run"].sections)
    if not limits(run.summary):
        del sections["limits"]  # the verdict says that there is no SLO
    check(html, sections)
    assert len(html.encode()) < LIMIT


@QUIET
@given(
    requests=st.integers(0, 12),
    rejected=st.sets(st.integers(0, 11)),
    blank=st.sets(st.sampled_from(["tpot_s", "ttft_s", "queue_s", "e2el_s"])),
    name=st.sampled_from(NAMES),
    rate=st.floats(0.01, 1e4),
)
def test_any_small_run_has_a_page(
    requests: int, rejected: set[int], blank: set[str], name: str, rate: float
) -> None:
    run = make_run(requests, rate=rate) if requests else empty_run()
    frame = run.requests.copy()
    mine = frame["request_id"].isin(rejected)
    frame.loc[mine, "status"] = "rejected"
    frame.loc[mine, "reason"] = name
    for column in ("scheduled_s", "first_token_s", "finish_s", "queue_s", "ttft_s", "e2el_s"):
        frame.loc[mine, column] = math.nan
    for column in blank:
        frame[column] = math.nan
    summary = summary_of(frame, run.timeseries, {"ttft": 500.0, "tpot": 40.0})
    for key in ("scenario", "description", "model", "gpu", "engine", "batching", "provenance"):
        summary["infersim"][key] = name
    html = render(SavedRun(summary, frame, run.timeseries, f"name: {name}\n"))
    check(html, KINDS["run"].sections)


# ---- decisions -----------------------------------------------------------------------------------


def broken(kind: str) -> dict[str, dict[str, Any]]:
    """Unusual results of a command: one point, none that worked, no SLO, variants all the same."""
    made = {what: DECISIONS[kind].document() for what in ("one", "failed", "no SLO", "same")}
    first = kind.partition(" ")[0]
    {
        "sweep": _broken_sweep,
        "compare": _broken_comparison,
        "find": _broken_search,
        "plan": _broken_plan,
        "split": _broken_split,
        "ablate": _broken_ablation,
        "diagnose": _broken_diagnosis,
        "sensitivity": _broken_sensitivity,
        "claims": _broken_claims,
        "trust": _broken_scores,
    }[first](made)
    return made


def _broken_sweep(made: dict[str, dict[str, Any]]) -> None:
    one = made["one"]
    one["results"], one["points"] = one["results"][:1], 1
    for axis in one["axes"]:
        axis["values"] = axis["values"][:1]
    for row in made["failed"]["results"]:
        row.update(summary=None, error="does not fit", exit_code=3)
    made["failed"].update(failed=made["failed"]["points"], answers=[])
    for row in made["no SLO"]["results"]:
        row["summary"]["infersim"]["verdict"].update(limits={}, slo_met=None, attainment=None)
        row["summary"]["infersim"]["cost"] = None
    made["no SLO"]["answers"] = []
    for row in made["same"]["results"]:
        row["summary"] = made["same"]["results"][0]["summary"]


def _broken_comparison(made: dict[str, dict[str, Any]]) -> None:
    one = made["one"]
    one["variants"] = one["variants"][:1]
    for figure in one["figures"]:
        figure.update(means=figure["means"][:1], differences=[None], best=[0])
        figure.update(first=0, to_first=[None])
    for variant in made["failed"]["variants"]:
        variant.update(error="does not fit", exit_code=3, state=None)
    made["failed"]["base"] = None
    for figure in made["failed"]["figures"]:
        figure.update(means=[None] * 3, differences=[None] * 3, best=[])
        figure.update(first=None, to_first=[None] * 3)
    for figure in made["no SLO"]["figures"]:
        if figure["key"] in ("request_goodput", "verdict.attainment"):
            figure.update(means=[None] * 3, differences=[None] * 3, best=[])
            figure.update(first=None, to_first=[None] * 3)
    for variant in made["same"]["variants"]:
        variant["label"] = "the same"
    for figure in made["same"]["figures"]:
        none = {"mean": 0.0, "relative": 0.0, "relative_half_width": 0.0, "certain": False}
        figure.update(means=[0.0] * 3, differences=[None, none, none], best=[])
        figure.update(first=0, to_first=[None, none, none])


def _broken_search(made: dict[str, dict[str, Any]]) -> None:
    made["one"].update(probes=made["one"]["probes"][:1], fails_at=None, knee=None, own=None)
    for probe in made["failed"]["probes"]:
        probe.update(holds=False, sure=False, p99_ttft_ms=None, p99_tpot_ms=None)
    for probe in made["no SLO"]["probes"]:
        probe["promises"] = []
    made["no SLO"].update(promises=[], limits_ms={}, headroom=None)
    made["same"]["probes"] = [made["same"]["probes"][0]] * 3


def _broken_plan(made: dict[str, dict[str, Any]]) -> None:
    one = made["one"]
    one.update(fleets=one["fleets"][:1], sized=one["sized"][:1], rejected=[])
    for fleet in made["failed"]["fleets"]:
        fleet["error_band"].update(replicas=[None] * 2, usd_per_hour=[None] * 2, trust="a guess")
    made["no SLO"].update(promises=[], limits_ms={})
    for fleet in made["no SLO"]["sized"]:
        fleet.update(p99_ttft_ms=None)
    made["same"]["sized"] = [made["same"]["sized"][0]] * 3


def _broken_split(made: dict[str, dict[str, Any]]) -> None:
    made["one"].update(fleets=made["one"]["fleets"][:1], rejected=[])
    made["failed"]["unified"] = {"reason": "no fleet holds 14.4 requests/s"}
    made["no SLO"].update(promises=[], limits_ms={})
    for fleet in made["no SLO"]["fleets"]:
        fleet["at_target"].update(promises=[], slo_ttft_ms=None)
        for one in fleet["tried"]:
            one["attainment"] = None
    for fleet in made["same"]["fleets"]:
        fleet["tried"] = fleet["tried"][:1] * 3


def _broken_ablation(made: dict[str, dict[str, Any]]) -> None:
    for figure in made["one"]["figures"]:
        figure.update(steps=figure["steps"][:1], parts=figure["parts"][:1])
    for figure in made["failed"]["figures"]:
        figure.update(baseline=None, full=None, factor=None)
        for entry in (*figure["steps"], *figure["parts"]):
            entry.update(value=None, factor=None)
    made["failed"]["infeasible"] = [{"with": [], "why": "does not fit"}]
    for figure in made["same"]["figures"]:
        for step in figure["steps"]:
            step["value"] = figure["baseline"]
        figure["full"] = figure["baseline"]


def _broken_diagnosis(made: dict[str, dict[str, Any]]) -> None:
    made["one"]["trials"] = made["one"]["trials"][:1]
    for trial in made["failed"]["trials"]:
        trial.update(error="does not fit", changes={}, effect=None)
    bound = {"by": None, "text": "Nothing.", "figures": {}}
    made["failed"].update(advice=[], latency={}, bound=bound)
    for figure in made["no SLO"]["figures"]:
        figure["value"] = None
    for trial in made["same"]["trials"]:
        trial["changes"] = dict.fromkeys(trial["changes"], 0.0)


def _broken_sensitivity(made: dict[str, dict[str, Any]]) -> None:
    made["one"].update(inputs=made["one"]["inputs"][:1], together=None, holds=None)
    for entry in made["failed"]["inputs"]:
        for end in ("low", "high"):
            entry[end].update(error="does not fit", changes={}, holds=None, attainment=None)
    made["failed"]["inputs"].append(
        {"title": "answers", "missing": "no range is known", "low": None, "high": None}
    )
    made["no SLO"]["verdict"]["attainment"] = None
    for entry in made["same"]["inputs"]:
        entry["low"] = entry["high"]


def _broken_claims(made: dict[str, dict[str, Any]]) -> None:
    made["one"].update(claims=made["one"]["claims"][:1], unexpected=[])
    made["failed"].update(claims=[], unexpected=[])
    for entry in made["no SLO"]["claims"]:
        for variant in entry["variants"]:
            variant["figures"] = dict.fromkeys(variant["figures"])


def _broken_scores(made: dict[str, dict[str, Any]]) -> None:
    made["one"]["rows"] = made["one"]["rows"][:1]
    for row in made["failed"]["rows"]:
        row.update(predicted=None, band50=None, band90=None)


@pytest.mark.parametrize("kind", DECISIONS)
def test_every_result_has_a_page(kind: str) -> None:
    decision = DECISIONS[kind]
    for document in broken(kind).values():
        absent = {"failures"} | ({"definitions"} if document.get("claims") == [] else set())
        html = decision.render(document)
        check(html, {k: v for k, v in decision.sections.items() if k not in absent})


def renamed(value: Any, name: str, keys: frozenset[str]) -> Any:
    """``value`` with ``name`` put behind every text under one of ``keys``."""
    if isinstance(value, dict):
        return {
            k: f"{v}{name}" if k in keys and isinstance(v, str) else renamed(v, name, keys)
            for k, v in value.items()
        }
    return [renamed(each, name, keys) for each in value] if isinstance(value, list) else value


SPOKEN = frozenset(
    ("name", "scenario", "description", "label", "title", "text", "layout", "why", "command",
     "binds", "answer", "setup", "model", "router", "state", "run", "reason")
)  # fmt: skip
"""Keys under which texts of users may stand."""


@QUIET
@given(kind=st.sampled_from([*DECISIONS]), name=st.sampled_from(NAMES))
def test_names_are_shown_and_never_run(kind: str, name: str) -> None:
    decision = DECISIONS[kind]
    keys = SPOKEN - {"name"} if kind == "diagnose" else SPOKEN  # there names are references
    check(
        decision.render(renamed(decision.document(), name, keys)),
        {key: title for key, title in decision.sections.items() if key != "failures"},
    )


@QUIET
@given(
    kind=st.sampled_from(["sweep over a load", "sweep over a grid", "sweep over policies"]),
    gone=st.sets(st.integers(0, 29)),
    value=st.sampled_from([None, 0.0, math.nan, math.inf, 1e-9, 1e300]),
    key=st.sampled_from(["p99_ttft_ms", "p99_tpot_ms", "median_tpot_ms", "output_throughput"]),
)
def test_a_sweep_with_holes_has_a_page(kind: str, gone: set[int], value: Any, key: str) -> None:
    document = DECISIONS[kind].document()
    for row in document["results"]:
        if row["index"] in gone:
            row["summary"][key] = value
    check(DECISIONS[kind].render(document), {"figures": "", "points": ""})
