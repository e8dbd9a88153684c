"""The pages of studies: complete without a browser, and drawn in one without complaint."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from test_report_browser import BROWSER, Page

from reports.planning.ablate import render_ablation
from reports.planning.diagnose import render_diagnosis, write_diagnose_report
from reports.planning.sensitivity import render_sensitivity
from sim.planning import ablate_document, diagnose_document, sensitivity_document
from sim.planning.ablate import ablate
from sim.planning.diagnose import diagnose
from sim.planning.executors import local
from sim.planning.sensitivity import sensitivity
from tests.planning_fixtures import small

HOSTILE = "</script><script>alert(1)</script><b>"

Render = Callable[[Mapping[str, Any]], str]


def _scenario() -> Any:
    return small(
        name=f"a {HOSTILE}", workload__arrivals__rate=300, run__requests=40,
        scheduler__max_num_seqs=16,
    )  # fmt: skip


@cache
def study(kind: str) -> tuple[Mapping[str, Any], Render]:
    scenario = _scenario()
    if kind == "ablation":
        return ablate_document.document(ablate(scenario, local(1))), render_ablation
    if kind == "diagnosis":
        found = diagnose(scenario, local(1), target="x.yaml")
        return diagnose_document.document(found), render_diagnosis
    made = sensitivity(scenario, local(1))
    return sensitivity_document.document(made), render_sensitivity


KINDS: Mapping[str, list[str]] = {
    "ablation": [
        *("waterfall-output_throughput", "waterfall-request_goodput", "waterfall-p99_ttft_ms"),
        *("waterfall-p99_tpot_ms", "waterfall-capacity"),
    ],
    "diagnosis": [
        *("parts-ttft", "parts-e2el", "tornado-output_throughput", "tornado-request_goodput"),
        *("tornado-p99_ttft_ms", "tornado-p99_tpot_ms", "tornado-capacity"),
    ],
    "sensitivity": [
        *("tornado-output_throughput", "tornado-request_goodput"),
        *("tornado-p99_ttft_ms", "tornado-p99_tpot_ms", "tornado-capacity"),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_a_function_of_the_result_and_escapes_it(kind: str) -> None:
    document, render = study(kind)
    html = render(document)
    assert html == render(document)
    assert HOSTILE not in html
    assert f"a {HOSTILE}" in unescape(html)
    assert html.count('<div class="plot ') == len(KINDS[kind])


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_draws_and_nothing_is_fetched(kind: str, tmp_path: Path) -> None:
    document, render = study(kind)
    opened = Page(render(document), tmp_path)
    assert opened.complaints == []
    assert opened.drawn == KINDS[kind]
    assert opened.section("figures").count('class="main-svg"') >= len(KINDS[kind])
    opened.section("numbers")


def test_every_command_of_the_advice_is_on_the_page() -> None:
    document, render = study("diagnosis")
    html = unescape(render(document))
    assert document["advice"]
    trials = {trial["name"]: trial for trial in document["trials"]}
    assert all(trials[name]["command"] in html for name in document["advice"])


def test_what_does_not_run_has_a_section_of_its_own(tmp_path: Path) -> None:
    document, render = study("diagnosis")
    assert 'id="failures"' not in render(document)
    first, *rest = document["trials"]
    broken = {**first, "error": "does not fit", "figures": None, "changes": {}, "effect": None}
    changed = {**document, "trials": [broken, *rest], "latency": {}}
    write_diagnose_report(tmp_path / "page.html", changed)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="failures"' in html
    assert "does not fit" in html


@pytest.mark.parametrize("name", ["waterfall", "tornado", "parts"])
def test_each_figure_can_be_looked_at_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "-o", str(tmp_path / "one.html")])
    monkeypatch.delitem(sys.modules, f"reports.planning.{name}", raising=False)
    runpy.run_module(f"reports.planning.{name}", run_name="__main__")
    assert "plotly" in (tmp_path / "one.html").read_text(encoding="utf-8").lower()
