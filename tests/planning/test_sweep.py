"""Sweeps: which points a grid has, and that no finished one is ever lost or different."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from reports.figures.charts import chart
from sim.cli import app
from sim.errors import UsageError
from sim.planning.answers.sweep import AT_PREDICTED, headline, legend
from sim.planning.answers.sweep_points import chosen, served
from sim.planning.points.evaluate import evaluate
from sim.planning.points.executors import Executor, InProcess, local
from sim.planning.points.grid import Axis, points, read_axes
from sim.planning.points.points import Outcome, Point
from sim.planning.points.store import Store
from sim.planning.points.wording import share, spoken
from sim.planning.sweep.sweep import Sweep, begun_in, document
from sim.scenario import load_scenario
from sim.units import milliseconds
from tests import made_up
from tests.answers import drawn, render_sweep, sweep_view
from tests.places import ROOT
from tests.planning_fixtures import SMALL, small

RATE = "workload.arrivals.rate"
BLOCKS = "kv_cache.num_gpu_blocks"


pytestmark = pytest.mark.usefixtures("place")


def values(text: str) -> tuple[object, ...]:
    return read_axes([f"key={text}"])[0].values


def infersim(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["sweep", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def swept(sweep: Sweep, executor: Executor, path: Path) -> bytes:
    """The bytes of the result of a sweep."""
    with sweep.create(path) as store:
        sweep.run(store, executor)
        store.finish(document(sweep, store.known))
    return (path / "result.json").read_bytes()


# ---- grids ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2:40:3", (2, 21, 40)),
        ("0:1:11", (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)),
        ("10:-10:3", (10, 0, -10)),
        ("log:1:64:7", (1, 2, 4, 8, 16, 32, 64)),
        ("log:0.001:10:5", (0.001, 0.01, 0.1, 1, 10)),
        ("static,request", ("static", "request")),
        ("100ms, 1s", ("100ms", "1s")),
        ("1e3,0.5,true,null,010", (1000.0, 0.5, True, None, 10)),
        ("'1','a,b'", ("1", "a,b")),
        ("my.module:Class", ("my.module:Class",)),
        ("{kind: fixed, value: 64},null", ({"kind": "fixed", "value": 64}, None)),
        ("1,true", (1, True)),
    ],
)
def test_values(text: str, expected: tuple[object, ...]) -> None:
    assert values(text) == expected
    assert [type(value) for value in values(text)] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("key", "is KEY=VALUES"),
        ("=1,2", "is KEY=VALUES"),
        ("key=", "has no values"),
        ("key=[", "never closed|not closed"),
        ("key=1,1", "1 is given twice"),
        ("key=1,1.0", "1 is given twice"),
        ("key=1:2", "a range is a:b:n"),
        ("key=log:2", "a range is a:b:n"),
        ("key=1:2:x", "two numbers and how many values"),
        ("key=1:2:3.5", "two numbers and how many values"),
        ("key=1:2:1", "at least 2 values"),
        ("key=2:2:5", "ends that differ"),
        ("key=1:inf:3", "finite ends"),
        ("key=log:0:2:3", "above 0"),
        ("key=1:2:3,5", "stands alone"),
        ("key=1:2:1000000", "more than 100,000"),
        ("key=1],[2", "--sweep key"),
    ],
)
def test_what_is_no_axis(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_axes([text])


def test_a_key_has_one_axis_and_a_grid_has_an_end() -> None:
    with pytest.raises(UsageError, match="seed: is given twice"):
        read_axes(["seed=1", "seed=2"])
    with pytest.raises(UsageError, match="1,000,000 points are more than"):
        read_axes(["a=1:1000:1000", "b=1:1000:1000"])


def test_the_last_axis_changes_fastest() -> None:
    grid = points([Axis("a", (1, 2)), Axis("b", ("x", "y"))])
    told = [tuple(point.settings.values()) for point in grid]
    assert told == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert [point.index for point in grid] == [0, 1, 2, 3]


# ---- the result -----------------------------------------------------------------------------


class Backwards:
    """An executor that comes up with everything in the wrong order."""

    def run(self, scenario: Any, grid: Any) -> Any:
        for point in reversed(list(grid)):
            yield evaluate(scenario, point)


def test_the_result_has_the_same_bytes_whoever_made_it(tmp_path: Path) -> None:
    sweep = Sweep(small(), tuple(read_axes([f"{RATE}=5,20,30,90", f"{BLOCKS}=null,1"])))
    here = swept(sweep, local(1), tmp_path / "here")
    assert swept(sweep, Backwards(), tmp_path / "backwards") == here
    assert swept(sweep, local(2), tmp_path / "processes") == here
    assert swept(sweep, local(3), tmp_path / "more") == here
    found = json.loads(here)
    assert [row["index"] for row in found["results"]] == list(range(8))
    assert [row["exit_code"] for row in found["results"]] == [0, 3] * 4
    assert (found["points"], found["failed"]) == (8, 4)
    assert found["results"][5]["label"] == "rate=30, num_gpu_blocks=1"


def test_the_highest_load_that_meets_the_slo(tmp_path: Path) -> None:
    axes = read_axes([f"{RATE}=2000,10,500,4000", "fleet.0.gpu=h100-sxm,l4"])
    sweep = Sweep(small(run__requests=1500), tuple(axes))
    found = json.loads(swept(sweep, InProcess(), tmp_path / "it"))
    fast, slow = found["answers"]
    assert fast["settings"] == {"fleet.0.gpu": "h100-sxm"}
    assert fast["meets"] >= 10
    assert fast["misses"] > fast["meets"]
    assert fast["text"].startswith(f"gpu=h100-sxm: SLO met up to {fast['meets']} requests/s")
    assert (slow["meets"], slow["misses"]) == (None, 10)
    by_point = {tuple(row["settings"].values()): row for row in found["results"]}
    for rate in (10, 500, 2000, 4000):
        met = by_point[rate, "h100-sxm"]["summary"]["infersim"]["verdict"]["slo_met"]
        if rate <= fast["meets"]:
            assert met
    assert found["load"] == RATE


def test_a_load_that_cannot_be_tried_is_neither_met_nor_missed() -> None:
    """A point may fail in ways that are not seen before it runs; a value of 0 stands for them."""
    sweep = Sweep(small(), (Axis(RATE, (0, 5, "fast", 10)),))
    found = document(sweep, [evaluate(sweep.scenario, point) for point in sweep.grid])
    assert found["failed"] == 2
    assert found["answers"] == []  # a load that is no number makes no axis of loads
    sweep = Sweep(small(run__requests=600), (Axis(RATE, (0, 5, 10)),))
    found = document(sweep, [evaluate(sweep.scenario, point) for point in sweep.grid])
    (answer,) = found["answers"]
    assert (answer["meets"], answer["misses"]) == (10, None)
    closed = small(workload__arrivals={"kind": "closed", "concurrency": 1}, run__requests=600)
    sweep = Sweep(closed, (Axis("workload.arrivals.concurrency", (0, 2, 5000)),))
    found = document(sweep, [evaluate(sweep.scenario, point) for point in sweep.grid])
    (answer,) = found["answers"]
    assert answer["meets"] == 2
    assert "users" in answer["text"]


def test_what_does_not_fit_is_missed(tmp_path: Path) -> None:
    class Infeasible:
        def run(self, scenario: Any, grid: Any) -> Any:
            for point in grid:
                if point.settings[RATE] >= 10:
                    yield Outcome(point, None, "does not fit", 3)
                else:
                    yield evaluate(scenario, point)

    sweep = Sweep(small(run__requests=600), (Axis(RATE, (5, 10, 20)),))
    (answer,) = json.loads(swept(sweep, Infeasible(), tmp_path / "it"))["answers"]
    assert (answer["meets"], answer["misses"]) == (5, 10)


def test_no_answer_without_a_limit(tmp_path: Path) -> None:
    sweep = Sweep(small(slo=None), (Axis(RATE, (5, 10)),))
    assert json.loads(swept(sweep, InProcess(), tmp_path / "it"))["answers"] == []


# ---- resuming -------------------------------------------------------------------------------


def outcome(index: int, grid: list[Point]) -> Outcome:
    return evaluate(small(), grid[index])


def test_what_was_cut_off_is_done_again(tmp_path: Path) -> None:
    sweep = Sweep(small(), (Axis(BLOCKS, (None, 1, 500, 600)),))
    path, grid = tmp_path / "it", sweep.grid
    with sweep.create(path) as store:
        for index in (3, 1, 0):
            store.add(outcome(index, grid))
    lines = (path / "points.jsonl").read_bytes()
    (path / "points.jsonl").write_bytes(lines[:-40])  # the process died while it wrote
    with begun_in(path).resume(path) as store:
        assert [known.point.index for known in store.known] == [3, 1]
        begun_in(path).run(store, InProcess())
        store.finish(document(sweep, store.known))
    kept = (path / "points.jsonl").read_bytes()
    assert kept.startswith(b"".join(lines.splitlines(keepends=True)[:2]))
    assert [json.loads(line)["index"] for line in kept.splitlines()] == [3, 1, 0, 2]
    assert (path / "result.json").read_bytes() == swept(sweep, InProcess(), tmp_path / "whole")
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert "pid" not in manifest


def test_a_point_is_on_the_disk_before_the_next_one_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(small(), (Axis("seed", (1, 2, 3)),))
    sizes: list[int] = []
    monkeypatch.setattr("os.fsync", lambda file: sizes.append(os.fstat(file).st_size))
    with sweep.create(tmp_path / "it") as store:
        for count, point in enumerate(sweep.grid, 1):
            store.add(evaluate(small(), point))
            assert len(sizes) == count
            assert sizes[-1] == (tmp_path / "it/points.jsonl").stat().st_size
    assert sizes == sorted(set(sizes))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    sweep = Sweep(small(), (Axis("seed", (1, 2)),))
    path = tmp_path / "it"
    with sweep.create(path), pytest.raises(UsageError, match="another process is writing"):
        sweep.resume(path)
    sweep.resume(path).__exit__(None, None, None)


def test_only_the_same_sweep_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "it"
    sweep = Sweep(small(), (Axis("seed", (1, 2)),))
    sweep.create(path).__exit__(None, None, None)
    with pytest.raises(UsageError, match="another --sweep"):
        Sweep(small(), (Axis("seed", (1, 3)),)).resume(path)
    with pytest.raises(UsageError, match="another scenario"):
        Sweep(small(run__requests=61), (Axis("seed", (1, 2)),)).resume(path)
    (path / "points.jsonl").write_text('{"index": 0, "settings": {"seed": 7}}\n')
    with pytest.raises(UsageError, match=r"points.jsonl:1: is not a point of this sweep"):
        sweep.resume(path)
    with pytest.raises(UsageError, match="holds no sweep"):
        begun_in(tmp_path)
    with pytest.raises(UsageError, match="is not empty"):
        Store.create(path, small(), {})


def test_a_sweep_whose_files_have_changed_is_not_resumed(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("tokens\n5\n9\n30\n")
    law = {"kind": "empirical", "path": str(lengths)}
    sweep = Sweep(small(workload__output_tokens=law), (Axis("seed", (1, 2)),))
    with sweep.create(tmp_path / "it") as store:
        store.add(evaluate(sweep.scenario, sweep.grid[0]))
    begun_in(tmp_path / "it").resume(tmp_path / "it").__exit__(None, None, None)
    lengths.write_text("tokens\n5\n9\n31\n")
    with pytest.raises(UsageError, match="another content of the files"):
        begun_in(tmp_path / "it").resume(tmp_path / "it")


def test_a_file_on_an_axis_counts_too(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("tokens\n5\n9\n")
    law = {"kind": "empirical", "path": "a.csv"}
    axis = Axis("workload.output_tokens.path", ("a.csv", "b.csv"))
    asked = small(engine="vllm", workload__output_tokens=law)
    files = Sweep(asked, (axis,)).question()["files"]
    assert [Path(path).name for path in files] == ["a.csv", "b.csv"]
    engines = Axis("engine", ("vllm", "sglang"))
    assert Sweep(small(engine="vllm"), (engines,)).question()["files"] == {}


def test_a_sweep_is_resumed_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/lengths.csv").write_text("tokens\n5\n9\n30\n")
    (tmp_path / "there/base.yaml").write_text(yaml.safe_dump(SMALL))
    (tmp_path / "there/two.yaml").write_text(
        "extends: base.yaml\nworkload: {output_tokens: {kind: empirical, path: lengths.csv}}\n"
    )
    scenario = load_scenario("there/two.yaml", ["run.requests=50", "engine=sglang"])
    sweep = Sweep(scenario, (Axis(RATE, (5, 10)), Axis("engine", ("vllm", "sglang"))))
    with sweep.create(tmp_path / "it") as store:
        store.add(evaluate(scenario, sweep.grid[2]))
    monkeypatch.chdir("/")
    again = begun_in(tmp_path / "it")
    assert again.scenario == scenario.moved(tmp_path / "there")
    assert again.question() == sweep.question() | {"scenario": again.question()["scenario"]}
    with again.resume(tmp_path / "it") as store:
        assert [known.point.index for known in store.known] == [2]
        again.run(store, InProcess())
        assert [outcome.error for outcome in store.known] == [None] * 4


KILLED_WHILE_IT_WRITES_ITS_FOURTH_POINT = """\
import os, signal
from sim.planning.points import store

keep, kept = store.to_row, []

def dying(outcome):
    row = keep(outcome)
    kept.append(row)
    if len(kept) == 4:
        half = store.json.dumps(row)[:40].encode()
        with open("it/points.jsonl", "ab") as file:
            file.write(half)
        os.kill(os.getpid(), signal.SIGKILL)
    return row

store.to_row = dying
from sim.cli import main
main()
"""


def test_a_killed_sweep_loses_no_finished_point(tmp_path: Path) -> None:
    count, path = 6, tmp_path / "it"
    arguments = ["one.yaml", "--sweep", f"seed=1:{count}:{count}"]
    done = subprocess.run(
        [
            *(sys.executable, "-c", KILLED_WHILE_IT_WRITES_ITS_FOURTH_POINT),
            *("sweep", *arguments, "--jobs", "1", "-o", "it"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    points_file = path / "points.jsonl"
    kept = points_file.read_bytes()
    finished = kept[: kept.rfind(b"\n") + 1]
    assert (finished.count(b"\n"), len(kept) - len(finished)) == (3, 40)
    assert not (path / "result.json").exists()
    assert json.loads((path / "manifest.json").read_text())["status"] == "incomplete"

    infersim("--resume", str(path), "--jobs", "1", "--no-report")
    after = points_file.read_bytes()
    assert after.startswith(finished)
    assert after.count(b"\n") == count
    infersim(*arguments, "--jobs", "2", "--no-report", "-o", str(tmp_path / "whole"))
    assert (path / "result.json").read_bytes() == (tmp_path / "whole/result.json").read_bytes()


# ---- the command ----------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    done = infersim(
        *("one.yaml", "--sweep", f"{RATE}=5,20", "--sweep", f"{BLOCKS}=null,1"),
        *("--jobs", "1", "-o", "it"),
    )
    assert max(map(len, done.stdout.splitlines())) <= 88
    assert "Points: 4; Did not run: 2" in done.stdout
    assert "Failures: 5 requests/s, num_gpu_blocks 1: " in done.stdout
    assert "more rows" not in done.stdout  # in full
    assert "Report: it/report.html" in done.stdout
    page = (tmp_path / "it/report.html").read_text()
    assert 'id="spec-knee-ttft"' in page
    assert "5 requests/s, num_gpu_blocks 1" in page
    found = json.loads((tmp_path / "it/result.json").read_text())
    links = re.findall(r'<a href="(runs/[^"]+)">([^<]+)</a>', page)
    assert len(links) == len(chosen(found)) > 0
    for (place, name), index in zip(links, chosen(found), strict=True):
        row = found["results"][index]
        assert name == spoken(row["label"])
        summary = json.loads((tmp_path / "it" / place).with_name("summary.json").read_text())
        assert summary["p99_ttft_ms"] == row["summary"]["p99_ttft_ms"]


def test_runs_are_kept_where_the_slo_is_met_last_and_missed_first() -> None:
    found = made_up.load_sweep()
    kept = [found["results"][index] for index in chosen(found)]
    for seats in (24, 52):
        course = [r for r in found["results"] if r["settings"]["scheduler.max_num_seqs"] == seats]
        met = [row["summary"]["infersim"]["verdict"]["slo_met"] for row in course]
        border = met.index(False)
        assert [row for row in kept if row in course] == course[border - 1 : border + 1]
    grid = made_up.grid_sweep()
    (best,) = chosen(grid)
    served = [row["summary"] for row in grid["results"]]
    most = max(s["output_throughput"] for s in served if s["infersim"]["verdict"]["slo_met"])
    assert served[best]["output_throughput"] == most
    nothing = {**grid, "results": [{**row, "summary": None} for row in grid["results"]]}
    assert chosen(nothing) == []


def test_values_are_shown_as_they_are(tmp_path: Path) -> None:
    from rich.console import Console

    odd = "[red]x[/red]:b:"
    sweep = Sweep(small(), (Axis("name", ("plain", odd)),))
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(sweep_view(json.loads(swept(sweep, InProcess(), tmp_path / "it"))))
    assert odd in captured.get()


def test_help_says_ranges_as_they_are_written() -> None:
    said = " ".join(infersim("--help").stdout.replace("│", " ").split())
    assert "2:40:10" in said
    assert "log:1:64:7" in said


def test_json_is_one_object_and_resuming_what_is_complete_changes_nothing(tmp_path: Path) -> None:
    arguments = ("one.yaml", "--sweep", "seed=1,2", "--jobs", "1", "--json", "--no-report")
    first = json.loads(infersim(*arguments, "-o", "it").stdout)
    assert (first["directory"], first["page"]) == ("it", None)
    assert (tmp_path / "it/report.html").exists() is False
    before = (tmp_path / "it/result.json").read_bytes()
    again = json.loads(infersim(*arguments, "--resume", "it").stdout)
    assert again == first
    assert (tmp_path / "it/result.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["one.yaml"], 2, "nothing is swept"),
        ([], 2, "give a scenario"),
        (["one.yaml", "--vary", "seed=1,2"], 2, "of `infersim compare`; here: --sweep seed=1,2"),
        (["one.yaml", "--sweep", "seed=1:2"], 2, "a range is a:b:n"),
        (["one.yaml", "--sweep", "sched.order=fcfs,sjf"], 2, "did you mean 'scheduler'"),
        (["one.yaml", "--sweep", "seed=x,y"], 2, "seed=x: "),
        (["one.yaml", "--sweep", "seed=1,x,2"], 2, "seed=x: "),
        (["one.yaml", "--sweep", "fleet.0.gpu=h100-sxm,h10"], 2, "did you mean 'h100-sxm'"),
        (["one.yaml", "--sweep", "scheduler.batching=continuous,no.such:P"], 2, "PYTHONPATH"),
        (["one.yaml", "--sweep", "seed=1", "--jobs", "0"], 2, "give 1 or more"),
        (["one.yaml", "--sweep", "seed=1", "--address", "tcp://x:1"], 2, "--executor dask"),
        (["one.yaml", "--sweep", "seed=1", "--executor", "dask"], 2, "needs --address"),
        (["--resume", "."], 2, "holds no sweep"),
        (["--resume", ".", "--sweep", "seed=1"], 2, "need the scenario too"),
        (["one.yaml", "--sweep", "seed=1", "--resume", ".", "-o", "x"], 2, "stays where it is"),
    ],
)
def test_bad_requests(arguments: list[str], code: int, says: str, tmp_path: Path) -> None:
    done = infersim(*arguments, code=code)
    assert says in done.stderr
    assert done.stderr.count("error:") == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"one.yaml"}


def test_a_sweep_of_which_nothing_fits(tmp_path: Path) -> None:
    arguments = ("one.yaml", "--sweep", "model=llama-3.1-70b", "--jobs", "1", "-o", "it")
    done = infersim(*arguments, code=3)
    assert "all 1 points failed" in done.stderr
    assert "infeasible" in done.stdout
    assert "there is nothing to draw" in (tmp_path / "it/report.html").read_text()


# ---- what is decided, and what is not --------------------------------------------------------


def told(rates: str, **changes: Any) -> dict[str, Any]:
    """The document of a sweep over rates, of runs that are short for their SLO."""
    slo = {"ttft": "60ms", "tpot": "14ms", "attainment": 0.95}
    scenario = small(run__requests=400, slo=slo, **changes)
    sweep = Sweep(scenario, tuple(read_axes([f"{RATE}={rates}"])))
    return document(sweep, [evaluate(scenario, point) for point in sweep.grid])


def shown(found: dict[str, Any]) -> str:
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(sweep_view(found))
    return captured.get()


def test_a_load_that_chance_decides_is_too_close_to_call() -> None:
    found = told("60,120,240")
    verdicts = [row["summary"]["infersim"]["verdict"] for row in found["results"]]
    assert [verdict["slo_state"] for verdict in verdicts] == ["met", "too close to call", "missed"]
    (answer,) = found["answers"]
    assert answer["open"] == [120]
    assert answer["text"].endswith("; too close to call at 120")
    text = shown(found)
    doubted = [line for line in text.splitlines() if " ? " in line]
    assert [line.split()[0] for line in doubted] == ["120"]
    count = verdicts[1]["requests_to_decide"]
    assert f"{count:,} requests (run.requests) would decide" in " ".join(text.split())
    figure = chart(drawn("sweep", found, "knee-tpot"))
    assert list(figure.data[0].marker.symbol)[:2] == ["circle", "diamond"]
    page = render_sweep(found)
    assert "too close to call at 120" in page


def test_one_seed_decides_a_sweep_and_it_says_so() -> None:
    found = told("60,240")
    note, sure = found["notes"]
    assert sure.startswith("How sure")
    assert "one run under one seed" in note
    assert "`infersim find`" in note
    assert note.split()[0] in shown(found)
    assert headline(found, served(found)).text == AT_PREDICTED
    assert told("60", workload__arrivals={"kind": "constant", "rate": 5},
                workload__prompt_tokens={"kind": "fixed", "value": 50},
                workload__output_tokens={"kind": "fixed", "value": 5},
                )["notes"][:-1] == [
        "Each point is one run. `infersim find` brackets the highest load that meets the SLO to "
        "2 %."
    ]  # fmt: skip
    assert told("60,240", run__repetitions=2)["notes"][:-1] == []


def test_latencies_of_a_sweep_are_those_that_the_slo_judges() -> None:
    found = told("60,240")
    summary = found["results"][0]["summary"]
    text = shown(found)
    assert "p95" in text
    assert "p99" not in text
    assert milliseconds(summary["p95_tpot_ms"]) in text
    figure = chart(drawn("sweep", found, "knee-tpot"))
    assert figure.data[0].y[0] == pytest.approx(summary["p95_tpot_ms"] / 1e3)
    assert ">TPOT p95<" in render_sweep(found)


def test_more_than_the_capacity_is_probably_an_overload() -> None:
    found = told("60,190,240")
    verdict = found["results"][1]["summary"]["infersim"]["verdict"]
    verdict |= {"state": "near saturation", "utilisation": 1.05}
    text = shown(found)
    line = next(line for line in text.splitlines() if line.split()[:1] == ["190"])
    assert line.split()[-1] == "overload?"
    assert "probably overloaded" in " ".join(text.split())
    page = render_sweep(found)
    assert page.count(">overload?<") == 1
    assert ">near saturation<" not in page
    _, (busy, _), _ = chart(drawn("sweep", found, "knee-tpot")).data[0].customdata
    assert busy.startswith("overload?")
    verdict |= {"utilisation": 0.95}
    assert "overload?" not in shown(found)
    assert ">near saturation<" in render_sweep(found)


def test_the_digits_of_a_share_show_on_which_side_of_the_target_it_is() -> None:
    assert [share(value) for value in (0.98666, 0.98999, 0.99, 0.9997)] == [
        "98.66%",
        "98.99%",
        "99%",
        "99.97%",
    ]


def test_a_short_word_for_a_state_is_explained_below_the_table() -> None:
    verdict = {"state": "too short to tell", "slo_state": None, "utilisation": 1.1}
    (point, *_) = served(made_up.load_sweep())
    told = legend([point._replace(summary={"infersim": {"verdict": verdict}})])
    assert any(line.startswith("too short to tell: the run is too short to tell") for line in told)
    assert not any("too short" in line for line in legend([point]))


def test_the_page_says_what_was_changed_in_the_file_and_on_which_gpu(tmp_path: Path) -> None:
    given = ("--set", "run.requests=40", "--sweep", "seed=1,2", "--jobs", "1", "-o", "it")
    infersim("one.yaml", *given)
    before, page = (Path("it/result.json").read_bytes(), Path("it/report.html").read_text("utf-8"))
    assert "Changed in the scenario file: run.requests: 60 \u2192 40" in page
    gpu = SMALL["fleet"]["gpu"]
    assert f"1 \u00d7 {gpu}, sweep" in page
    infersim("--resume", "it")  # reads no file, and still knows
    assert Path("it/result.json").read_bytes() == before
    swept = told("60,190", fleet__replicas=2)
    assert swept["hardware"] == f"2 x (1 x {gpu})"
    assert told("60,190")["asked"]["changes"] == []


@pytest.mark.parametrize("changes", [3, [4], "text"])
def test_damaged_changes_are_refused(changes: object) -> None:
    infersim("one.yaml", "--sweep", "seed=1", "--jobs", "1", "--no-report", "-o", "it")
    question = Path("it/question.json")
    question.write_text(json.dumps(json.loads(question.read_text()) | {"changes": changes}))
    assert "expected a list of texts" in infersim("--resume", "it", code=2).output
