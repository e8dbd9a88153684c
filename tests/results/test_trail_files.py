"""The chunks and absences of a run: saved as they were recorded, read back, and used."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sim
from reports.figures.slot_view import caption, slot_view
from reports.frame.run_directory import read as read_run
from sim.errors import UsageError
from sim.export import bench, perfetto, source
from sim.loop.recorder import ABSENCE, CHUNK
from sim.results.trail_files import ABSENCES, CHUNKS

SCENARIO: dict[str, Any] = {
    "name": "tight",
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "max_model_len": 2048,
    "kv_cache": {"num_gpu_blocks": 100},
    "scheduler": {"max_num_seqs": 16, "max_num_batched_tokens": 128},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 40},
        "prompt_tokens": {"kind": "uniform", "low": 10, "high": 400},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 400},
    },
    "run": {"requests": 80, "warmup": 0},
}


@pytest.fixture(scope="module")
def result() -> sim.Result:
    """Prompts in chunks, and requests that were preempted, some of them several times."""
    result = sim.simulate(sim.load_scenario(SCENARIO))
    assert (result.requests["preemptions"] > 1).any()
    assert result.chunks is not None
    assert result.chunks["request_id"].value_counts().max() > 4
    return result


@pytest.fixture(scope="module")
def saved(result: sim.Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result.save(tmp_path_factory.mktemp("runs") / "it")


def copied(saved: Path, place: Path, *without: str) -> Path:
    path = shutil.copytree(saved, place / "copy")
    for name in without:
        (path / name).unlink()
    return path


def test_the_files_have_the_rows_of_the_recorder(result: sim.Result, saved: Path) -> None:
    trail, found = result.record.trail, source.read(saved).trail
    assert trail is not None
    assert found is not None
    chunks, absences = (frame.to_records(index=False) for frame in found)
    names = dict(zip(("plan", "request", "tokens", "context"), chunks.dtype.names, strict=True))
    assert {name: CHUNK[name] for name in names} == {n: chunks.dtype[c] for n, c in names.items()}
    for name, column in names.items():
        assert chunks[column].tobytes() == trail[0][name].tobytes()
    assert absences["request_id"].tobytes() == trail[1]["request"].tobytes()
    assert absences["time_s"].tobytes() == trail[1]["time"].tobytes()
    assert absences["out"].tolist() == (trail[1]["out"] == 1).tolist()
    assert ABSENCE.names == ("request", "time", "out")
    assert len(chunks) > 80
    assert 0 < absences["out"].sum() <= len(absences)


def test_chunks_add_up_to_the_other_tables(result: sim.Result) -> None:
    assert result.chunks is not None
    tokens = np.zeros(len(result.timeseries), dtype=int)
    np.add.at(tokens, result.chunks["plan"].to_numpy(), result.chunks["tokens"].to_numpy())
    assert tokens.tolist() == result.timeseries["prefill_tokens"].tolist()
    assert result.absences is not None
    outs = result.absences[result.absences["out"]].groupby("request_id").size()
    preempted = result.requests.set_index("request_id")["preemptions"]
    assert outs.to_dict() == preempted[preempted > 0].to_dict()


def test_exports_and_the_slot_chart_are_exact_with_them(saved: Path, tmp_path: Path) -> None:
    old = copied(saved, tmp_path, CHUNKS, ABSENCES)
    exact, inferred = source.read(saved), source.read(old)
    assert inferred.trail is None
    assert bench.seen(exact).how["exact"] == 80
    assert bench.seen(inferred).how["preempted"] > 3
    assert perfetto.document(exact)[1].vague == 0
    assert perfetto.document(inferred)[1].vague > 3
    page = read_run(saved)
    assert page.trail is not None
    drawn = slot_view(page.requests, page.timeseries, "continuous", page.trail)
    guessed = slot_view(page.requests, page.timeseries, "continuous")
    assert drawn is not None
    assert guessed is not None
    assert (drawn.vague, guessed.vague > 3) == (0, True)
    assert "not recorded" not in caption(drawn)
    assert read_run(old).trail is None


@pytest.mark.parametrize("name", [CHUNKS, ABSENCES])
def test_one_file_alone_is_not_used(saved: Path, tmp_path: Path, name: str) -> None:
    assert source.read(copied(saved, tmp_path, name)).trail is None


def test_a_run_that_was_cut_off_is_exact_too(tmp_path: Path) -> None:
    changes = {"run.horizon": "3s", "run.requests": 200}
    result = sim.simulate(sim.load_scenario(SCENARIO).override(changes))
    rows = result.requests
    unfinished = rows[(rows["status"] == "unfinished") & (rows["preemptions"] > 0)]
    assert len(unfinished) > 3
    found = source.read(result.save(tmp_path / "it"))
    assert perfetto.document(found)[1].vague == 0


def test_a_scenario_without_preemption_has_an_empty_table(tmp_path: Path) -> None:
    roomy = {"kv_cache.num_gpu_blocks": None, "run.requests": 5}
    path = sim.simulate(sim.load_scenario(SCENARIO).override(roomy)).save(tmp_path / "it")
    found = source.read(path)
    assert found.trail is not None
    assert len(found.trail.absences) == 0
    assert len(found.trail.chunks) >= 5
    assert bench.seen(found).how == {"exact": 5, "preempted": 0, "even": 0}


@pytest.mark.parametrize(
    ("file", "column", "value", "says"),
    [
        (CHUNKS, "plan", 10**6, r"plan: expected rows of timeseries.parquet \(0 to \d+\), found"),
        (CHUNKS, "plan", -1, "plan: expected whole numbers from 0 on, found -1 in row 4"),
        (CHUNKS, "plan", 0, "plan: expected rows in ascending order, found 0 in row 4"),
        (CHUNKS, "request_id", 900, "request_id: expected ids of requests.parquet, found 900"),
        (CHUNKS, "tokens", math.nan, "tokens: expected whole numbers from 0 on, found nan"),
        (CHUNKS, "context", "much", "context: expected whole numbers from 0 on, found '"),
        (ABSENCES, "request_id", 80, "request_id: expected ids of requests.parquet, found 80 in"),
        (ABSENCES, "time_s", math.inf, "time_s: expected finite numbers, found inf in row 4"),
        (ABSENCES, "out", 3, "out: expected true or false, found"),
    ],
)
def test_what_does_not_belong_there_is_one_error(
    saved: Path, tmp_path: Path, file: str, column: str, value: object, says: str
) -> None:
    path = copied(saved, tmp_path)
    frame = pd.read_parquet(path / file)
    if not isinstance(value, int):
        frame[column] = frame[column].astype(str if isinstance(value, str) else float)
    if column == "out":
        frame[column] = frame[column].astype(int)
    frame.loc[3, column] = value
    frame.to_parquet(path / file)
    for read in (source.read, read_run):
        with pytest.raises(UsageError, match=f"{file}: {says}"):
            read(path)


def test_chunks_of_a_request_of_another_replica(saved: Path, tmp_path: Path) -> None:
    path = copied(saved, tmp_path)
    frame = pd.read_parquet(path / CHUNKS)
    replicas = source.read(saved).requests["replica"]
    owner = int(frame.loc[3, "request_id"])
    frame.loc[3, "request_id"] = int(np.argmax(replicas.to_numpy() != replicas[owner]))
    frame.to_parquet(path / CHUNKS)
    with pytest.raises(UsageError, match="expected requests of the replica that ran the plan"):
        source.read(path)


@pytest.mark.parametrize("file", [CHUNKS, ABSENCES])
def test_a_file_cut_short_is_one_error(saved: Path, tmp_path: Path, file: str) -> None:
    path = copied(saved, tmp_path)
    (path / file).write_bytes((path / file).read_bytes()[:100])
    with pytest.raises(UsageError, match=f"{file}: cannot be read as a Parquet table"):
        source.read(path)
