"""Columns become Parquet as pyarrow itself would write them, but without pandas."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from sim.results import parquet_file
from sim.results.parquet_file import arrow_array, write_parquet
from tests.places import ROOT

ROWS = np.zeros(5, dtype=[("number", "f8"), ("count", "i4")])

COLUMNS: dict[str, NDArray] = {
    "floats": np.array([1.5, np.nan, -0.0, np.inf]),
    "whole": np.arange(7, dtype=np.int64) - 3,
    "small": np.array([2**31 - 1, -(2**31)], dtype=np.int32),
    "field of rows": ROWS["number"],
    "other field of rows": ROWS["count"],
    "every second": np.arange(10.0)[::2],
    "flags": np.array([True, False, True, True, False, False, True, True, True]),
    "texts": np.array(["completed", "rejected", "completed"], dtype=object),
    "texts and none": np.array([None, "zu groß", "", None, "日本", "x", "y", "z", None, "x"]),
    "none alone": np.array([None, None], dtype=object),
    "no texts": np.array([], dtype=object),
    "no numbers": np.array([], dtype=float),
    "no flags": np.array([], dtype=bool),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_what_pyarrow_makes_of_it(name: str, tmp_path: Path) -> None:
    values = COLUMNS[name]
    known = pa.array(values, pa.string() if values.dtype == object else None)
    made = arrow_array(values)
    made.validate(full=True)
    assert (made.type, made.null_count) == (known.type, known.null_count)
    write_parquet(tmp_path / "made.parquet", {name: values})
    pq.write_table(pa.table({name: known}), tmp_path / "known.parquet", compression="zstd")
    made_bytes = (tmp_path / "made.parquet").read_bytes()
    assert made_bytes == (tmp_path / "known.parquet").read_bytes()


def test_columns_that_rise_take_less_room_and_come_back(tmp_path: Path) -> None:
    columns = {"rising": np.arange(50_000, dtype=np.int32) // 3, "flat": np.ones(50_000)}
    write_parquet(tmp_path / "plain.parquet", columns)
    write_parquet(tmp_path / "steps.parquet", columns, rising=("rising",))
    plain, steps = (tmp_path / name for name in ("plain.parquet", "steps.parquet"))
    assert steps.stat().st_size < plain.stat().st_size / 5
    assert pq.read_table(steps).equals(pq.read_table(plain))
    falling = {"rising": np.array([9, -2, 2**31 - 1, -(2**31)], dtype=np.int32)}
    write_parquet(steps, falling, rising=("rising",))
    assert pq.read_table(steps)["rising"].to_pylist() == falling["rising"].tolist()


def test_many_rows_are_written_group_by_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_file, "ROWS", 4)
    columns = {
        "texts and none": COLUMNS["texts and none"],
        "floats": np.linspace(0, 1, 10),
        "flags": np.arange(10) % 3 == 0,
    }
    write_parquet(tmp_path / "made.parquet", columns)
    made = pq.ParquetFile(tmp_path / "made.parquet")
    groups = [made.metadata.row_group(at).num_rows for at in range(made.num_row_groups)]
    assert groups == [4, 4, 2]
    assert made.read().to_pydict() == {name: values.tolist() for name, values in columns.items()}


def test_a_dictionary_is_made_of_values_that_recur(tmp_path: Path) -> None:
    rows = parquet_file.SAMPLE + 1
    columns = {"own": np.sqrt(np.arange(rows)), "shared": np.arange(rows) // 3 / 7}
    write_parquet(tmp_path / "made.parquet", columns)
    group = pq.ParquetFile(tmp_path / "made.parquet").metadata.row_group(0)
    used = [group.column(at).has_dictionary_page for at in range(2)]
    assert used == [False, True]


def test_more_text_than_one_array_holds_is_left_to_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "MOST_TEXT", 5)
    assert arrow_array(np.array(["abc", None, "def"], dtype=object)).to_pylist() == [
        *("abc", None, "def")
    ]


def test_a_run_that_is_saved_never_imports_pandas(tmp_path: Path) -> None:
    code = (
        "import sim, sys\n"
        "scenario = sim.load_scenario('scenarios/chat.yaml', ['run.requests=20'])\n"
        f"sim.simulate(scenario).save({str(tmp_path / 'run')!r})\n"
        "print([n for n in ('pandas', 'pyarrow.compute', 'scipy', 'torch') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"
    assert pq.read_table(tmp_path / "run" / "requests.parquet").num_rows == 20
