"""Nothing that was measured is lost: appending, torn files, resuming."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from calibrate.bench.base import BenchPoint
from calibrate.device import DeviceFacts
from calibrate.measurement_store import MeasurementStore
from calibrate.measurements import (
    COLUMNS,
    EARLIER_COLUMNS,
    Measurement,
    facts_of,
    kernel_name,
    meta_path,
    read,
    read_meta,
)
from sim.errors import UsageError

FACTS = DeviceFacts("cpu", "Some CPU", 2**34, 2, 2**25, {"torch": "2.0"})


def row(m: int, **changes: object) -> Measurement:
    given = {
        "operator": "gemm",
        "precision": "bf16",
        "kernel": "torch.mm",
        "shape": {"m": m, "n": 4096, "k": 4096},
        "seconds": 1.25e-5 * m,
        "low": 1.2e-5 * m,
        "high": 1.3e-5 * m,
        "repeats": 7,
        "status": "ok",
        "clock_mhz": 1980.0,
        "at": "2026-01-02T03:04:05Z",
    }
    return Measurement(**(given | changes))  # type: ignore[arg-type]


def stored(path: Path, rows: list[Measurement], *, resume: bool = False) -> None:
    with MeasurementStore(path, FACTS, {"models": ["llama-3.1-8b"]}, resume=resume) as store:
        for each in rows:
            store.add(each)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = [
        row(1),
        row(2, status="noisy", purpose="again", clock_mhz=None),
        row(4, kernel=kernel_name("norm", "torch, compiled"), message='said "no", twice'),
        row(
            5, status="failed", seconds=None, low=None, high=None, repeats=0, message="RuntimeError"
        ),
    ]
    stored(tmp_path / "m.csv", rows)
    table = read(tmp_path / "m.csv")
    assert list(table.rows) == rows
    assert table.notes == ()
    assert table.usable() == [rows[0], rows[2]]
    assert table.of("again") == [rows[1]]
    assert table.rows[2].variant == "norm"
    assert facts_of(tmp_path / "m.csv") == FACTS


def test_a_row_is_the_point_it_measures() -> None:
    point = BenchPoint("gemm", "bf16", {"k": 4096, "n": 4096, "m": 3}, 1.0)
    assert row(3).key == point.key
    assert row(4).key != point.key
    normed = BenchPoint("stream", "bf16", {"bytes": 8.0}, 8.0, variant="norm")
    kernel = kernel_name("norm", "torch")
    assert row(1, operator="stream", shape={"bytes": 8}, kernel=kernel).key == normed.key


def test_lines_are_there_before_the_store_is_closed(tmp_path: Path) -> None:
    with MeasurementStore(tmp_path / "m.csv", FACTS, {}) as store:
        store.add(row(1))
        assert len(read(tmp_path / "m.csv").rows) == 1


def test_a_file_cut_anywhere_gives_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    stored(path, [row(1), row(2, message="größer, \u2265 2"), row(3)])
    content = path.read_bytes()
    header = content.index(b"\n") + 1
    for end in range(header, len(content)):
        path.write_bytes(content[:end])
        table = read(path)
        assert len(table.rows) == content[header:end].count(b"\n")
        assert bool(table.notes) == (content[end - 1 : end] != b"\n")


@pytest.mark.parametrize("missing", [0, 1, 5, 40, 10_000])
def test_resuming_a_torn_file_loses_only_the_torn_line(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "m.csv"
    stored(path, [row(1), row(2)])
    content = path.read_bytes()
    path.write_bytes(content[: max(1, len(content) - missing)])
    whole = len(read(path).rows)
    stored(path, [row(9)], resume=True)
    table = read(path)
    assert [each.shape["m"] for each in table.rows] == [*[1, 2][:whole], 9]
    assert table.notes == ()
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)


def test_an_existing_table_is_not_overwritten(tmp_path: Path) -> None:
    stored(tmp_path / "m.csv", [row(1)])
    with pytest.raises(UsageError, match="exists: --resume"):
        MeasurementStore(tmp_path / "m.csv", FACTS, {})
    assert len(read(tmp_path / "m.csv").rows) == 1


def test_two_devices_do_not_meet_in_one_table(tmp_path: Path) -> None:
    stored(tmp_path / "m.csv", [row(1)])
    other = DeviceFacts("cpu", "Another CPU", 2**34, 2, 2**25, {})
    with pytest.raises(UsageError, match=r"measured on Some CPU .* this is Another CPU"):
        MeasurementStore(tmp_path / "m.csv", other, {}, resume=True)


def test_the_start_is_that_of_the_first_run(tmp_path: Path) -> None:
    stored(tmp_path / "m.csv", [row(1)])
    meta = meta_path(tmp_path / "m.csv")
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"started": "long ago"}))
    stored(tmp_path / "m.csv", [], resume=True)
    assert read_meta(tmp_path / "m.csv")["started"] == "long ago"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("torch.mm", "torch.mm,extra"), "left out"),
        ((",ok,", ",fine,"), "unknown status 'fine'"),
        (("1.25e-05", ""), "with seconds ''"),
        (("1.25e-05", "soon"), "could not convert"),
    ],
)
def test_a_line_that_is_none_is_left_out_with_a_note(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = tmp_path / "m.csv"
    stored(path, [row(1), row(2)])
    path.write_text(path.read_text().replace(*change, 1))
    table = read(path)
    assert [each.shape["m"] for each in table.rows] == [2]
    assert said in table.notes[0]
    assert f"{path}:2" in table.notes[0]


def test_other_files_are_refused_with_their_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(UsageError, match=r"a\.csv: not a table of measurements"):
        read(tmp_path / "a.csv")
    with pytest.raises(UsageError, match=r"b\.csv: cannot be read"):
        read(tmp_path / "b.csv")
    with pytest.raises(UsageError, match=r"a\.csv\.meta\.json: cannot be read"):
        facts_of(tmp_path / "a.csv")
    meta_path(tmp_path / "a.csv").write_text("[1")
    with pytest.raises(UsageError, match="is not valid JSON"):
        facts_of(tmp_path / "a.csv")
    meta_path(tmp_path / "a.csv").write_text('{"device": {"kind": "cpu"}}')
    with pytest.raises(UsageError, match="not a description of a device"):
        facts_of(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="cannot be written"):
        MeasurementStore(tmp_path / "nowhere" / "m.csv", FACTS, {})


def test_a_compressed_table_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    stored(tmp_path / "m.csv", [row(1), row(2)])
    packed = gzip.compress((tmp_path / "m.csv").read_bytes())
    path = tmp_path / "m.csv.gz"
    path.write_bytes(packed)
    assert [each.shape["m"] for each in read(path).rows] == [1, 2]
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UsageError, match=r"m\.csv\.gz: is cut off or damaged"):
        read(path)


def test_a_table_of_an_earlier_version_is_read_and_continued(tmp_path: Path) -> None:
    """It lacks the variables of experts, windows and latent vectors."""
    path = tmp_path / "m.csv"
    stored(path, [row(1)])
    lines = [line.split(",") for line in path.read_text().splitlines()]
    lacking = [n for n, name in enumerate(lines[0]) if name not in EARLIER_COLUMNS]
    assert len(lacking) == 8
    for line in lines:
        for n in reversed(lacking):
            del line[n]
    path.write_text("".join(",".join(line) + "\n" for line in lines) + "torn,")
    assert read(path).rows == (row(1),)
    new = row(8, operator="moe", kernel="even: loop", shape={"tokens": 8, "experts": 4})
    stored(path, [new], resume=True)
    assert read(path).rows == (row(1), new)
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
