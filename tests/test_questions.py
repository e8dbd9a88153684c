"""The Python API beyond one run: what prints, what is drawn, and the decisions of the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import InfeasibleError, InfersimError, ScenarioError, UsageError

pytestmark = pytest.mark.usefixtures("brief_answers")

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "max_model_len": 1024,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 5},
        "prompt_tokens": {"kind": "fixed", "value": 200},
        "output_tokens": {"kind": "fixed", "value": 20},
    },
    "slo": {"ttft": "500ms", "tpot": "40ms", "attainment": 0.9},
    "run": {"requests": 60},
}
MOST_SEQS = "scheduler.max_num_seqs"


@pytest.fixture(scope="module")
def result() -> sim.Result:
    return sim.simulate(SCENARIO)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(SCENARIO))
    return tmp_path


# -- one run -------------------------------------------------------------------------------------


def test_simulate_takes_a_path_a_mapping_or_a_scenario(result: sim.Result, place: Path) -> None:
    named = {**SCENARIO, "name": "one"}
    expected = sim.simulate(sim.load_scenario(named)).summary
    assert sim.simulate("one.yaml").summary == expected
    assert sim.simulate(place / "one.yaml").summary == expected
    assert sim.simulate(named).summary == expected
    with pytest.raises(ScenarioError, match="a path or a mapping"):
        sim.simulate(7)  # type: ignore[arg-type]


def test_a_result_prints_what_the_command_prints(place: Path) -> None:
    printed = CliRunner().invoke(app, ["run", "one.yaml", "--no-report"]).stdout.splitlines()
    shown = str(sim.simulate("one.yaml")).splitlines()
    assert len(shown) > 20
    assert shown == [line.rstrip() for line in printed[: len(shown)]]
    assert all(line.startswith("Run: ") for line in printed[len(shown) :])


def test_a_result_is_named_in_a_line(result: sim.Result) -> None:
    assert repr(result).startswith("<Result of scenario: 60 requests completed, ")


def test_a_notebook_shows_a_table_that_is_safe(result: sim.Result) -> None:
    html = result._repr_html_()
    assert html.startswith("<table>")
    assert html.count("<tr>") == html.count("</tr>") > 6
    assert "100.00%: SLO met" in html
    odd = sim.simulate({**SCENARIO, "name": "<b>&", "run": {"requests": 5}})
    assert "&lt;b&gt;&amp;" in odd._repr_html_()
    assert "<b>" not in odd._repr_html_()


def test_a_page_is_written_on_request_only(result: sim.Result, tmp_path: Path) -> None:
    plain = result.save(tmp_path / "plain")
    assert not (plain / "report.html").exists()
    drawn = result.save(tmp_path / "drawn", report=True)
    assert (drawn / "report.html").is_file()
    page = tmp_path / "page.html"
    assert result.report(page) == sim.report(result, page) == page
    assert page.read_text() == (drawn / "report.html").read_text()
    assert result.report(plain) == plain / "report.html"
    with pytest.raises(InfersimError, match="cannot be written"):
        result.report(tmp_path / "no" / "folder.html")


# -- decisions -----------------------------------------------------------------------------------


def check(answer: sim.Answer, tmp_path: Path, *words: str) -> None:
    """What every answer offers: plain data, a table of 88 columns, HTML, a page."""
    assert json.loads(json.dumps(answer.document(), allow_nan=False)) == answer.document()
    text = str(answer)
    assert max(len(line) for line in text.splitlines()) <= 88
    assert "\x1b" not in text
    for word in words:
        assert word in text
    html = answer._repr_html_()
    assert html.startswith("<pre>")
    assert words[0] in html
    page = answer.report(tmp_path)
    assert page == tmp_path / "report.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert answer["command"] in repr(answer)


def same(answer: sim.Answer, *arguments: str) -> bool:
    """Whether the command answers the same."""
    done = CliRunner().invoke(app, [*arguments, "--json", "--no-report"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    document = json.loads(json.dumps(answer.document()))
    return {key: told[key] for key in document} == document


def test_compare(place: Path) -> None:
    answer = sim.compare("one.yaml", {MOST_SEQS: [1, 64]}, repetitions=2, jobs=1)
    check(answer, place, "64")
    means = {figure["key"]: figure["means"] for figure in answer["figures"]}
    table = answer.table()
    assert list(table[MOST_SEQS]) == [1, 64]
    assert list(table["p99_ttft_ms"]) == means["p99_ttft_ms"]
    options = ["--vary", f"{MOST_SEQS}=1,64", "--repetitions", "2", "--jobs", "1"]
    assert same(answer, "compare", "one.yaml", *options)


def test_compare_run_directories(place: Path, result: sim.Result) -> None:
    answer = sim.compare([result.save(place / "a"), str(result.save(place / "b"))])
    check(answer, place, "a", "b")
    assert answer["same_traffic"] is True
    with pytest.raises(UsageError, match="compared as they are"):
        sim.compare([place / "a", place / "b"], {MOST_SEQS: [1, 2]})


def test_sweep(place: Path) -> None:
    answer = sim.sweep("one.yaml", {"workload.arrivals.rate": [2, 4]}, jobs=1)
    check(answer, place, "rate")
    table = answer.table()
    assert table.columns[0] == "workload.arrivals.rate"
    summaries = [row["summary"] for row in answer["results"]]
    assert list(table["p95_ttft_ms"]) == [each["p95_ttft_ms"] for each in summaries]
    assert list(table["verdict.attainment"]) == [1.0, 1.0]
    verdicts = [each["infersim"]["verdict"] for each in summaries]
    for key in ("state", "slo_met"):
        assert list(table[key]) == [each[key] for each in verdicts]
    options = ["--sweep", "workload.arrivals.rate=2,4", "--jobs", "1"]
    assert same(answer, "sweep", "one.yaml", *options)


def test_find(place: Path) -> None:
    answer = sim.find("one.yaml", tolerance=0.5)
    check(answer, place, "requests/s")
    assert answer["load"] > 5
    assert list(answer.table()["load"]) == [probe["load"] for probe in answer["probes"]]
    assert same(answer, "find", "one.yaml", "--tolerance", "0.5")


def test_plan(place: Path) -> None:
    answer = sim.plan("one.yaml", ["h100-sxm"], tensor_parallel=[1], rate="2x", top=1, jobs=1)
    check(answer, place, "h100-sxm")
    assert list(answer.table()["usd_per_hour"]) == [answer["fleets"][0]["usd_per_hour"]]
    options = ["--gpus", "h100-sxm", "--tensor-parallel", "1", "--rate", "2x", "--top", "1"]
    assert same(answer, "plan", "one.yaml", *options, "--jobs", "1")


@pytest.mark.slow
def test_prices_in_python_are_those_of_the_command(place: Path) -> None:
    (place / "prices.yaml").write_text("h100-sxm: 1.25\nl4: 0.4\n")
    for prices, option in (
        ({"h100-sxm": 2.4}, ["--price", "h100-sxm=2.4"]),
        ("prices.yaml", ["--prices", "prices.yaml"]),
    ):
        answer = sim.find("one.yaml", tolerance=0.5, prices=prices)
        assert same(answer, "find", "one.yaml", "--tolerance", "0.5", *option)
    fleets = sim.plan(
        "one.yaml", ["h100-sxm"], tensor_parallel=[1], top=1, jobs=1, prices={"h100-sxm": "2.40"}
    )
    (fleet,) = fleets["fleets"]
    assert fleet["usd_per_hour"] == pytest.approx(2.4 * fleet["gpus"])
    points = sim.sweep("one.yaml", {"run.requests": [60]}, jobs=1, prices={"h100-sxm": 2.4})
    cost = points["results"][0]["summary"]["infersim"]["cost"]
    assert cost["usd_per_gpu_hour"] == 2.4
    compared = sim.compare(
        "one.yaml", {MOST_SEQS: [8, 16]}, repetitions=2, jobs=1, prices={"h100-sxm": 2.4}
    )
    options = ["--vary", f"{MOST_SEQS}=8,16", "--repetitions", "2", "--jobs", "1"]
    assert same(compared, "compare", "one.yaml", *options, "--price", "h100-sxm=2.4")


# -- mistakes ------------------------------------------------------------------------------------

MISTAKES = {
    "override": lambda s: s.override({"run.requests": -1}),
    "unknown key": lambda s: s.override({"workload.arrivals.rat": 3}),
    "no axis": lambda s: sim.compare(s, {}),
    "one value": lambda s: sim.compare(s, {MOST_SEQS: [3]}, jobs=1),
    "bad value": lambda s: sim.sweep(s, {MOST_SEQS: ["many"]}, jobs=1),
    "text for values": lambda s: sim.sweep(s, {"router": "random"}),
    "our own key": lambda s: sim.compare(s, {"seed": [1, 2]}, jobs=1),
    "repetitions": lambda s: sim.compare(s, {MOST_SEQS: [1, 2]}, repetitions=0, jobs=1),
    "tolerance": lambda s: sim.find(s, tolerance=3),
    "text for gpus": lambda s: sim.plan(s, "h100-sxm"),
    "gpu": lambda s: sim.plan(s, ["h100"]),
    "rate": lambda s: sim.plan(s, ["h100-sxm"], rate="fast"),
    "headroom": lambda s: sim.plan(s, ["h100-sxm"], headroom=-1),
    "constraint": lambda s: sim.plan(s, ["h100-sxm"], constraint="ttft"),
    "unknown GPU": lambda s: sim.find(s, prices={"h100": 2}),
    "another GPU": lambda s: sim.plan(s, ["h100-sxm"], prices={"l4": 2}),
    "price": lambda s: sim.sweep(s, {MOST_SEQS: [1, 2]}, jobs=1, prices={"h100-sxm": "dear"}),
    "a price alone": lambda s: sim.find(s, prices=2.4),
    "prices of runs": lambda s: sim.compare(["a", "b"], prices={"h100-sxm": 2}),
    "jobs": lambda s: sim.sweep(s, {MOST_SEQS: [1, 2]}, jobs=0),
}


@pytest.mark.parametrize("wrong", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_python_names_no_option_of_the_command_line(wrong: Any) -> None:
    with pytest.raises(UsageError) as caught:
        wrong(sim.load_scenario(SCENARIO))
    assert "--" not in str(caught.value)


def test_an_override_is_named_by_its_key_and_value() -> None:
    with pytest.raises(ScenarioError, match=r"^run\.requests=-1: expected a whole number"):
        sim.load_scenario(SCENARIO, {"run.requests": -1})


def test_what_cannot_be_is_infeasible_as_on_the_command_line() -> None:
    with pytest.raises(InfeasibleError):
        sim.find({**SCENARIO, "slo": {"ttft": "1us"}}, tolerance=0.5)


# -- the package ---------------------------------------------------------------------------------


def test_python_m_sim_is_the_command() -> None:
    command = [sys.executable, "-m", "sim", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("infersim ")


def test_importing_sim_loads_nothing_that_is_slow_to_import() -> None:
    heavy = "{'numpy', 'pandas', 'pydantic', 'rich', 'scipy', 'simpy', 'plotly', 'torch', 'yaml'}"
    code = f"import sys, sim; dir(sim); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
