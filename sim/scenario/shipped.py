"""Finds the scenarios that ship with infersim, by their names.

A checkout has them in its folder ``scenarios``, an installed package in a folder of this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sim.catalog.files import read_yaml

FOLDER = "scenarios"
"""The folder of a checkout that has them; a path into it names the same scenarios elsewhere."""


def folder() -> Path:
    """The folder of the shipped scenarios."""
    installed = Path(__file__).parent / "shipped"
    return installed if installed.is_dir() else Path(__file__).parents[2] / FOLDER


CLAIMS = "claims"
"""The folder of the shipped claims, in that of the scenarios."""


def names(kind: str = "") -> list[str]:
    """The sorted names of shipped scenarios, or of what is in their folder ``kind``."""
    return sorted(path.stem for path in (folder() / kind).glob("*.yaml"))


def description(name: str) -> str:
    """The question of a shipped scenario, as its file words it."""
    return " ".join(str(_read(name).get("description", "")).split())


def traced(name: str) -> bool:
    """Whether a shipped scenario replays a trace that ships with it."""
    workload = _read(name)["workload"]
    return isinstance(workload, Mapping) and "trace" in workload


def _read(name: str) -> Mapping[str, object]:
    return read_yaml(folder() / f"{name}.yaml")


def found(source: str | Path, kind: str = "") -> Path:
    """The file that ``source`` names: itself where it is there, else the shipped scenario called
    so, such as ``chat``, ``chat.yaml`` or ``scenarios/chat.yaml``, or a folder of them; else
    ``source``. What is in the folder ``kind`` comes before a scenario, by its bare name.

    >>> found("chat").name, found("scenarios/claims").name, found("elsewhere/chat.yaml").as_posix()
    ('chat.yaml', 'claims', 'elsewhere/chat.yaml')
    >>> found("kv-long-contexts", "claims").name, found("kv-long-contexts").name
    ('kv-long-contexts.yaml', 'kv-long-contexts')
    """
    path = Path(source)
    inside = path.parts[1:] if path.parts[:1] == (FOLDER,) else path.parts
    name = "/".join(inside).removesuffix(".yaml")
    try:
        there = path.exists()
    except OSError:  # too long a name, which no shipped scenario has
        return path
    return path if there else _files().get(f"{kind}/{name}") or _files().get(name, path)


@cache
def _files() -> dict[str, Path]:
    """Each of them, and each folder of them, by its path in ``folder`` without ending."""
    there = folder()
    found = [path for path in there.rglob("*") if path.suffix == ".yaml"]
    homes = {path.parent for path in found if path.parent != there}
    return {
        path.relative_to(there).as_posix().removesuffix(".yaml"): path for path in [*found, *homes]
    }
