"""Traces packed in other ways, and with columns of any names."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sim
from calibrate.recordings import find_format as find_recording
from calibrate.recordings.recording import RecordingChoice
from sim.cli import app
from sim.errors import TraceError
from sim.scenario import ScenarioError, load_scenario
from sim.workload.traces import TraceColumns, detect, read_trace
from tests.calibrate.recordings.test_recordings import BENCH

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109"
)
MOONCAKE = [
    {"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]},
    {"timestamp": 3000, "input_length": 1024, "output_length": 7, "hash_ids": [1, 3]},
]
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,374,44\n0.75,396,109\n"


def same(one: sim.workload.traces.Trace, other: sim.workload.traces.Trace) -> None:
    assert one.arrivals.tolist() == other.arrivals.tolist()
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()
    assert one.output_tokens.tolist() == other.output_tokens.tolist()


def zstd(path: Path, text: str) -> Path:
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write(text.encode())
    return path


@pytest.mark.parametrize("packed", ["zstd", "parquet", "dates"])
def test_a_packed_trace_is_the_trace(tmp_path: Path, packed: str) -> None:
    plain = tmp_path / "plain.csv"
    plain.write_text(AZURE, newline="")
    path = tmp_path / "packed"
    if packed == "zstd":
        zstd(path, AZURE)
    else:
        header, *lines = (line.split(",") for line in AZURE.split("\r\n"))
        columns = dict(zip(header, zip(*lines, strict=True), strict=True))
        stamps = list(columns["TIMESTAMP"])
        table = {name: [int(x) for x in columns[name]] for name in header[1:]}
        dates = pa.array(np.array(stamps, dtype="datetime64[ns]")) if packed == "dates" else stamps
        pq.write_table(pa.table({"TIMESTAMP": dates, **table}), path)
    assert detect(path).name == "azure"
    same(read_trace(path), read_trace(plain))


def test_a_table_of_lists_is_json_lines(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain.jsonl", tmp_path / "trace.parquet"
    plain.write_text("".join(f"{json.dumps(row)}\n" for row in MOONCAKE))
    pq.write_table(pa.Table.from_pylist(MOONCAKE), path)
    assert detect(path).name == "mooncake"
    found = read_trace(path)
    same(found, read_trace(plain))
    assert found.blocks is not None
    assert found.blocks.counts.tolist() == [2, 2]


def test_a_large_table_is_read_in_parts(tmp_path: Path) -> None:
    count = 20_000
    table = pa.table({"arrival_s": np.arange(count) / 7, "prompt_tokens": np.arange(1, count + 1),
                      "output_tokens": np.full(count, 3)})  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    found = read_trace(tmp_path / "t.parquet")
    assert len(found) == count
    assert found.arrivals.tolist() == (np.arange(count) / 7).tolist()  # to the last bit


@pytest.mark.parametrize("kind", ["zstd", "parquet"])
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "damaged"
    if kind == "zstd":
        zstd(path, AZURE * 500)
    else:
        pq.write_table(pa.Table.from_pylist(MOONCAKE), path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(TraceError, match="damaged or incomplete file"):
        read_trace(path, "azure")


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    )
    said = r"a pointer of Git LFS .* of 12,345 bytes; `git lfs pull`"
    with pytest.raises(TraceError, match=said):
        read_trace(path)
    for name in ("vllm-bench", "guidellm", "aiperf"):
        with pytest.raises(TraceError, match=said):
            find_recording(name).read(path.rename(path.with_suffix(".json")), RecordingChoice())
        path = path.with_suffix(".json")


def test_results_may_be_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "result.json.gz"
    path.write_bytes(gzip.compress(json.dumps(BENCH).encode()))
    found = find_recording("vllm-bench").read(path, RecordingChoice())
    assert int(found.requests.served.sum()) == 3


def test_vidur_has_its_own_columns(tmp_path: Path) -> None:
    path = tmp_path / "vidur.csv"
    path.write_text(VIDUR)
    assert detect(path).name == "vidur"
    found = read_trace(path)
    assert found.arrivals.tolist() == [0.0, 0.5]
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([374, 396], [44, 109])


ODD = "user,ts,in,out,rank\nanna,1500,10,2,1\nben,2000,20,3,0\nanna,4500,30,4,0\n"
NAMES = {"arrival": "ts", "arrival_unit": "ms", "prompt_tokens": "in", "output_tokens": "out"}


def test_columns_may_have_any_names(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(ODD)
    found = read_trace(path, columns=TraceColumns(**NAMES, session="user", priority="rank"))
    assert found.arrivals.tolist() == [0.0, 0.5, 3.0]
    assert found.prompt_tokens.tolist() == [10, 20, 30]
    assert found.session_ids is not None
    assert found.session_ids.tolist() == [0, 1, 0]
    assert found.priorities is not None
    assert found.priorities.tolist() == [1, 0, 0]
    lines = tmp_path / "odd.jsonl"
    lines.write_text('{"ts": 1, "in": 5, "out": 6}\n{"ts": 2, "in": 7, "out": 8}\n')
    assert read_trace(lines, columns=TraceColumns("ts", "in", "out")).arrivals.tolist() == [0, 1]
    with pytest.raises(TraceError, match="no column 'when'"):
        read_trace(path, columns=TraceColumns("when", "in", "out"))


DATED = TraceColumns("when", "in", "out")
STAMPS = ("2026-01-02T03:04:05.25Z", "2026-01-02T03:04:04Z", "2026-01-02T04:04:06+01:00")


@pytest.mark.parametrize("container", ["csv", "jsonl", "parquet"])
def test_arrivals_of_named_columns_may_be_dates(tmp_path: Path, container: str) -> None:
    path, times = tmp_path / f"dated.{container}", list(STAMPS) * 5000  # more than one block
    if container == "csv":
        path.write_text("when,in,out\n" + "".join(f"{each},10,2\n" for each in times))
    elif container == "jsonl":
        path.write_text("".join(json.dumps({"when": t, "in": 10, "out": 2}) + "\n" for t in times))
    else:
        moments = [datetime.fromisoformat(each) for each in times]
        tokens = [10] * len(times)
        columns = {"when": pa.array(moments, pa.timestamp("us", "UTC")), "in": tokens}
        pq.write_table(pa.table({**columns, "out": tokens}), path)
    found = read_trace(path, columns=DATED)
    assert sorted(set(found.arrivals.tolist())) == [0.0, 1.25, 2.0]


@pytest.mark.parametrize("times", [("soon", "2"), ("2026-01-02 03:04:05", "2"), ("", "1")])
def test_arrivals_that_are_no_times_say_what_may_be_there(
    tmp_path: Path, times: tuple[str, str]
) -> None:
    path = tmp_path / "dated.csv"
    path.write_text("when,in,out\n" + "".join(f"{each},10,2\n" for each in times))
    with pytest.raises(TraceError, match=r"numbers \(s, or arrival_unit: .*\), or dates like 2023"):
        read_trace(path, columns=DATED)


def test_an_unknown_file_is_said_how_to_read(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(ODD)
    how = r"name them \(`columns: \{arrival: ts, .* or `trace describe --columns arrival=ts"
    with pytest.raises(TraceError, match=how):
        read_trace(path)


def scenario(path: Path, **trace: object) -> sim.Scenario:
    return load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "workload": {"trace": {"path": str(path), **trace}},
        }
    )


def test_a_scenario_names_columns(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(ODD)
    rows = sim.simulate(scenario(path, columns=NAMES)).requests
    assert rows["prompt_tokens"].tolist() == [10, 20, 30]
    assert rows["arrival_s"].tolist() == [0.0, 0.5, 3.0]
    with pytest.raises(ScenarioError, match="columns replaces format"):
        scenario(path, columns=NAMES, format="azure")
    with pytest.raises(ScenarioError, match="arrival_unit"):
        scenario(path, columns={**NAMES, "arrival_unit": "min"})


def test_commands_take_columns(tmp_path: Path) -> None:
    path, out = tmp_path / "odd.csv", tmp_path / "plain.csv"
    path.write_text(ODD)
    names = ",".join(f"{key}={value}" for key, value in NAMES.items())
    run = CliRunner()
    done = run.invoke(app, ["trace", "describe", str(path), "--columns", names, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["requests"] == 3
    done = run.invoke(app, ["trace", "convert", str(path), str(out), "--columns", names])
    assert done.exit_code == 0, done.output
    same(read_trace(out), read_trace(path, columns=TraceColumns(**NAMES)))
    for text, problem in (("arrival=ts", "lacks prompt_tokens, output_tokens"),
                          (f"{names},sesion=user", "did you mean 'session'"),
                          (names.replace("=ms", "=min"), "arrival_unit is 'min'")):  # fmt: skip
        done = run.invoke(app, ["trace", "describe", str(path), "--columns", text])
        assert done.exit_code == 2
        assert problem in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("output_tokens", -1, "a whole number of at least 1, got -1"),
        ("output_tokens", "long", "a mapping such as `output_tokens: {kind: lognormal"),
        ("sessions.turns", 0, "a whole number of at least 1, got 0"),
    ],
)
def test_a_value_alone_that_is_no_constant_is_refused(key: str, value: object, hint: str) -> None:
    workload = {
        "arrivals": {"kind": "poisson", "rate": 1.0},
        "prompt_tokens": {"kind": "fixed", "value": 10},
        "output_tokens": {"kind": "fixed", "value": 10},
    }
    first, _, inner = key.partition(".")
    workload[first] = {inner: value} if inner else value  # type: ignore[assignment]
    with pytest.raises(ScenarioError) as raised:
        load_scenario({"model": "llama-3.1-8b", "fleet": {"gpu": "h100-sxm"}, "workload": workload})
    assert f"expected {hint}" in str(raised.value)
