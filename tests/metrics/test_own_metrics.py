"""Metrics of one's own: where their values appear, and that a failing one costs nothing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import sim
from reports import render
from sim.cli import app
from sim.errors import ScenarioError, UsageError
from sim.metrics.own import load_metrics, own_metrics
from sim.planning.contrast.runs import compare_runs
from sim.setup import prepare
from tests.planning_fixtures import SMALL

README = Path(sim.__file__).parent / "metrics" / "README.md"

MINE = """
def wait(result):
    return result.requests["queue_s"].mean() - 1.0  # negative, as only metrics of one's own are


def shares(result):
    short = (result.requests["prompt_tokens"] < 100).mean()
    return {"short": short, "rows": len(result.timeseries)}


def p99(result):
    return result.summary["p99_ttft_ms"]


def broken(result):
    print("a word on the way")
    return 1 / 0


def spoils(result):
    result.requests["prompt_tokens"] = 0
    return result.requests["prompt_tokens"].sum()


def gives_up(result):
    raise SystemExit(7)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with metrics and a scenario that names some."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "mine.py").write_text(MINE)
    data = {**SMALL, "metrics": ["mine:wait", "mine:shares"]}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(data))
    return tmp_path


def infersim(*arguments: str) -> Any:
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def asked(*metrics: str, **more: Any) -> sim.Result:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return sim.simulate(sim.load_scenario({**SMALL, "metrics": list(metrics)}, settings))


def own(result: sim.Result) -> dict[str, Any]:
    found: dict[str, Any] = result.summary["infersim"]
    return found


def test_numbers_and_mappings_are_in_the_summary() -> None:
    result = asked("mine:wait", "mine:shares", "mine:p99")
    requests = result.requests
    assert own(result)["metrics"] == {
        "wait": requests["queue_s"].mean() - 1.0,
        "shares.short": (requests["prompt_tokens"] < 100).mean(),
        "shares.rows": len(result.timeseries),
        "p99": result.summary["p99_ttft_ms"],
    }
    assert own(sim.simulate(SMALL))["metrics"] == {}


def test_a_failing_metric_leaves_a_note_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, bad = asked("mine:wait"), asked("mine:broken", "mine:gives_up", "mine:wait")
    assert own(bad)["metrics"] == {"broken": None, "gives_up": None, **own(good)["metrics"]}
    notes = [note for note in own(bad)["notes"] if note not in own(good)["notes"]]
    assert notes == [
        "The metric broken failed and has no value (ZeroDivisionError: division by zero).",
        "The metric gives_up failed and has no value (SystemExit: 7).",
    ]
    assert bad.requests.equals(good.requests)
    printed = capsys.readouterr()
    assert (printed.out, "a word on the way" in printed.err) == ("", True)


def test_a_metric_changes_nothing_that_others_see() -> None:
    result = asked("mine:spoils", "mine:shares")
    assert own(result)["metrics"]["spoils"] == 0
    assert own(result)["metrics"]["shares.short"] == (result.requests["prompt_tokens"] < 100).mean()
    assert result.requests["prompt_tokens"].min() >= 10


def test_repetitions_have_means_and_intervals() -> None:
    result = asked("mine:wait", "mine:broken", run__repetitions=3)
    values = [summary["infersim"]["metrics"]["wait"] for summary in result.summaries]
    assert len(set(values)) == 3
    assert own(result)["metrics"]["wait"] == pytest.approx(math.fsum(values) / 3, rel=1e-12)
    interval = own(result)["repetitions"]["intervals"]["metrics.wait"]
    assert interval["low"] < min(values) < max(values) < interval["high"] < 0
    assert own(result)["metrics"]["broken"] is None
    assert sum("broken" in note for note in own(result)["notes"]) == 1
    assert result.repetitions["metrics.wait"].tolist() == values


def test_a_run_shows_them_everywhere(place: Path) -> None:
    shown = infersim("run", "one.yaml", "-o", "out").stdout
    assert "Metrics of your own" in shown
    assert max(map(len, shown.splitlines())) <= 88
    saved = json.loads((place / "out/summary.json").read_text())["infersim"]["metrics"]
    printed = json.loads(infersim("run", "one.yaml", "--json", "--no-report").stdout)
    assert printed["infersim"]["metrics"] == saved
    page = (place / "out/report.html").read_text()
    rows = re.findall(r'id="table-own-metrics".*?</table>', page, re.DOTALL)
    assert len(rows) == 1
    for name, value in saved.items():
        assert name in shown
        assert f'<th scope="row">{name}</th>' in rows[0]
        assert f'data-value="{float(value)}"' in rows[0]
    plain = sim.simulate(SMALL)
    assert "own-metrics" not in render(**plain.page_contents())


def test_compare_and_sweep_have_them_as_columns(place: Path) -> None:
    varied = ("one.yaml", "--set", "metrics=[mine:wait,mine:broken]", "--jobs", "1")
    shown = infersim("compare", *varied, "--vary", "scheduler.max_num_seqs=1,256", "-o", "cmp")
    found = json.loads((place / "cmp/result.json").read_text())
    entry = next(figure for figure in found["figures"] if figure["key"] == "metrics.wait")
    assert (entry["title"], entry["better"], entry["best"]) == ("wait", None, [])
    assert entry["means"][0] > entry["means"][1]
    assert entry["differences"][1]["certain"]
    assert "wait" in shown.stdout
    assert any("metric broken failed" in note for note in found["notes"])
    assert "wait" in (place / "cmp/report.html").read_text()
    swept = infersim("sweep", *varied, "--sweep", "workload.arrivals.rate=5,20", "-o", "swp")
    rows = json.loads((place / "swp/result.json").read_text())["results"]
    assert all(row["summary"]["infersim"]["metrics"]["wait"] < 0 for row in rows)
    for text in (shown.stdout, swept.stdout):
        assert "wait" in text
        assert "The metric broken failed" in " ".join(text.split())
        assert max(map(len, text.splitlines())) <= 88
    page = (place / "swp/report.html").read_text()
    assert '<span class="name">wait</span>' in page


def test_runs_on_disk_are_compared_by_them(place: Path) -> None:
    for name, seats in (("a", 1), ("b", 256)):
        asked("mine:wait", scheduler__max_num_seqs=seats).save(place / name)
    found = compare_runs([place / "a", place / "b"])
    entry = next(figure for figure in found["figures"] if figure["key"] == "metrics.wait")
    assert entry["means"][0] > entry["means"][1]


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array(2.5), 2.5),
        (True, 1),
        (float("nan"), None),
        (None, None),
        ({"a": np.float64(1.5), "b c": 2}, {"m.a": 1.5, "m.b c": 2}),
        ({}, {}),
    ],
)
def test_what_a_metric_may_return(returned: Any, value: Any) -> None:
    found, notes = own_metrics({"m": lambda _: returned}, object)
    assert found == (value if isinstance(value, dict) else {"m": value})
    assert notes == []
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("fast", "returned str"),
        ([1.0], "returned list"),
        (pd.Series([1.0, 2.0]), "returned Series"),
        (float("inf"), "returned an infinite number"),
        ({3: 1.0}, "key 3"),
        ({"a": "b"}, "returned str"),
    ],
)
def test_what_is_no_metric(returned: Any, says: str) -> None:
    found, (note,) = own_metrics({"m": lambda _: returned}, object)
    assert found == {"m": None}
    assert note.startswith("The metric m failed and has no value (")
    assert says in note


def test_mistakes_are_found_before_the_run(place: Path) -> None:
    for text, says in (
        ("mine:wiat", r"has no 'wiat'.*did you mean 'wait'"),
        ("no_such_module:wait", "metric 'no_such_module:wait' cannot be imported"),
    ):
        with pytest.raises(UsageError, match=says):
            prepare(sim.load_scenario({**SMALL, "metrics": [text]}))
    with pytest.raises(UsageError, match="2 functions are called 'wait'"):
        load_metrics(["mine:wait", "other.py:wait"], [place])
    with pytest.raises(ScenarioError, match="expected a function of your own"):
        sim.load_scenario({**SMALL, "metrics": ["fairness"]})


def test_one_metric_is_short_for_a_list_of_one(place: Path) -> None:
    scenario = sim.load_scenario({**SMALL, "metrics": "mine:wait"})
    assert scenario.metrics == ("mine:wait",)
    assert scenario.resolved()["metrics"] == [f"{place / 'mine.py'}:wait"]
    assert sim.load_scenario({**SMALL, "metrics": []}).metrics is None


# ---- what the README says ---------------------------------------------------------------------


def test_the_metrics_of_the_readme_work(place: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (place / "mine.py").write_text(code)
    metrics = own(asked("mine:fairness", "mine:short_prompts"))["metrics"]
    assert list(metrics) == [
        "fairness",
        "short_prompts.p50_s",
        "short_prompts.p99_s",
        "short_prompts.count",
    ]
    assert 0 < metrics["fairness"] <= 1
    assert 0 < metrics["short_prompts.p50_s"] <= metrics["short_prompts.p99_s"]


@pytest.mark.parametrize("table", ["requests", "timeseries"])
def test_the_readme_describes_every_column_in_order(table: str) -> None:
    section = README.read_text().split(f"\n## {table}: ")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    columns = list(getattr(asked("mine:wait"), table).columns)
    assert [name for name, _ in rows] == columns
    if table == "requests":
        sessions = {"turns": {"kind": "fixed", "value": 2}}
        talking = asked("mine:wait", workload__sessions=sessions).requests
        more = [name for name in talking.columns if name not in columns]
        assert more == ["session", "turn"]
        assert all(f"`{name}`" in section for name in more)
