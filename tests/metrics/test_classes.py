"""Classes of traffic: who is in which, what traces say of it, and how each was served."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import ScenarioError, TraceError, UsageError
from sim.planning.answers.run_tables import MOST_CLASSES
from sim.request import PLAIN, TrafficClass
from sim.rng import stream
from sim.scenario import Scenario, load_scenario
from sim.terminal.console import stdout
from sim.terminal.findings import run_view
from sim.workload import ClosedTraffic, Mix, OpenTraffic, build, generate
from sim.workload.arrivals import Poisson
from sim.workload.lengths import Uniform
from sim.workload.traces import TracePlay, read_trace
from sim.workload.traffic import TrafficChunk
from tests.places import DATA

SOON = {"name": "soon", "share": 0.25, "deadline": "500ms"}
LATER = {"name": "later", "share": 0.75, "priority": 3}
MADE_UP: dict[str, Any] = {
    "arrivals": {"kind": "poisson", "rate": 20},
    "prompt_tokens": {"kind": "uniform", "low": 10, "high": 900},
    "output_tokens": {"kind": "uniform", "low": 1, "high": 90},
}
TRACE = "arrival_s,prompt_tokens,output_tokens,priority\n5,10,1,7\n4,20,2,0\n6,30,3,2\n5,40,4,0\n"


def scenario(workload: dict[str, Any], **more: Any) -> Scenario:
    base = {"model": "llama-3.1-8b", "fleet": {"gpu": "l4"}, "precision": {"weights": "fp8"}}
    return load_scenario({**base, "max_model_len": 4096, "workload": workload, **more})


def classes_of(traffic: OpenTraffic | ClosedTraffic) -> list[str]:
    chunks = traffic.chunks() if isinstance(traffic, OpenTraffic) else traffic.lengths()
    rows = chain.from_iterable(chunk.rows() for chunk in chunks)
    return [each.name for row in rows for each in row if isinstance(each, TrafficClass)]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "t.csv"
    path.write_text(TRACE, encoding="utf-8")
    return str(path)


# -- drawn ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", [MADE_UP["arrivals"], {"kind": "closed", "concurrency": 9}])
def test_classes_leave_arrivals_and_lengths_as_they_are(arrivals: dict[str, Any]) -> None:
    """Also other shares do: the classes have a random stream of their own."""

    def rows(*classes: dict[str, Any]) -> list[tuple[Any, ...]]:
        workload = {**MADE_UP, "arrivals": arrivals, "classes": list(classes) or None}
        traffic = build(scenario(workload, run={"requests": 5000}), seed=3)
        assert [c.name for c in traffic.classes] == [c["name"] for c in classes]
        chunks = traffic.chunks() if isinstance(traffic, OpenTraffic) else traffic.lengths()
        return list(chain.from_iterable(chunk.rows() for chunk in chunks))

    plain, two = rows(), rows(SOON, LATER)
    most = rows({**SOON, "share": 0.5}, {**LATER, "share": 0.5})
    bare = [
        [tuple(each for each in row if not isinstance(each, TrafficClass)) for row in found]
        for found in (plain, two, most)
    ]
    assert bare[0] == bare[1] == bare[2]
    drawn = [
        [each for row in found for each in row if isinstance(each, TrafficClass)]
        for found in (plain, two, most)
    ]
    assert set(drawn[0]) == {PLAIN}
    before, after = ([each.name == "soon" for each in found] for found in drawn[1:])
    assert np.mean(before) == pytest.approx(0.25, abs=0.02)
    assert all(still for was, still in zip(before, after, strict=True) if was)


def test_shares_and_deadlines_are_those_of_the_scenario() -> None:
    third = {"name": "third", "share": 0.25, "priority": 1}
    asked = scenario({**MADE_UP, "classes": [SOON, {**LATER, "share": 0.5}, third]})
    traffic = build(asked.override({"slo.ttft": "2s", "run.requests": 20_000}), seed=8)
    assert traffic.classes == (
        TrafficClass(0, "soon", 0, 0.5),
        TrafficClass(1, "later", 3, 2.0),
        TrafficClass(2, "third", 1, 2.0),
    )
    assert build(asked, seed=8).classes[1].deadline == float("inf")
    counts = pd.Series(classes_of(traffic)).value_counts(normalize=True)
    assert counts.to_dict() == pytest.approx({"soon": 0.25, "later": 0.5, "third": 0.25}, abs=0.012)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_classes_do_not_depend_on_the_size_of_chunks(chunk: int) -> None:
    mix = Mix(tuple(TrafficClass(n, str(n), n, 1.0) for n in range(3)), (0.2, 0.3, 0.5))
    law = Uniform(1, 9)
    drawn = [
        classes_of(generate(2000, 4, Poisson(1.0), law, law, mix=mix, chunk=size))
        for size in (chunk, 2000)
    ]
    assert drawn[0] == drawn[1]


def test_a_share_of_one_is_everybody() -> None:
    only = TrafficClass(0, "all", 0, 1.0)
    assert Mix((only,), (1.0,)).draw(stream(1, "classes"), 50) == [only] * 50


def test_columns_of_different_lengths_are_found_out() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(TrafficChunk([0.0, 1.0], [1, 1], [1, 1], [PLAIN]).rows())


# -- as a trace says -----------------------------------------------------------------------------


def test_a_column_of_priorities_makes_classes(trace: str) -> None:
    traffic = build(scenario({"trace": {"path": trace}}, slo={"ttft": "1s"}), seed=1)
    assert isinstance(traffic, OpenTraffic)
    assert [(c.name, c.priority, c.deadline) for c in traffic.classes] == [
        ("priority 0", 0, 1.0),
        ("priority 2", 2, 1.0),
        ("priority 7", 7, 1.0),
    ]
    rows = [row for chunk in traffic.chunks() for row in chunk.rows()]
    assert [(row[1], row[3].priority) for row in rows] == [(20, 0), (10, 7), (40, 0), (30, 2)]
    assert [row[3].index for row in rows] == [0, 2, 0, 1]


def test_classes_without_shares_name_what_the_trace_says(trace: str) -> None:
    classes = [
        {"name": "third", "priority": 7},
        {"name": "first", "deadline": "1s"},
        {"name": "second", "priority": 2},
        {"name": "absent", "priority": 5},
    ]
    workload = {"trace": {"path": trace, "limit": 3}, "classes": classes}
    traffic = build(scenario(workload), seed=1)
    assert [c.name for c in traffic.classes] == ["third", "first", "second", "absent"]
    assert classes_of(traffic) == ["first", "third", "first"]


def test_a_trace_without_priorities_has_its_classes_drawn() -> None:
    path = str(DATA / "plain-small.csv")
    traffic = build(scenario({"trace": {"path": path}, "classes": [SOON, LATER]}), seed=3)
    made_up = build(scenario({**MADE_UP, "classes": [SOON, LATER]}, run={"requests": 3}), seed=3)
    assert classes_of(traffic) == classes_of(made_up)
    assert build(scenario({"trace": {"path": path}}), seed=3).classes == ()


def test_trace_and_classes_that_contradict_each_other(trace: str) -> None:
    def message(path: str, *classes: dict[str, Any]) -> str:
        with pytest.raises(UsageError) as caught:
            build(scenario({"trace": {"path": path}, "classes": list(classes)}), seed=1)
        return str(caught.value)

    told = message(trace, SOON, LATER)
    assert told.startswith("workload.classes: the trace has a column 'priority', which says")
    assert told.endswith("leave out the shares")
    told = message(trace, {"name": "a"}, {"name": "b", "priority": 2})
    assert told.endswith("no class has priority 7, which the trace has; the classes have 0, 2")
    plain = str(DATA / "plain-small.csv")
    told = message(plain, {"name": "a"}, {"name": "b", "priority": 2})
    assert told.endswith("is of which class; give each class a share")


def test_too_many_priorities(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"1,1,1,{number}\n" for number in range(1001))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens,priority\n{rows}")
    with pytest.raises(UsageError, match="1,001 different priorities; at most 1,000"):
        build(scenario({"trace": {"path": str(path)}}), seed=1)


@pytest.mark.parametrize("value", ["-1", "high", "1.5", ""])
def test_what_is_no_priority(trace: str, value: str) -> None:
    Path(trace).write_text(TRACE.replace("4,20,2,0", f"4,20,2,{value}"))
    with pytest.raises(TraceError, match=r"t.csv:3: priority is '.*'; allowed: whole numbers from"):
        read_trace(Path(trace))


def test_priorities_are_read_over_all_blocks_and_move_with_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    total = 20_000
    rows = "".join(f"{(n * 7919) % total},{n + 1},1,{n % 11}\n" for n in range(total))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens,priority\n{rows}")
    for spread in (None, 50.0):
        found = read_trace(path, played=TracePlay(spread=spread))
        assert found.priorities is not None
        assert np.array_equal(found.priorities, (found.prompt_tokens - 1) % 11)
        assert not np.array_equal(found.priorities, np.arange(total) % 11)


def test_tools_keep_priorities(trace: str, tmp_path: Path) -> None:
    runner = CliRunner()
    copies = [tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"]
    for arguments in (
        ["convert", trace, str(copies[0])],
        ["sample", trace, str(copies[1]), "--requests", "2", "--seed", "1"],
        ["sample", trace, str(copies[2]), "--thin", "0.7"],
    ):
        done = runner.invoke(app, ["trace", *arguments])
        assert done.exit_code == 0, done.output
    assert copies[0].read_text() == (
        "arrival_s,prompt_tokens,output_tokens,priority\n"
        "0.0,20,2,0\n1.0,10,1,7\n1.0,40,4,0\n2.0,30,3,2\n"
    )
    by_prompt = {10: 7, 20: 0, 30: 2, 40: 0}
    for path in copies[1:]:
        sample = read_trace(path)
        assert sample.priorities is not None
        assert sample.priorities.tolist() == [by_prompt[n] for n in sample.prompt_tokens.tolist()]


# -- in a scenario -------------------------------------------------------------------------------

YAML = """\
model: llama-3.1-8b
fleet: {gpu: l4}
workload:
  arrivals: {kind: burst}
  prompt_tokens: {kind: fixed, value: 10}
  output_tokens: {kind: fixed, value: 10}
  classes:
    - {name: soon, share: 0.25, deadline: 500ms}
    - {name: later, share: 0.75, priority: 3}
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("later", "soon", "9:14: workload.classes: a second class is called 'soon'"),
        ("0.75", "0.7", "7:3: workload.classes: the shares sum to 0.95, not to 1"),
        (", share: 0.75", "", "9:7: workload.classes: this class has no share, but others have"),
        ("0.75", "75", "9:28: workload.classes.1.share: expected a share above 0 and up to 1, got"),
        ("priority: 3", "priority: -3", "9:44: workload.classes.1.priority: expected a whole num"),
        ("priority: 3", "prio: 3", "9:34: workload.classes.1.prio: unknown key 'prio' (did you me"),
        ("500ms", "0s", "8:43: workload.classes.0.deadline: expected a time of more than 0, got"),
        (
            "name: soon, ",
            "",
            "8:7: workload.classes.0: `name` is missing, for example `name: inter",
        ),
        ("fleet: {gpu: l4}", "fleet: {gpu: l4}\nscheduler: {order: edf}", None),
        ("500ms", "null", None),
    ],
)
def test_mistakes_are_shown_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, told: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    assert old in YAML
    Path("s.yaml").write_text(YAML.replace(old, new))
    if told is None:
        load_scenario("s.yaml")
        return
    with pytest.raises(ScenarioError) as caught:
        load_scenario("s.yaml")
    assert str(caught.value).startswith(f"s.yaml:{told}")


def test_edf_without_deadlines_is_refused_at_the_order(tmp_path: Path) -> None:
    text = YAML.replace("500ms", "null") + "scheduler:\n  order: edf\n"
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=r"s.yaml:11:10: .*edf serves the earliest deadline"):
        load_scenario(tmp_path / "s.yaml")
    assert load_scenario(tmp_path / "s.yaml", ["slo.ttft=1s"]).scheduler.order == "edf"


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ([], "the list is empty; without classes write null"),
        (5, "expected a list such as `classes: "),
        (
            [5],
            "workload.classes.0: expected a mapping with the keys name, share, model, priority",
        ),
        (SOON, "expected a list such as `classes: "),
        ([{"name": "a"}, {"name": "b", "priority": 1}], "the classes have no shares; only a trace"),
    ],
)
def test_what_are_no_classes(classes: Any, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario({**MADE_UP, "classes": classes})
    assert told in str(caught.value)


def test_without_shares_priorities_must_differ(trace: str) -> None:
    alike = [{"name": "a", "priority": 4}, {"name": "b"}, {"name": "c", "priority": 4}]
    with pytest.raises(ScenarioError, match="a second class has priority 4; without shares"):
        scenario({"trace": {"path": trace}, "classes": alike})


def test_classes_survive_a_round_trip_and_overrides() -> None:
    asked = scenario({**MADE_UP, "classes": [SOON, LATER]})
    assert load_scenario(asked.resolved()) == asked
    shares = {"workload.classes.0.share": 0.5, "workload.classes.1.share": 0.5}
    changed = asked.override({**shares, "workload.classes.1.deadline": "2s"})
    assert changed.workload.classes is not None
    assert [(c.share, c.deadline) for c in changed.workload.classes] == [(0.5, 0.5), (0.5, 2.0)]
    assert asked.override({"workload.classes": None}).workload.classes is None


# -- results -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> sim.Result:
    """Requests that are rejected, late and unfinished, of two classes in use and one that is
    not."""
    classes = [SOON, {**LATER, "share": 0.7499999}, {"name": "never", "share": 1e-7}]
    asked = scenario(
        {**MADE_UP, "arrivals": {"kind": "poisson", "rate": 7}, "classes": classes},
        scheduler={"order": "priority", "max_num_seqs": 32},
        slo={"ttft": "9s", "tpot": "130ms"},
        run={"requests": 400, "warmup": 50, "horizon": "50s"},
        max_model_len=950,
    )
    return sim.simulate(asked)


def test_figures_of_each_class_from_the_table_of_requests(served: sim.Result) -> None:
    entries = served.summary["infersim"]["classes"]
    assert [entry["name"] for entry in entries] == ["soon", "later", "never"]
    assert sum(entry["submitted"] for entry in entries) == len(served.requests)
    assert set(served.requests["status"]) == {"completed", "rejected", "unfinished"}
    for entry, deadline in zip(entries[:2], (0.5, 9.0), strict=True):
        mine = served.requests[served.requests["class"] == entry["name"]]
        done = mine[mine["status"] == "completed"]
        assert (entry["submitted"], entry["completed"]) == (len(mine), len(done))
        assert entry["preemptions"] == mine["preemptions"].sum()
        assert entry["deadline_ms"] == deadline * 1e3
        counted, judged = done[~done["warmup"]], mine[~mine["warmup"]]
        several = counted[counted["output_tokens"] > 1]
        for values, name in ((counted["ttft_s"], "ttft"), (several["tpot_s"], "tpot")):
            assert entry[f"mean_{name}_ms"] == pytest.approx(values.mean() * 1e3)
            for rank in (50, 90, 99):
                expected = np.percentile(values, rank) * 1e3
                assert entry[f"p{rank}_{name}_ms"] == pytest.approx(expected)
        kept = counted[(counted["ttft_s"] <= deadline) & ~(counted["tpot_s"] > 0.13)]
        assert entry["attainment"] == pytest.approx(len(kept) / len(judged))
        assert 0 < len(kept) < len(counted) < len(judged)


def test_a_class_that_nobody_is_in(served: sim.Result) -> None:
    never = served.summary["infersim"]["classes"][2]
    assert (never["submitted"], never["completed"], never["attainment"]) == (0, 0, None)
    assert {never[f"{rank}_ttft_ms"] for rank in ("mean", "p50", "p90", "p99")} == {None}


def test_without_a_limit_there_is_no_attainment() -> None:
    workload = {**MADE_UP, "classes": [{**SOON, "deadline": None}, LATER]}
    result = sim.simulate(scenario(workload, run={"requests": 60}))
    entries = result.summary["infersim"]["classes"]
    assert [(e["deadline_ms"], e["attainment"]) for e in entries] == [(None, None)] * 2
    assert all(entry["mean_ttft_ms"] > 0 for entry in entries)


def test_without_classes_there_are_no_figures_of_them() -> None:
    result = sim.simulate(scenario(MADE_UP, run={"requests": 60}))
    assert result.summary["infersim"]["classes"] is None
    assert result.requests["class"].isna().all()


def test_the_priorities_of_a_trace_are_in_the_results(trace: str) -> None:
    result = sim.simulate(scenario({"trace": {"path": trace}}, scheduler={"order": "priority"}))
    names = ["priority 0", "priority 7", "priority 0", "priority 2"]
    assert result.requests["class"].tolist() == names
    assert [e["completed"] for e in result.summary["infersim"]["classes"]] == [2, 1, 1]


def shown(summary: dict[str, Any]) -> list[str]:
    console = stdout()
    with console.capture() as captured:
        console.print(run_view(summary))
    return captured.get().splitlines()


def test_the_console_shows_a_row_for_each_class(served: sim.Result) -> None:
    lines = shown(served.summary)
    at = next(i for i, line in enumerate(lines) if line.startswith("Classes"))
    rows = [line.split("│")[1:-1] for line in lines[at : at + 8] if line.startswith("│")]
    assert [cells[0].strip() for cells in rows] == ["soon", "later", "never"]
    entry = served.summary["infersim"]["classes"][0]
    assert rows[0][1].strip() == str(entry["completed"])
    assert rows[0][-1].strip().endswith("%")
    assert [cell.strip() for cell in rows[2][1:]] == ["0", "-", "-", "-", "-", "-"]
    assert max(map(len, lines)) <= 88


def test_the_console_shows_some_of_many_classes(served: sim.Result) -> None:
    entry = served.summary["infersim"]["classes"][0]
    own = served.summary["infersim"]
    many = [{**entry, "name": f"a class with a very long name {n:>3}"} for n in range(40)]
    lines = shown({**served.summary, "infersim": {**own, "classes": many}})
    assert sum("a class with" in line for line in lines) == MOST_CLASSES
    assert any(f"{40 - MOST_CLASSES} more in summary.json" in line for line in lines)
    assert max(map(len, lines)) <= 88
    plain = shown({**served.summary, "infersim": {**own, "classes": None}})
    assert not any(line.startswith("Classes") for line in plain)
