"""Runs in formats that other programs read: exactly their keys, and numbers that come back."""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import sim
from sim.cli import app
from sim.export import perfetto
from sim.export.files import DETAILS, swept_row
from sim.export.source import ExportWindow, read
from sim.workload.traces import read_trace

SCENARIO: dict[str, Any] = {
    "name": 'a "name" & <b>',
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "max_model_len": 2048,
    "kv_cache": {"num_gpu_blocks": 200},
    "scheduler": {"max_num_seqs": 16, "max_num_batched_tokens": 512},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 40},
        "prompt_tokens": {"kind": "uniform", "low": 10, "high": 900},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 120},
    },
    "slo": {"ttft": "500ms", "tpot": "40ms"},
    "run": {"requests": 120, "warmup": 0},
}

NAME = str(SCENARIO["name"])
RANKS = ("mean", "median", "std", "p99")
BENCH_KEYS = [
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency"),
    *("duration", "completed", "failed", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "request_goodput", "output_throughput", "total_token_throughput"),
    *("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times"),
    *("generated_texts", "errors", "max_output_tokens_per_s", "max_concurrent_requests", "rtfx"),
    *(f"{rank}_{n}_ms" for n in ("ttft", "tpot", "itl") for rank in RANKS),
]
"""Of a file that `vllm bench serve --save-result --save-detailed` of vLLM 0.32 writes, in order."""


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which memory is short, so that requests were preempted."""
    result = sim.simulate(sim.load_scenario(SCENARIO))
    assert (result.requests["preemptions"] > 0).sum() > 3
    return result.save(tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def bench(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bench") / "result.json"
    done = export(run, "--to", "vllm-bench", "-o", target)
    assert (done.exit_code, done.stdout) == (0, f"{target}\n")
    return target


# ---- vllm bench ----------------------------------------------------------------------------------


def test_a_result_has_the_keys_of_vllm_and_says_that_it_was_simulated(bench: Path) -> None:
    found = json.loads(bench.read_text())
    assert list(found) == [*BENCH_KEYS, "simulated_by"]
    made = version("infersim")
    assert found["backend"] == "simulated by infersim"
    assert found["label"] == f"simulated by infersim {made}, scenario {NAME}"
    assert found["simulated_by"] == {"name": "infersim", "version": made, "scenario": NAME}


def test_its_figures_are_those_of_the_run(run: Path, bench: Path) -> None:
    found, summary = json.loads(bench.read_text()), json.loads((run / "summary.json").read_text())
    same = set(BENCH_KEYS) & set(summary)
    assert len(same) == 9 + 12
    for key in same:
        assert found[key] == pytest.approx(summary[key], rel=1e-9), key


def test_lists_are_seconds_and_add_up(run: Path, bench: Path) -> None:
    found, requests = json.loads(bench.read_text()), read(run).requests
    for row, request in enumerate(requests.itertuples()):
        gaps = found["itls"][row]
        assert len(gaps) == request.output_tokens - 1
        assert found["ttfts"][row] + sum(gaps) == pytest.approx(request.e2el_s, rel=1e-9)
        assert found["latencies"][row] == pytest.approx(request.e2el_s, rel=1e-12)
    assert found["start_times"] == requests["arrival_s"].tolist()
    assert found["errors"] == found["generated_texts"] == [""] * len(requests)
    assert min(min(gaps, default=1.0) for gaps in found["itls"]) > 0


def test_peaks_count_whole_seconds(bench: Path) -> None:
    found = json.loads(bench.read_text())
    begin = min(found["start_times"])
    tokens: dict[int, int] = {}
    alive: dict[int, int] = {}
    for start, first, gaps, all_of_it in zip(
        *(found[key] for key in ("start_times", "ttfts", "itls", "latencies")), strict=True
    ):
        times = start + first + np.concatenate([[0.0], np.cumsum(gaps)]) - begin
        for second in times.astype(int).tolist():
            tokens[second] = tokens.get(second, 0) + 1
        for second in range(int(start - begin), int(start + all_of_it - begin) + 1):
            alive[second] = alive.get(second, 0) + 1
    assert found["max_output_tokens_per_s"] == max(tokens.values())
    assert found["max_concurrent_requests"] == max(alive.values())


def test_the_trace_reader_takes_it_back(run: Path, bench: Path) -> None:
    requests, trace = read(run).requests, read_trace(bench, "auto")
    assert trace.prompt_tokens.tolist() == requests["prompt_tokens"].tolist()
    assert trace.output_tokens.tolist() == requests["output_tokens"].tolist()
    shifted = requests["arrival_s"] - requests["arrival_s"].iloc[0]
    np.testing.assert_allclose(trace.arrivals - trace.arrivals[0], shifted, atol=1e-12)


def test_observe_takes_it_back(run: Path, bench: Path, tmp_path: Path) -> None:
    target = tmp_path / "observed"
    arguments = ["observe", str(bench), "--from", "vllm-bench", "--gpu", "h100-sxm"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(target), "--no-report", "--json"])
    assert done.exit_code == 0, done.stderr
    before = json.loads((run / "summary.json").read_text())
    after = json.loads((target / "summary.json").read_text())
    for rank in ("mean", "median", "p99"):
        for name in ("ttft", "tpot", "itl", "e2el"):
            key = f"{rank}_{name}_ms"
            assert after[key] == pytest.approx(before[key], rel=1e-9), key
    # what it leaves behind can be exported too; only the ends of a request are then known
    again = export(target, "--to", "vllm-bench", "-o", tmp_path / "again.json")
    assert again.exit_code == 0
    assert "only the first and the last token are known" in again.stderr
    mark = json.loads(bench.read_text())["simulated_by"]
    assert json.loads((tmp_path / "again.json").read_text())["simulated_by"] == mark


def test_what_was_simulated_is_not_called_measured(bench: Path, tmp_path: Path) -> None:
    arguments = ["observe", str(bench), "--from", "vllm-bench", "--gpu", "h100-sxm"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    page = (tmp_path / "run" / "report.html").read_text()
    told = " ".join(done.output.split())
    assert "Simulated by infersim" in told
    assert "not measured: 120 of 120" in told
    for text in (told, page, json.dumps(summary)):
        assert "Measured, not predicted" not in text
        assert "measured, not predicted" not in text
    assert "Predicted, not measured" in page
    assert summary["infersim"]["simulated_by"]["scenario"] == NAME
    # without the key of our own, the backend says it too
    result = json.loads(bench.read_text())
    del result["simulated_by"]
    (tmp_path / "short.json").write_text(json.dumps(result))
    arguments[1] = str(tmp_path / "short.json")
    done = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "again"), "--no-report"])
    assert "Predicted, not measured" in " ".join(done.output.split())


def test_requests_that_failed_are_empty(tmp_path: Path) -> None:
    scenario = sim.load_scenario(SCENARIO | {"max_model_len": 600, "run": {"requests": 40}})
    place = sim.simulate(scenario).save(tmp_path / "run")
    assert export(place, "--to", "vllm-bench").exit_code == 0
    found = json.loads((place / "vllm-bench.json").read_text())
    failed = [row for row, tokens in enumerate(found["output_lens"]) if tokens == 0]
    assert found["failed"] == len(failed) > 0
    for row in failed:
        assert found["itls"][row] == []
        assert (found["ttfts"][row], found["latencies"][row]) == (0.0, 0.0)
        assert found["errors"][row]


def test_how_requests_came_is_stated(tmp_path: Path) -> None:
    laws = {
        "burst": ({"kind": "burst"}, ("inf", 1.0, None)),
        "closed": ({"kind": "closed", "concurrency": 3}, ("inf", 1.0, 3)),
        "gamma": ({"kind": "gamma", "rate": 9, "cv": 2}, (9.0, 0.25, None)),
    }
    for name, (law, told) in laws.items():
        workload = SCENARIO["workload"] | {"arrivals": law}
        scenario = sim.load_scenario(SCENARIO | {"workload": workload, "run": {"requests": 9}})
        place = sim.simulate(scenario).save(tmp_path / name)
        assert export(place, "--to", "vllm-bench").exit_code == 0
        found = json.loads((place / "vllm-bench.json").read_text())
        assert (found["request_rate"], found["burstiness"], found["max_concurrency"]) == told


def test_what_is_not_detailed_lacks_the_long_lists(run: Path) -> None:
    record = swept_row(read(run))
    kept = [key for key in BENCH_KEYS if key not in DETAILS]
    extra = [f"{rank}_e2el_ms" for rank in RANKS]  # a sweep asks for that metric too
    assert list(record)[: len(kept) + len(extra)] == kept + extra


@pytest.mark.skipif(not find_spec("vllm"), reason="vllm is not installed")
def test_the_keys_are_those_of_the_vllm_that_is_installed() -> None:
    """Read from its source: importing it would take a minute."""
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "benchmarks" / "serve.py").read_text(encoding="utf-8")
    asked, measured, dropped = _keys_of_vllm(source)
    assert BENCH_KEYS[: len(asked)] == asked
    assert BENCH_KEYS[len(asked) : len(asked) + len(measured)] == measured
    assert set(dropped) == set(DETAILS)


def _keys_of_vllm(source: str) -> tuple[list[str], list[str], list[str]]:
    """What a result has of the settings, unless something special was asked for, what of the
    measurement, and what it has only with ``--save-detailed``."""
    asked: list[str] = []
    measured: list[str] = []
    dropped: list[str] = []
    for node in ast.walk(ast.parse(source)):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "result_json":
            if isinstance(target.slice, ast.Constant) and "ramp_up" not in str(target.slice.value):
                asked.append(str(target.slice.value))
        elif isinstance(node, ast.Dict) and not measured:
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            measured = keys if {"duration", "ttfts"} <= set(keys) else []
        elif isinstance(node, ast.For) and ast.unparse(node.target) == "field":
            dropped = list(ast.literal_eval(node.iter))
    return asked, measured, dropped


# ---- vllm sweep ----------------------------------------------------------------------------------


def test_a_sweep_is_what_its_plots_read(run: Path, tmp_path: Path) -> None:
    other = sim.simulate(sim.load_scenario(SCENARIO | {"run": {"requests": 30}}))
    second = other.save(tmp_path / "tiny")
    target = tmp_path / "sweep"
    done = export(run, second, "--to", "vllm-sweep", "-o", target)
    assert done.exit_code == 0
    summaries = sorted(target.rglob("summary.json"))
    assert [path.parent.name for path in summaries] == ["SERVE--tiny", "SERVE--tiny-2"]
    rows = [row for path in summaries for row in json.loads(path.read_text())]
    details = {"input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts"}
    for row in rows:
        assert set(BENCH_KEYS) - set(row) == details | {"errors"}
        assert row["label"].startswith("simulated by infersim")
        assert "simulated_by" not in row  # a mapping has no place in a table
        assert {f"{rank}_e2el_ms" for rank in RANKS} <= set(row)
        gpus = [row[f"{kind}_parallel_size"] for kind in ("tensor", "pipeline", "data")]
        assert math.prod(gpus) == 2
        assert json.loads((summaries[0].parent / "run=0.json").read_text()) in rows
    table = pd.read_csv(target / "summary.csv", index_col=0)
    assert table["completed"].tolist() == [120, 30]
    assert table["max_num_seqs"].tolist() == [16, 16]
    assert set(table["backend"]) == {"simulated by infersim"}


# ---- csv -----------------------------------------------------------------------------------------


def test_tables_come_back_from_csv_to_the_last_digit(run: Path, tmp_path: Path) -> None:
    done = export(run, "--to", "csv", "-o", tmp_path / "t")
    assert done.exit_code == 0
    assert "simulated by infersim" in done.stderr
    source = read(run)
    for name, frame in (("requests", source.requests), ("timeseries", source.timeseries)):
        again = pd.read_csv(tmp_path / "t" / f"{name}.csv", dtype=str)
        assert list(again) == list(frame)
        for column in frame.select_dtypes("number"):
            np.testing.assert_array_equal(again[column].astype(float), frame[column])


def test_a_window_chooses_by_arrival(run: Path, tmp_path: Path) -> None:
    done = export(run, "--to", "csv", "-o", tmp_path, "--window", "500ms:1.5", "--force")
    assert done.exit_code == 0
    arrivals = pd.read_csv(tmp_path / "requests.csv")["arrival_s"]
    every = read(run).requests["arrival_s"]
    assert len(arrivals) == ((every >= 0.5) & (every < 1.5)).sum() > 10


# ---- perfetto ------------------------------------------------------------------------------------

SHARED = {"ph", "name", "pid", "tid"}
NEEDED = {
    "M": {"args"},
    "X": {"ts", "dur", "cat", "args"},
    "C": {"ts", "args"},
    **{phase: {"ts", "cat", "id"} for phase in ("s", "t")},
    "f": {"ts", "cat", "id", "bp"},
}
"""What each phase of Chrome's trace event format needs: names, slices, counters, flows."""
METADATA = {
    **{f"{what}_name": ("name", str) for what in ("process", "thread")},
    **{f"{what}_sort_index": ("sort_index", int) for what in ("process", "thread")},
}


def check_format(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Assert what the format demands; returns the events by kind."""
    kinds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in NEEDED}
    for event in trace["traceEvents"]:
        assert set(event) == SHARED | NEEDED[event["ph"]]
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        assert event["pid"] >= 0
        assert event["tid"] >= 0
        assert isinstance(event["name"], str)
        kinds[event["ph"]].append(event)
    times = [event.get("ts", -1.0) for event in trace["traceEvents"]]
    assert times == sorted(times), "names first, then by time"
    for event in kinds["M"]:
        key, kind = METADATA[event["name"]]
        assert set(event["args"]) == {key}
        assert isinstance(event["args"][key], kind)
    _check_flows(kinds)
    named = {(e["pid"], e["tid"]) for e in kinds["M"] if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in kinds["X"]} <= named
    processes = {e["pid"] for e in kinds["M"] if e["name"] == "process_name"}
    assert {e["pid"] for kind in kinds.values() for e in kind} == processes
    for event in kinds["C"]:
        assert all(math.isfinite(value) and value >= 0 for value in event["args"].values())
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in kinds["X"]:
        assert event["dur"] >= 0 <= event["ts"]
        start = round(event["ts"] * 1e3)
        assert start == pytest.approx(event["ts"] * 1e3, abs=1e-3)
        threads.setdefault((event["pid"], event["tid"]), []).append(
            (start, start + round(event["dur"] * 1e3))
        )
    for spans in threads.values():
        stack: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], "slices of a thread nest or are apart"
            stack.append(end)
    return kinds


def _check_flows(kinds: dict[str, list[dict[str, Any]]]) -> None:
    """Each flow has one start, any steps and one finish, in time, each bound to a slice there."""
    flows: dict[int, list[dict[str, Any]]] = {}
    for event in sorted((e for phase in "stf" for e in kinds[phase]), key=lambda e: e["ts"]):
        flows.setdefault(event["id"], []).append(event)
    slices = {
        (event["pid"], event["tid"], event["args"]["request"], event["ts"])
        for event in kinds["X"]
        if event["cat"] == "request"
    }
    for number, events in flows.items():
        phases = "".join(sorted((e["ph"] for e in events), key="stf".index))
        assert phases == "s" + "t" * (len(events) - 2) + "f"
        assert all(event["bp"] == "e" for event in events if event["ph"] == "f")
        for event in events:
            assert (event["pid"], event["tid"], number, event["ts"]) in slices


@pytest.fixture(scope="module")
def trace(run: Path) -> dict[str, Any]:
    done = export(run, "--to", "perfetto")
    assert done.exit_code == 0
    found = json.loads((run / "perfetto.json").read_text())
    assert isinstance(found, dict)
    return found


def test_a_trace_keeps_the_rules_of_the_format(trace: dict[str, Any]) -> None:
    assert trace["displayTimeUnit"] == "ms"
    kinds = check_format(trace)
    names = {event["args"]["name"] for event in kinds["M"] if "name" in event["args"]}
    assert {"replica 0", "replica 1", "iterations", "slot 1", "waiting 1"} <= names
    assert {event["name"] for event in kinds["C"]} == {
        *("running", "waiting", "KV cache tokens", "tokens per second")
    }
    counted = {"running": {"requests"}, "waiting": {"requests"}}
    counted |= {"KV cache tokens": {"used", "reserved"}, "tokens per second": {"prompt", "output"}}
    assert all(set(event["args"]) == counted[event["name"]] for event in kinds["C"])
    assert {event["pid"] for event in kinds["C"]} == {1, 2}


def test_a_flow_leads_each_request_from_the_queue_to_its_seat(trace: dict[str, Any]) -> None:
    stays: dict[int, int] = {}
    flows: dict[int, int] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] == "request":
            stays[event["args"]["request"]] = stays.get(event["args"]["request"], 0) + 1
        elif event["ph"] in ("s", "t", "f"):
            flows[event["id"]] = flows.get(event["id"], 0) + 1
    assert flows == {number: count for number, count in stays.items() if count > 1}
    assert max(flows.values()) > 2, "a request that was preempted waits again"


def test_every_request_is_in_it_from_its_arrival_on(run: Path, trace: dict[str, Any]) -> None:
    spans: dict[int, list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] == "request":
            span = (event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
            spans.setdefault(event["args"]["request"], []).append(span)
    requests = read(run).requests.set_index("request_id")
    assert set(spans) == set(requests.index)
    for number, mine in spans.items():
        mine.sort()
        assert mine[0][0] == pytest.approx(requests["arrival_s"][number], abs=1e-8)
        assert mine[-1][1] == pytest.approx(requests["finish_s"][number], abs=1e-8)
        for one, following in itertools.pairwise(mine):
            assert following[0] == pytest.approx(one[1], abs=1e-8)
    phases = {e["cat"] for e in trace["traceEvents"] if e["ph"] == "X"}
    assert {"queue", "prefill", "decode", "preempted", "iteration", "request"} <= phases


def test_counters_integrate_to_the_tokens_of_the_run(run: Path, trace: dict[str, Any]) -> None:
    source = read(run)
    total = {"prompt": 0.0, "output": 0.0}
    for pid in (1, 2):
        mine = [
            (event["ts"] / 1e6, event["args"])
            for event in trace["traceEvents"]
            if event["ph"] == "C" and event["name"] == "tokens per second" and event["pid"] == pid
        ]
        for (start, values), (end, _) in itertools.pairwise(mine):
            for name, value in values.items():
                total[name] += value * (end - start)
        assert mine[-1][1] == {"prompt": 0, "output": 0}
    assert total["prompt"] == pytest.approx(source.timeseries["prefill_tokens"].sum(), rel=1e-3)
    # a preempted request gets one of its tokens from the prefill that makes up for it
    extra = source.requests["preemptions"].sum()
    wanted = source.requests["output_tokens"].sum()
    assert wanted - extra <= total["output"] * (1 + 1e-4) <= wanted * 1.001


def test_a_window_of_a_trace(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "part.json"
    assert export(run, "--to", "perfetto", "-o", target, "--window", "1:1.2").exit_code == 0
    part = json.loads(target.read_text())
    check_format(part)
    assert len(part["traceEvents"]) < 2000
    for event in part["traceEvents"]:
        if event["ph"] == "X":
            assert event["ts"] <= 1.2e6
            assert event["ts"] + event["dur"] >= 1e6 or event["cat"] not in ("request", "iteration")


def test_a_long_run_is_cut_and_says_so(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "MOST_ROWS", 300)
    done = export(run, "--to", "perfetto", "-o", tmp_path / "cut.json")
    assert done.exit_code == 0
    assert "are shown; --window START:END chooses" in done.stderr
    found, shown = perfetto.document(read(run))
    check_format(found)
    assert shown.plans + shown.requests <= 300
    middle, half = shown.end / 2, (shown.window.end - shown.window.start) / 2
    assert half < middle
    wider = perfetto.document(read(run), ExportWindow(middle - 2 * half, middle + 2 * half))[1]
    assert wider.plans + wider.requests > 300


@pytest.mark.parametrize("batching", ["static", "request"])
def test_other_batching_keeps_the_rules_too(batching: str, tmp_path: Path) -> None:
    changed = SCENARIO["scheduler"] | {"batching": batching}
    workload = SCENARIO["workload"] | {"arrivals": {"kind": "burst"}}
    scenario = SCENARIO | {"scheduler": changed, "workload": workload, "run": {"requests": 40}}
    place = sim.simulate(sim.load_scenario(scenario)).save(tmp_path / "run")
    check_format(perfetto.document(read(place))[0])
    check_format(perfetto.document(read(place), ExportWindow(0.5, 0.6))[0])


@pytest.mark.parametrize("transfer", [{}, {"mode": "push-layerwise", "min_prompt": 200}], ids=str)
def test_hand_overs_lead_from_role_to_role(transfer: dict[str, Any], tmp_path: Path) -> None:
    """A process for each replica says its pool and role; each request that was handed over waits,
    prefills, waits with its transfer inside, and decodes, and an arrow goes through all of them."""
    pools = [
        {"name": "prompts", "role": "prefill", "gpu": "h100-sxm", "replicas": 2},
        {"name": "answers", "role": "decode", "gpu": "h100-sxm"},
    ]
    result = sim.simulate(sim.load_scenario(SCENARIO | {"fleet": pools, "transfer": transfer}))
    assert (result.requests["preemptions"] > 0).any()
    source = read(result.save(tmp_path / "run"))
    kinds = check_format(perfetto.document(source)[0])
    names = [e["args"]["name"] for e in kinds["M"] if e["name"] == "process_name"]
    assert names == [
        "replica 0 (prompts, prefill)",
        "replica 1 (prompts, prefill)",
        "replica 2 (answers, decode)",
    ]
    handed = pd.read_parquet(tmp_path / "run" / "handovers.parquet").set_index("request_id")
    sent = {e["args"]["request"]: e for e in kinds["X"] if e["cat"] == "transfer"}
    assert set(sent) == set(handed.index)
    flows: dict[int, list[dict[str, Any]]] = {}
    for event in sorted((e for phase in "stf" for e in kinds[phase]), key=lambda e: e["ts"]):
        flows.setdefault(event["id"], []).append(event)
    for number, row in handed.iterrows():
        arrived = (sent[number]["ts"] + sent[number]["dur"]) / 1e6
        assert arrived == pytest.approx(row["arrived_s"], abs=1e-8)
        assert sent[number]["pid"] == row["replica"] + 1
        processes = [event["pid"] for event in flows[number]]
        assert {processes[0], processes[-1]} == {row["prefill_replica"] + 1, row["replica"] + 1}
    chunks = [e for e in kinds["X"] if e["cat"] == "prefill"]
    noted = pd.read_parquet(tmp_path / "run" / "chunks.parquet")
    assert sum(e["args"]["tokens"] for e in chunks) == noted["tokens"].sum()


# ---- mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_told(run: Path, tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").touch()
    for arguments, told in (
        ((tmp_path / "none", "--to", "csv"), "does not exist; expected a run directory"),
        ((tmp_path, "--to", "csv"), "is no run directory: it has no manifest.json"),
        ((run, run, "--to", "csv"), "takes one run, not 2"),
        ((run, "--to", "vllm-bench", "-o", tmp_path / "there.json"), "--force overwrites"),
        ((run, "--to", "vllm-bench", "-o", tmp_path), "a directory; name the file"),
        ((run, "--to", "vllm-bench", "-o", tmp_path / "a" / "b.json"), "no such folder"),
        ((run, "--to", "csv", "-o", tmp_path / "folder"), "is not empty"),
        ((run, "--to", "csv", "-o", tmp_path / "there.json"), "is a file; name a folder"),
        ((run, "--to", "csv", "-o", tmp_path / "c", "--window", "5"), "expected START:END"),
        ((run, "--to", "csv", "-o", tmp_path / "c", "--window", "5:x"), "expected START:END"),
        ((run, "--to", "csv", "-o", tmp_path / "c", "--window", "5:4"), "less than END"),
        ((run, "--to", "csv", "-o", tmp_path / "c", "--window", "900:901"), "no request of"),
    ):
        done = export(*arguments)
        assert done.exit_code == 2, arguments
        assert told in done.stderr
        assert "Traceback" not in done.output


def test_an_incomplete_run_is_told(run: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"status": "incomplete"}')
    done = export(tmp_path, "--to", "csv")
    assert done.exit_code == 2
    assert "is incomplete" in done.stderr


def test_json_lists_the_files(run: Path, tmp_path: Path) -> None:
    done = export(run, "--to", "csv", "-o", tmp_path / "tables", "--json")
    files = [str(tmp_path / "tables" / name) for name in ("requests.csv", "timeseries.csv")]
    assert json.loads(done.stdout) == {"format": "csv", "files": files}


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("requests", "finish_s", -5.0),
        ("requests", "first_token_s", float("nan")),
        ("timeseries", "end_s", -1.0),
    ],
)
def test_times_that_no_run_has_are_one_error(
    table: str, column: str, value: float, run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    path = copy / f"{table}.parquet"
    frame = pd.read_parquet(path)
    frame.loc[frame.index[-20:], column] = value
    frame.to_parquet(path)
    done = export(copy, "--to", "vllm-bench", "-o", tmp_path / "result.json")
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_a_folder_may_have_a_name_that_is_no_unicode(run: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    shutil.copytree(run, odd)
    done = export(odd, "--to", "csv", "-o", tmp_path / "tables")
    assert done.exit_code == 0, done.output
