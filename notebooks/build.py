"""Builds ``NN_name.ipynb`` from ``NN_name.py``: runs it and draws its figures.

``python -m notebooks.build`` makes all of them, or those whose names it is given. The ``.py`` is
what people edit; the ``.ipynb`` is what GitHub shows. Whatever differs from run to run without
meaning anything is left out of it, so that a fresh run of the same sources gives the same file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import numpy as np
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from notebooks.pictures import HEIGHT, WIDTH, NoBrowserError, pictures

FOLDER = Path(__file__).parent

FIGURE, PICTURE = "application/vnd.plotly.v1+json", "image/png"
"""What Jupyter draws and can be moved, and what GitHub shows."""

DRAWN_FROM = "drawn_from"
"""In the metadata of an output: the digest of the figure that its picture shows."""

DIGITS = 6
"""Significant digits of a figure's numbers that are stored: more than a screen can show."""

CELL_LIMIT = 900
"""Seconds after which a cell is stopped."""


ALONE = """
import socket, warnings
def alone(call, place):
    def checked(*args, **kwargs):
        if "127.0.0.1" not in (args[place], args[place][0]):
            raise OSError("a notebook asked for the network")
        return call(*args, **kwargs)
    return checked
socket.getaddrinfo = alone(socket.getaddrinfo, 0)
socket.socket.connect = alone(socket.socket.connect, 1)
warnings.filterwarnings("error", module="(__main__|sim|calibrate|reports)")
del alone, socket, warnings
"""
"""What a kernel runs before the first cell: it reaches nothing but its own machine."""


class LeftoversError(Exception):
    """A notebook wrote files and did not remove them."""


def sources() -> list[Path]:
    """Every notebook's source, in the order in which they are read."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def read(source: Path) -> Any:
    """The notebook of a source, not run yet; its cells are numbered."""
    notebook = jupytext.read(source, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number:02}"
    notebook.metadata = nbformat.from_dict(
        {
            "jupytext": {"formats": "ipynb,py:percent"},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"file_extension": ".py", "name": "python"},
        }
    )
    return notebook


def executed(source: Path) -> Any:
    """The notebook, run offline in an empty folder, where a warning of ours is an error.

    Raises CellExecutionError if a cell fails, LeftoversError if the run leaves a file behind.
    """
    notebook = read(source)
    metadata = notebook.metadata
    with tempfile.TemporaryDirectory() as settings, tempfile.TemporaryDirectory() as folder:
        startup = Path(settings, "profile_default", "startup", "00-alone.py")
        startup.parent.mkdir(parents=True)
        startup.write_text(ALONE, encoding="utf-8")
        environment = dict(os.environ) | {
            "PYTHONPATH": str(FOLDER.parent),
            "PLOTLY_RENDERER": "plotly_mimetype",
            "IPYTHONDIR": settings,
        }
        environment.pop("FORCE_COLOR", None)
        NotebookClient(
            notebook,
            timeout=CELL_LIMIT,
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--HistoryManager.enabled=False", "--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        ).execute(env=environment)
        if left := sorted(path.name for path in Path(folder).iterdir()):
            raise LeftoversError(f"leaves {', '.join(left)} behind")
    notebook.metadata = metadata
    for output in figures(notebook):
        output["data"][FIGURE] = plain(output["data"][FIGURE])
        output["data"][FIGURE].pop("config", None)
    return notebook


def figures(notebook: Any) -> list[Any]:
    """The outputs of a notebook that are figures."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [o for cell in cells for o in cell.outputs if FIGURE in o.get("data", ())]


def plain(value: Any) -> Any:
    """A figure, or part of one, with its arrays as lists and its numbers in ``DIGITS`` digits."""
    if isinstance(value, dict):
        if set(value) >= {"dtype", "bdata"}:
            array = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
            shape = [int(n) for n in str(value.get("shape", len(array))).split(",")]
            return plain(array.reshape(shape).tolist())
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


def digest(figure: Any) -> str:
    """A short name of exactly this figure."""
    text = json.dumps(figure, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def add_pictures(notebook: Any, earlier: Path) -> None:
    """Give each figure its picture: that of the ``earlier`` notebook where the figure is the same,
    else one drawn by a browser. NoBrowserError if one is needed and there is none."""
    known = {}
    if earlier.exists():
        for output in figures(nbformat.read(earlier, as_version=4)):
            if PICTURE in output["data"]:
                known[output["metadata"].get(DRAWN_FROM)] = output["data"][PICTURE]
    wanted = {digest(o["data"][FIGURE]): o["data"][FIGURE] for o in figures(notebook)}
    new = [name for name in wanted if name not in known]
    known |= zip(new, pictures([wanted[name] for name in new]), strict=True)
    for output in figures(notebook):
        figure = output["data"][FIGURE]
        name = digest(figure)
        size = {"width": WIDTH, "height": int(figure["layout"].get("height", HEIGHT))}
        output["data"][PICTURE] = known[name]
        output["metadata"] = nbformat.from_dict({DRAWN_FROM: name, PICTURE: size})


def build(source: Path, folder: Path, *, draw: bool) -> Path:
    """Run one notebook and write it into ``folder``; the path of what was written."""
    target = folder / f"{source.stem}.ipynb"
    notebook = executed(source)
    if draw:
        add_pictures(notebook, target)
    text = nbformat.writes(notebook, version=4)
    target.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m notebooks.build", description="Run notebooks.")
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 01; default: all")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder of the .ipynb files")
    parser.add_argument("--no-pictures", action="store_true", help="figures as data only")
    given = parser.parse_args(arguments)
    chosen = [s for s in sources() if not given.names or s.name.startswith(tuple(given.names))]
    if not chosen:
        parser.error(f"no notebook begins with {', '.join(given.names) or 'two digits'}")
    for source in chosen:
        try:
            target = build(source, given.into, draw=not given.no_pictures)
        except (CellExecutionError, LeftoversError, NoBrowserError) as failure:
            print(f"{source.name}: {failure}", file=sys.stderr)
            return 1
        print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
