"""Files that a disk, an editor or a kill has damaged: one error that names the file, or a result,
and nothing that was there is lost."""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sim
from calibrate.device import DeviceFacts
from calibrate.measurement_store import MeasurementStore as Table
from calibrate.measurements import Measurement, facts_of, read
from calibrate.profile import write_profile
from calibrate.session import models_of
from calibrate.settle import settled
from calibrate.stability import drift, noise, sums
from reports.__main__ import main as report
from sim import catalog
from sim.errors import InfersimError, UsageError
from sim.export import bench, files, perfetto, source
from sim.planning.contrast.runs import compare_runs
from sim.planning.points.executors import InProcess
from sim.planning.points.grid import Axis
from sim.planning.sweep.sweep import Sweep, begun_in, document
from sim.terminal.console import stdout
from sim.workload.traces import text
from tests.answers import sweep_view
from tests.planning_fixtures import small

SEED = 20261122
OTHERS: tuple[Any, ...] = (
    *(None, True, -1, 0, 3.5, 1e308, 10**30, math.nan, math.inf),
    *("", "text", "\x1b[2J", [], [1, "a"], {}, {"a": {"b": 1}}),
)
"""What may stand where something else belongs."""

Damage = Callable[[random.Random, bytes], bytes]


def in_bytes(draw: random.Random, content: bytes) -> bytes:
    """Some bytes of a file changed, lost or added, or all of them."""
    at = draw.randrange(len(content) + 1)
    return draw.choice(
        [
            b"",
            b"\xef\xbb\xbf" + content,
            b"\xff\xfe" + content,
            content[:at],
            content[:at] + bytes(draw.randrange(256) for _ in range(3)) + content[at:],
            content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :],
            content[:at] + content[at + draw.randrange(1, 9) :],
            content.replace(b"\n", b"\r\n"),
            content.replace(b"\n", b""),
            json.dumps(draw.choice(OTHERS)).encode(),
            b"[" * 100_000,
        ]
    )


def in_json(draw: random.Random, content: bytes) -> bytes:
    """One entry of a JSON document replaced by something else, or removed."""
    document = json.loads(content)
    parents = list(holders(document))
    holder = draw.choice(parents)
    key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if draw.random() < 0.2:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(draw.choice(OTHERS))
    return json.dumps(document).encode()


def in_a_line(draw: random.Random, content: bytes) -> bytes:
    """One line of a file of JSON lines damaged."""
    lines = content.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    lines[at] = draw.choice([in_json, in_bytes])(draw, lines[at].rstrip(b"\n"))
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)


def in_cells(draw: random.Random, content: bytes) -> bytes:
    """One cell of a CSV file replaced."""
    lines = content.decode().splitlines()
    at = draw.randrange(len(lines))
    cells = lines[at].split(",")
    cells[draw.randrange(len(cells))] = draw.choice(
        ["", "nan", "inf", "-inf", "-1", "1e308", "1e-320", "text", '"', "99-99-99", "0001-01-01"]
    )
    lines[at] = ",".join(cells)
    return ("\n".join(lines) + "\n").encode()


def holders(value: Any) -> Iterator[Any]:
    """Every mapping and list in a document that is not empty."""
    if isinstance(value, dict | list) and value:
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from holders(inner)


def in_columns(draw: random.Random, path: Path) -> None:
    """One column of a table lost, or with values that do not belong there."""
    frame = pd.read_parquet(path)
    name = draw.choice(list(frame.columns))
    column, row = frame[name], draw.randrange(len(frame))
    value = draw.choice([-1, 0, 0.5, 1e300, 2**60, math.nan, math.inf, -math.inf, None, "text"])
    kind = draw.randrange(5)
    if kind == 0:
        frame = frame.drop(columns=name)
    elif kind == 1:
        frame[name] = column.astype(str)
    elif kind == 2:
        frame[name] = [[1, 2]] * len(frame)
    elif kind == 3:
        frame[name] = [value] * len(frame)
    else:
        cells = column.astype(object)
        cells.iloc[row] = value
        same = {type(cell) for cell in cells.dropna()} <= {int, float, bool, np.float64}
        frame[name] = cells.astype(float) if same else cells.astype(str)
    frame.to_parquet(path)


class Trial:
    """Damages copies of files, and asserts what a reader of them may do."""

    def __init__(self, place: Path, read: Callable[[Path], object], *, kept: bool = True) -> None:
        self.place, self.read, self.kept = place, read, kept
        self.refused = self.accepted = 0

    def run(self, name: str, damage: Callable[[random.Random, Path], None], times: int) -> None:
        """Damage file ``name`` of a copy in so many ways, and read the copy."""
        for number in range(times):
            draw = random.Random(f"{SEED} {name} {number}")
            work = self.place.parent / "work"
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(self.place, work)
            damage(draw, work / name)
            before = {path.name: path.read_bytes() for path in work.iterdir()}
            error = raised(self.read, work)
            if error is None:
                self.accepted += 1
                continue
            self.refused += 1
            assert isinstance(error, InfersimError), f"{name}, number {number}: {error!r}"
            assert str(error)
            assert error.exit_code in (1, 2)
            after = {path.name: path.read_bytes() for path in work.iterdir()}
            assert {key: after.get(key) for key in before} == before, f"{name}, number {number}"


def raised(read: Callable[[Path], object], path: Path) -> Exception | None:
    """What reading raises."""
    try:
        read(path)
    except Exception as error:
        return error
    return None


def rewritten(damage: Damage) -> Callable[[random.Random, Path], None]:
    return lambda draw, path: path.write_bytes(damage(draw, path.read_bytes())) and None


# ---- sweeps --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sweep_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps") / "it"
    axes = (Axis("workload.arrivals.rate", (5, 10)), Axis("kv_cache.num_gpu_blocks", (99, 1)))
    asked = Sweep(small(run__requests=5), axes)
    with asked.create(path) as store:
        asked.run(store, InProcess())
    return path


def resumed(path: Path) -> None:
    asked = begun_in(path)
    with asked.resume(path) as store:
        asked.run(store, InProcess())
        found = document(asked, store.known)
        store.finish(found)
        console = stdout()
        with console.capture():
            console.print(sweep_view(found))


@pytest.mark.parametrize("part", ["some", "all"])
def test_damaged_sweeps(sweep_directory: Path, part: str) -> None:
    trial, of = Trial(sweep_directory, resumed), {"some": 4, "all": 1}[part]
    for name in ("question.json", "manifest.json"):
        trial.run(name, rewritten(in_bytes), 20 // of)
        trial.run(name, rewritten(in_json), 30 // of)
    trial.run("points.jsonl", rewritten(in_bytes), 30 // of)
    trial.run("points.jsonl", rewritten(in_a_line), 100 // of)
    assert trial.refused > 60 // of
    assert trial.accepted > 30 // of


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("question.json", "{", "question.json:1:2: is not valid JSON"),
        ("question.json", "[]", "question.json: expected a JSON object, found a list"),
        ("question.json", '{"scenario": 3}', "scenario: expected a mapping, as a sweep writes it"),
        ("manifest.json", "", "manifest.json:1:1: is not valid JSON .* remove manifest.json and"),
        ("manifest.json", "null", "manifest.json: expected a JSON object, found nothing; remove"),
        ("points.jsonl", "null\n", "points.jsonl:1: is not a point of this sweep"),
        ("points.jsonl", "no line end", "points.jsonl:1: is not a point of this sweep; remove"),
    ],
)
def test_a_sweep_says_which_file_is_damaged_and_what_to_do(
    sweep_directory: Path, tmp_path: Path, name: str, content: str, says: str
) -> None:
    path = shutil.copytree(sweep_directory, tmp_path / "it")
    (path / name).write_text(content)
    with pytest.raises(UsageError, match=says):
        resumed(path)
    assert (path / name).read_text() == content


def test_a_point_that_is_no_number_is_named_and_simulated_again(
    sweep_directory: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(sweep_directory, tmp_path / "it")
    lines = (path / "points.jsonl").read_text().splitlines(keepends=True)
    row = json.loads(lines[2])
    row["summary"]["infersim"]["verdict"]["utilisation"] = math.nan
    (path / "points.jsonl").write_text("".join(lines[:2]) + json.dumps(row) + "\n")
    says = r"points.jsonl:3: .*utilisation: expected a finite number.*remove the line and resume"
    with pytest.raises(UsageError, match=says):
        resumed(path)
    (path / "points.jsonl").write_text("".join(lines[:2]))
    (path / "manifest.json").unlink()
    resumed(path)
    assert json.loads((path / "result.json").read_text())["points"] == 4
    assert json.loads((path / "manifest.json").read_text())["status"] == "complete"


# ---- runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "it"
    changes = {"kv_cache__num_gpu_blocks": 40, "run__requests": 12, "run__repetitions": 2}
    busy = {"workload__arrivals__rate": 200, "workload__output_tokens__high": 200}
    result = sim.simulate(small(**changes, **busy))
    assert result.absences is not None
    assert len(result.absences) > 3
    return result.save(path)


def compared(path: Path) -> None:
    json.dumps(compare_runs([path, path]), allow_nan=False)


def exported(path: Path) -> None:
    found = source.read(path)
    trace, _ = perfetto.document(found)
    json.dumps(trace, allow_nan=False)
    json.dumps(bench.document(found, bench.seen(found)), allow_nan=False)
    files.write_sweep([found], path / "sweep", None)
    shutil.rmtree(path / "sweep")


def reported(path: Path) -> None:
    code = report([str(path)])
    assert code in (0, 1, 2)
    if code:
        raise InfersimError("told")


@pytest.mark.slow
@pytest.mark.parametrize(("reader", "times"), [(compared, 8), (exported, 8), (reported, 2)])
def test_damaged_runs(
    run_directory: Path,
    reader: Callable[[Path], None],
    times: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trial = Trial(run_directory, reader)
    for name in ("summary.json", "manifest.json"):
        trial.run(name, rewritten(in_bytes), times)
        trial.run(name, rewritten(in_json), 2 * times)
    tables = ("requests.parquet", "timeseries.parquet", "chunks.parquet", "absences.parquet")
    for name in tables:
        trial.run(name, rewritten(in_bytes), times)
        trial.run(name, in_columns, 2 * times)
    assert trial.refused > times
    assert "Traceback" not in capsys.readouterr().err


def damaged_run(run_directory: Path, place: Path, **summary: object) -> Path:
    """A copy of the run with other entries in its summary."""
    path = shutil.copytree(run_directory, place / "it")
    document = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(document | summary))
    return path


@pytest.mark.parametrize(
    ("value", "found"), [([1], "a list"), ("fast", "'fast'"), (math.inf, "inf"), ({}, "a mapping")]
)
@pytest.mark.parametrize("reader", [compared, exported])
def test_a_summary_without_a_number_where_one_belongs(
    run_directory: Path,
    tmp_path: Path,
    reader: Callable[[Path], None],
    value: object,
    found: str,
) -> None:
    path = damaged_run(run_directory, tmp_path, p99_ttft_ms=value)
    says = f"summary.json: p99_ttft_ms: expected a finite number, found {found}"
    with pytest.raises(UsageError, match=says):
        reader(path)


def test_a_report_of_a_damaged_run_ends_with_an_error_and_keeps_the_old_page(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damaged_run(run_directory, tmp_path)
    assert report([str(path)]) == 0
    page = (path / "report.html").read_bytes()
    frame = pd.read_parquet(path / "timeseries.parquet")
    frame["decode_seqs"] = "many"
    frame.to_parquet(path / "timeseries.parquet")
    assert report([str(path)]) == 2
    told = capsys.readouterr().err
    assert "timeseries.parquet: decode_seqs: expected whole numbers from 0 on" in told
    assert (path / "report.html").read_bytes() == page


def test_an_export_of_times_in_a_wrong_order(run_directory: Path, tmp_path: Path) -> None:
    path = damaged_run(run_directory, tmp_path)
    frame = pd.read_parquet(path / "requests.parquet")
    frame.loc[3, "finish_s"] = 0.0
    frame.to_parquet(path / "requests.parquet")
    with pytest.raises(UsageError, match=r"finish_s: expected a time after first_token_s.*row 4"):
        source.read(path)


# ---- measurements --------------------------------------------------------------------------------

FACTS = DeviceFacts("cpu", "Some CPU", 2**34, 2, 2**25, {"load": "0.1"})


def measured(operator: str, seconds: float, purpose: Any = "", **shape: float) -> Measurement:
    at = "2026-01-02T03:04:05Z"
    return Measurement(
        operator, "bf16", "torch.mm", shape, seconds, seconds, seconds, 9, "ok", "", None, at,
        purpose,
    )  # fmt: skip


@pytest.fixture(scope="module")
def measurements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("measured") / "it"
    path.mkdir()
    with Table(path / "m.csv", FACTS, {"models": ["llama-3.2-1b"]}) as table:
        for n in (1024, 2048, 4096, 8192):
            for m in (1, 8, 64):
                time = 1e-5 + 2e-12 * m * n * 1024
                table.add(measured("gemm", time, m=m, n=n, k=1024))
                table.add(measured("gemm", 1.02 * time, "again", m=m, n=n, k=1024))
            table.add(measured("gemm", 2e-5, "anchor", m=8, n=1024, k=1024))
            table.add(measured("memory", n * 1e-7, bytes=1024.0 * n))
        table.add(measured("layer", 1e-3, batch=1, tokens=1, context=64))
    return path


def looked_at(path: Path) -> None:
    """All that ``calibrate fit`` does before it fits."""
    table = read(path / "m.csv")
    assert all(math.isfinite(row.seconds or 0.0) for row in settled(table))
    json.dumps([facts_of(path / "m.csv").document(), [n.p90 for n in noise(table)]])
    drift(table)
    sums(table, models_of(path / "m.csv"))


@pytest.mark.parametrize("part", ["some", "all"])
def test_damaged_measurements(measurements: Path, part: str) -> None:
    trial, of = Trial(measurements, looked_at), {"some": 4, "all": 1}[part]
    trial.run("m.csv", rewritten(in_bytes), 100 // of)
    trial.run("m.csv", rewritten(in_cells), 400 // of)
    trial.run("m.csv.meta.json", rewritten(in_bytes), 60 // of)
    trial.run("m.csv.meta.json", rewritten(in_json), 100 // of)
    assert trial.refused > 60 // of


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("2026-01-02T03:04:05Z", "yesterday", "at is 'yesterday'; expected a time as in ISO 8601"),
        (",bf16,", ",bf61,", "unknown precision 'bf61'; known: fp32, bf16"),
        (",1024,", ",nan,", "n is nan; expected a number from 0 to 1e+18"),
        (",1024,", ",inf,", "n is inf; expected a number from 0"),
    ],
)
def test_lines_that_measure_nothing_are_left_out_and_named(
    measurements: Path, tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = shutil.copytree(measurements, tmp_path / "it")
    whole = read(path / "m.csv")
    content = (path / "m.csv").read_text()
    (path / "m.csv").write_text(content.replace(old, new, 1))
    table = read(path / "m.csv")
    assert len(table.rows) == len(whole.rows) - 1
    assert [note for note in table.notes if "m.csv:2: left out" in note and says in note]
    (path / "m.csv").write_text(content.replace(old, new))
    many = read(path / "m.csv")
    lost = len(whole.rows) - len(many.rows)
    assert lost > 5
    assert many.notes[-1] == f"{path / 'm.csv'}: {lost - 5} further lines are left out"


def test_timings_that_no_form_fits_are_one_error(tmp_path: Path) -> None:
    rows = [
        measured("gemm", 1e-300 if m % 2 else 1e18, m=m, n=n, k=1e18)
        for m in range(1, 9)
        for n in (1e18, 1e3, 1e9, 7.0)
    ]
    rows += [measured("memory", 1e-300, bytes=1e18)]
    error = raised(lambda path: write_profile(rows, FACTS, path), tmp_path / "gpu.yaml")
    assert error is None or isinstance(error, InfersimError), repr(error)


# ---- models and traces ---------------------------------------------------------------------------


def test_damaged_models_and_traces(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "intermediate_size": 8192, "vocab_size": 128256,
    }  # fmt: skip
    place = tmp_path / "it"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config))
    rows = "arrival_s,prompt_tokens,output_tokens\n" + "0.5,10,5\n" * 5000
    (place / "t.csv.gz").write_bytes(gzip.compress(rows.encode()))
    models = Trial(place, lambda path: catalog.model(str(path / "config.json")))
    models.run("config.json", rewritten(in_bytes), 100)
    models.run("config.json", rewritten(in_json), 100)
    assert models.refused > 50
    traces = Trial(place, lambda path: list(text.lines(path / "t.csv.gz")))
    traces.run("t.csv.gz", rewritten(in_bytes), 150)
    assert traces.refused > 80
