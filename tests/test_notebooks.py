"""The notebooks run, offline and from anywhere, and what is committed of them is what comes out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT

FOLDER = ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
TOOLS = ("jupytext", "nbclient", "nbformat", "ipykernel")
MISSING = [name for name in TOOLS if find_spec(name) is None]

LONG = ("05_choosing_hardware",)
"""Notebooks that run for half a minute and more."""

LARGEST = 400_000
"""Bytes of a notebook, so that GitHub shows it at once."""

WIDEST = 88
"""Columns of a line of prose, and of what a cell prints."""

FIGURE, PICTURE = "application/vnd.plotly.v1+json", "image/png"

SAID = ("type", "name", "x", "y", "z", "base")
"""Of a trace of a figure, what is compared."""

NEAR = 1e-4
"""Relative difference of two numbers of a figure that libraries of mathematics may make."""

each = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def committed(source: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    return found


def environment() -> dict[str, str]:
    """That of somebody without a screen or settings of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MPL")}
    return kept | {"PYTHONPATH": str(ROOT)}


@needs_tools
@pytest.mark.parametrize(
    ("cell", "complaint"),
    {
        "import urllib.request; urllib.request.urlopen('http://1.1.1.1')": "the network",
        "import warnings; warnings.warn('old', stacklevel=1)": "UserWarning",
        "open('left.txt', 'w').close()": "leaves left.txt behind",
    }.items(),
)
def test_what_a_notebook_must_not_do(cell: str, complaint: str, tmp_path: Path) -> None:
    from nbclient.exceptions import CellExecutionError

    from notebooks.build import LeftoversError, executed

    source = tmp_path / "00_bad.py"
    source.write_text(f"# %%\n{cell}\n", encoding="utf-8")
    with pytest.raises((CellExecutionError, LeftoversError), match=complaint):
        executed(source)


@pytest.mark.slow
@needs_tools
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, id=source.stem, marks=[pytest.mark.thorough] * (source.stem in LONG))
        for source in SOURCES
    ],
)
def test_what_is_committed_is_what_comes_out(source: Path, tmp_path: Path) -> None:
    if "calibrate.engine" in source.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="the notebook shows what PyTorch computes")
    command = [sys.executable, "-m", "notebooks.build", source.stem, "--no-pictures"]
    done = subprocess.run(
        [*command, "--into", str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    fresh = json.loads((tmp_path / f"{source.stem}.ipynb").read_text(encoding="utf-8"))
    ours = committed(source)
    again = f"run `python -m notebooks.build {source.stem[:2]}`"
    sources = [[cell["cell_type"], cell["source"]] for cell in ours["cells"]]
    assert sources == [[cell["cell_type"], cell["source"]] for cell in fresh["cells"]], again
    for mine, new in zip(ours["cells"], fresh["cells"], strict=True):
        assert texts(mine) == texts(new), again
        assert_near(drawn(mine), drawn(new), again)


@each
def test_a_notebook_is_small_and_its_figures_have_pictures(source: Path) -> None:
    assert source.with_suffix(".ipynb").stat().st_size < LARGEST
    for cell in committed(source)["cells"]:
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error"
            if FIGURE in output.get("data", ()):
                assert PICTURE in output["data"]


@needs_tools
@each
def test_pictures_show_the_figures_beside_them(source: Path) -> None:
    from notebooks.build import DRAWN_FROM, digest

    for cell in committed(source)["cells"]:
        for output in cell.get("outputs", ()):
            if FIGURE in output.get("data", ()):
                assert output["metadata"][DRAWN_FROM] == digest(output["data"][FIGURE])


@each
def test_lines_are_short(source: Path) -> None:
    lines = source.read_text(encoding="utf-8").splitlines()
    prose = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    assert [line for line in prose if len(line) > WIDEST] == []
    for cell in committed(source)["cells"]:
        for output in cell.get("outputs", ()):
            assert all(len(line) <= WIDEST for line in "".join(output.get("text", ())).split("\n"))


def test_the_map_names_every_notebook() -> None:
    links = re.findall(r"\]\((\d\d_\w+)\.ipynb\)", (FOLDER / "README.md").read_text("utf-8"))
    assert links == [source.stem for source in SOURCES]
    assert all(source.with_suffix(".ipynb").exists() for source in SOURCES)
    assert len(list(FOLDER.glob("*.ipynb"))) == len(SOURCES)


@needs_tools
def test_arrays_become_lists_of_short_numbers() -> None:
    from notebooks.build import plain

    array = {"dtype": "f8", "bdata": "AAAAAAAA8D8AAAAAAAAAQA==", "shape": "2, 1"}
    assert plain({"x": array}) == {"x": [[1.0], [2.0]]}
    assert plain([1 / 3, 7, "a", None, True]) == [0.333333, 7, "a", None, True]


@needs_tools
def test_a_picture_becomes_small_and_stays_the_same() -> None:
    import zlib

    from notebooks import palette

    rows = [[(1, 2, 3, 255), (250, 0, 9, 255)], [(1, 2, 3, 255), (0, 0, 0, 0)]]
    data = b"".join(b"\0" + bytes(sum(row, ())) for row in rows)
    head = bytes([0, 0, 0, 2, 0, 0, 0, 2, 8, 6, 0, 0, 0])
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    png = palette.SIGNATURE + b"".join(palette._chunk(name, body) for name, body in parts)
    found = dict(palette._chunks(palette.smaller(png)))
    assert found[b"IHDR"][9] == 3, "a table of colours"
    places = zlib.decompress(found[b"IDAT"])
    colours = [tuple(found[b"PLTE"][3 * i : 3 * i + 3]) for i in range(3)]
    shown = [[colours[place] for place in row] for row in (places[1:3], places[4:6])]
    assert shown == [[(1, 2, 3), (250, 0, 9)], [(1, 2, 3), (255, 255, 255)]]


def texts(cell: dict[str, Any]) -> list[Any]:
    """What a cell shows as text; of figures only that there is one."""
    shown: list[Any] = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if FIGURE in data:
            shown.append("figure")
        elif data:
            shown.append(
                {kind: "".join(text) for kind, text in data.items() if kind[:5] == "text/"}
            )
        else:
            shown.append("".join(output["text"]))
    return shown


def drawn(cell: dict[str, Any]) -> list[Any]:
    """What the figures of a cell say: the points of each trace. How they look may change."""
    found = [o["data"][FIGURE] for o in cell.get("outputs", ()) if FIGURE in o.get("data", ())]
    traces = [trace for figure in found for trace in figure["data"]]
    return [{key: trace[key] for key in SAID if key in trace} for trace in traces]


def assert_near(ours: Any, fresh: Any, message: str) -> None:
    """The same, but for the last digits of numbers."""
    if isinstance(ours, dict):
        assert ours.keys() == fresh.keys(), message
        for key, value in ours.items():
            assert_near(value, fresh[key], message)
    elif isinstance(ours, list):
        assert len(ours) == len(fresh), message
        for mine, new in zip(ours, fresh, strict=True):
            assert_near(mine, new, message)
    elif isinstance(ours, float):
        assert fresh == pytest.approx(ours, rel=NEAR), message
    else:
        assert ours == fresh, message
