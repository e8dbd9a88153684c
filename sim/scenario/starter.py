"""Provides the templates from which a first scenario is written.

Each template is a complete scenario in which every section is explained; it is copied unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from sim.errors import UsageError, did_you_mean
from sim.scenario.text.document import printable

_SUFFIXES = (".yaml", ".yml")
COMPANIONS: Mapping[str, str] = {"trace": "requests.csv"}
"""The file that a template refers to, by the template."""


def names() -> list[str]:
    """The templates, sorted."""
    folder = resources.files("sim.scenario") / "templates"
    files = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def text(like: str) -> str:
    """The text of a template; UsageError if there is none of that name."""
    known = names()
    if like not in known:
        hint = did_you_mean(like, known)
        raise UsageError(f"no template is called {like!r}{hint}; there are {', '.join(known)}")
    file = resources.files("sim.scenario") / "templates" / f"{like}.yaml"
    return file.read_text(encoding="utf-8")


def write(name: str, like: str = "chat", *, force: bool = False) -> Path:
    """Write a template to ``name``, with .yaml at its end, and return where it is.

    What the template refers to is written next to it, unless a file of that name is there. Raises
    UsageError when the file exists, unless ``force`` is given, or cannot be written.
    """
    content = text(like)
    if not Path(name).name.strip(" ."):
        raise UsageError(f"{name!r} is not the name of a file")
    path = Path(name if name.endswith(_SUFFIXES) else f"{name}.yaml")
    shown = printable(str(path))
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(content)
        _write_companion(path.parent, like)
    except FileExistsError:
        raise UsageError(f"{shown} exists already; --force overwrites it") from None
    except FileNotFoundError:
        raise UsageError(f"{shown}: the folder {printable(str(path.parent))} is missing") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{shown} cannot be written: {reason}") from None
    return path


def companion(folder: Path, like: str) -> Path | None:
    """The file in ``folder`` that a template refers to; None if it refers to none."""
    name = COMPANIONS.get(like)
    return None if name is None else folder / name


def _write_companion(folder: Path, like: str) -> None:
    path = companion(folder, like)
    if path is not None and not path.exists():
        data = resources.files("sim.scenario") / "templates" / path.name
        path.write_bytes(data.read_bytes())
