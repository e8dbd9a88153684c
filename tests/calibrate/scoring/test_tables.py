"""What a table of measurements may hold, and what is said of a cell that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibrate.scoring.conditions import conditions
from calibrate.scoring.figures import figure, measured
from calibrate.scoring.table import NEEDED, OPTIONAL, UNITS, read_table
from sim.cli import app
from sim.errors import TraceError
from tests.calibrate.scoring.test_scoring import write
from tests.places import ROOT

PAGE = (ROOT / "calibrate" / "TABLES.md").read_text(encoding="utf-8")


def test_the_page_names_every_column_and_unit() -> None:
    words = set(re.findall(r"`([^`\n]+)`", PAGE))
    assert {*NEEDED, *OPTIONAL} <= words
    assert set(UNITS) <= {word.lower() for word in words}


def test_every_row_of_the_example_is_predicted(tmp_path: Path) -> None:
    path = tmp_path / "example.csv"
    path.write_text(PAGE.partition("```csv\n")[2].partition("```")[0], encoding="utf-8")
    rows = read_table(path)
    known = [conditions(row) for row in rows]
    assert [each.driver for each in known] == ["closed", "closed", "online", "offline", "static"]
    quantities = [figure(row, each).quantity for row, each in zip(rows, known, strict=True)]
    assert quantities == ["ttft", "tpot", "ttft", "throughput", "throughput"]
    assert [measured(row) for row in rows] == pytest.approx([0.18, 0.0195, 0.14, 25_000, 400])


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("value", "n/a", "a number above 0"),
        ("value", "-3", "a number above 0"),
        ("value", "", "a number above 0"),
        ("unit", "parsec", "one of ms, s, us, tok/s"),
        ("n_gpus", "0", "a number of at least 1, or nothing"),
        ("n_gpus", "two", "a number of at least 1, or nothing"),
        ("pp", "none", "a number of at least 1, or nothing"),
        *((name, "", "something") for name in ("engine", "gpu", "model", "metric", "isl", "osl")),
    ],
)
def test_a_wrong_cell_is_named_by_line_and_column(
    column: str, cell: str, expected: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "mine.csv", {}, {column: cell})
    said = f"{path}:3: column {column!r}: expected {expected}"
    with pytest.raises(TraceError, match=re.escape(said)):
        read_table(path)
    done = CliRunner().invoke(app, ["score", str(path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {said}")
    assert f"not {cell!r}" in done.stderr
