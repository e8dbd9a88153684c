"""A page of a run keeps what is looked at in its address, and lays another run over its own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from tests.browser import READY, Window, in_page, needs_browser, with_figures
from tests.page_kinds import KINDS, long_run
from tests.reports.test_page_fuzz import render

pytestmark = needs_browser

FIGURE = "document.querySelector('[data-name=cdf-ttft]')"

ADDRESS = "#figure-cdf-ttft&xaxis="

LAID = """
  const chosen = new DataTransfer();
  chosen.items.add(new File([%s], "report.html"));
  const input = document.querySelector("input[type=file]");
  input.files = chosen.files;
  input.dispatchEvent(new Event("change"));
  await until(() => document.querySelector("#other-told")?.textContent);
"""


def test_what_is_enlarged_stands_in_the_address(window: Window, tmp_path: Path) -> None:
    html = with_figures(KINDS["run"].render(tmp_path), "cdf-ttft")
    tab = window.open(html)
    tab.evaluate(READY)
    enlarge = f"await Plotly.relayout({FIGURE}, {{'xaxis.range[0]': 50, 'xaxis.range[1]': 200}});"
    width = f"{FIGURE}.querySelector('.main-svg').clientWidth"
    before = tab.evaluate(width)
    tab.resize(600, 900)
    assert tab.evaluate(in_page(f"return until(() => {width} !== {before});"))
    assert tab.evaluate("location.hash") == "", "another width is no view"
    assert tab.evaluate(in_page(f"{enlarge} return location.hash;")) == f"{ADDRESS}50,200"
    whole = f"await Plotly.relayout({FIGURE}, {{'xaxis.autorange': true}});"
    assert tab.evaluate(in_page(f"{whole} return location.hash;")) == "#figure-cdf-ttft"
    shown = f"{FIGURE}.layout.xaxis.range"
    tab.evaluate(f"location.hash = '{ADDRESS}10,90'")
    assert tab.evaluate(in_page(f"return until(() => {shown}.join() === '10,90');"))
    tab.evaluate(f"location.hash = '{ADDRESS}1,none'")  # of which nothing is to be read
    assert tab.evaluate(shown) == [10, 90]
    assert tab.complaints == []


def test_another_run_is_laid_over_in_the_units_of_this_one(window: Window) -> None:
    mine, other = long_run(300), long_run(200)
    times = ["ttft_s", "queue_s"]
    slow = other.requests.assign(**{name: 1000 * other.requests[name] for name in times})
    theirs = render(dataclasses.replace(other, requests=slow))
    tab = window.open(with_figures(render(mine), "cdf-ttft", "course-ttft"))
    tab.evaluate(READY)
    tab.evaluate(in_page(LAID % json.dumps(theirs)))
    laid = f"{FIGURE}.data.at(-1)"
    assert str(tab.evaluate(f"{laid}.name")).startswith("other: ")
    # drawn in minutes there, and in milliseconds here
    longest = 1e3 * float(slow.loc[slow["status"] == "completed", "ttft_s"].max())
    found = tab.evaluate(f"Math.max(...{laid}.x)")
    assert abs(found - longest) < 0.01 * longest
    before = tab.evaluate(f"{FIGURE}.data.length")
    tab.evaluate("document.getElementById('other-run').click()")
    assert tab.evaluate(in_page(f"return until(() => {FIGURE}.data.length < {before});"))
    assert tab.complaints == []


def test_a_file_that_is_no_page_of_a_run_is_refused(window: Window) -> None:
    tab = window.open(with_figures(render(long_run(300)), "cdf-ttft"))
    tab.evaluate(READY)
    tab.evaluate(in_page(LAID % json.dumps("<h1>a letter</h1><script>window.pwned = 1</script>")))
    assert "not the report.html of a run" in tab.evaluate(
        "document.querySelector('#other-told').textContent"
    )
    assert tab.evaluate("window.pwned === undefined")
    assert tab.complaints == []
