"""The maps of modules in the READMEs name what exists, and all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import ROOT

HEAD = re.compile(r"^\| (?:module|package) \| what it provides \|$")
COMPLETE = ("sim", "sim/planning", "calibrate", "reports")
"""Folders whose map has every module and package that lies directly in them."""


def maps(readme: Path) -> list[str]:
    """The first cells of the rows of the tables that are maps."""
    cells, inside = [], False
    for line in readme.read_text("utf-8").splitlines():
        inside = bool(HEAD.match(line)) or (inside and line.startswith("|"))
        if inside and line.startswith("| `"):
            cells.append(line.split(" | ")[0])
    return cells


def named(readme: Path) -> list[Path]:
    """What the first cells name; in one cell a name may be short for one next to the first."""
    found = []
    for cell in maps(readme):
        first, *others = re.findall(r"`([\w/]+?)/?(?:\.py)?`", cell)
        folder = readme.parent / first
        found += [folder, *(folder.parent / other.split("/")[-1] for other in others)]
    return found


READMES = [
    path
    for package in ("sim", "calibrate", "reports")
    for path in sorted((ROOT / package).rglob("README.md"))
    if maps(path)
]


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_what_a_map_names_exists(readme: Path) -> None:
    missing = [
        str(path.relative_to(ROOT))
        for path in named(readme)
        if not path.is_dir() and not path.with_suffix(".py").is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("folder", COMPLETE)
def test_a_map_is_complete(folder: str) -> None:
    modules = {path.stem for path in (ROOT / folder).glob("[!_]*.py")}
    packages = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    top = {path.relative_to(ROOT / folder).parts[0] for path in named(ROOT / folder / "README.md")}
    assert (modules | packages) - top == set()
