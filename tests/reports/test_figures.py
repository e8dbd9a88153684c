"""Every figure can be drawn alone, from a file and from made-up data."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import reports.figures
from reports.figures.histogram import binned
from reports.frame import theme
from tests.figures import DRAWINGS, OF_RESULTS, OF_RUNS, main
from tests.places import ROOT
from tests.report_fixtures import make_run, save


def draws(module: str) -> bool:
    """Whether a module has a public function that returns a figure."""
    found = vars(import_module(f"reports.figures.{module}"))
    return any(
        "go.Figure" in str(getattr(value, "__annotations__", {}).get("return", ""))
        for name, value in found.items()
        if not name.startswith("_") and getattr(value, "__module__", "").endswith(f".{module}")
    )


def test_every_module_that_draws_can_be_drawn_alone() -> None:
    modules = {module.name for module in pkgutil.iter_modules(reports.figures.__path__)}
    drawn = {name.partition(".")[0] for name in DRAWINGS}
    assert {name for name in modules if draws(name)} == drawn


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_of_made_up_data(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "one.html"
    assert main([name, "-o", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert target.stat().st_size > 600_000  # plotly.js is inside


@pytest.mark.parametrize("name", DRAWINGS)
def test_what_all_figures_share_is_in_their_template_alone(name: str) -> None:
    drawing = DRAWINGS[name]
    layout = json.loads(drawing.build(drawing.made_up()).to_json())["layout"]
    assert layout.pop("template")["layout"]["xaxis"]["gridcolor"] == theme.PAGE["grid"].light
    assert not {"font", "hoverlabel", "paper_bgcolor"} & set(layout)
    for key in layout:
        assert "gridcolor" not in (layout[key] if "axis" in key else {})


@pytest.mark.parametrize("name", [*OF_RUNS, *OF_RESULTS])
def test_a_figure_of_a_file(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    if name in OF_RUNS:
        source.mkdir()
        save(make_run(300), source)
    else:
        source.write_text(json.dumps(OF_RESULTS[name][1]()))
    target = tmp_path / "one.html"
    assert main([name, str(source), "-o", str(target)]) == 0
    assert target.stat().st_size > 600_000


def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["timeline", str(tmp_path), "-o", str(tmp_path / "one.html")]) == 2
    assert "is not a run directory" in capsys.readouterr().err
    assert not (tmp_path / "one.html").exists()


def test_it_runs_as_a_program_without_a_warning(tmp_path: Path) -> None:
    target = tmp_path / "one.html"
    command = [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.figures", "timeline"]
    done = subprocess.run(
        [*command, "-o", str(target)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(target)


@pytest.mark.parametrize("numbers", [[3], [0, 0, 1], [1, 2, 2, 5], [1] * 90 + [4000, 70_000]])
def test_bins_of_whole_numbers_hold_all_of_them_between_edges(numbers: list[int]) -> None:
    edges, counts, _ = binned(np.array(numbers, dtype=float), whole=True)
    assert counts.sum() == len(numbers)
    assert (edges % 1 == 0.5).all()
