"""Provides the templates from which a first scenario is written.

Each template is a complete scenario in which every section is explained; it is copied unchanged.
Shipped scenarios serve as templates, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from sim.errors import UsageError, did_you_mean
from sim.scenario import shipped
from sim.scenario.text.document import printable

_SUFFIXES = (".yaml", ".yml")
COMPANIONS: Mapping[str, tuple[str, str]] = {
    "trace": ("requests.csv", "trace"),
    "code": ("parts.py", "code"),
}
"""The file that a template refers to, and what that is to the scenario, by the template."""

_EDITORS = "# yaml-language-server:"
"""The beginning of a line that names the schema of a shipped scenario by its path."""


def names() -> list[str]:
    """The templates, sorted."""
    folder = resources.files("sim.scenario") / "templates"
    files = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def text(like: str) -> str:
    """The text of a template, or of a shipped scenario; UsageError if there is none of that
    name."""
    if like in names():
        file = resources.files("sim.scenario") / "templates" / f"{like}.yaml"
        return file.read_text(encoding="utf-8")
    if like in shipped_names():
        lines = shipped.found(like).read_text(encoding="utf-8").splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith((_EDITORS, "name:")))
    hint = did_you_mean(like, [*names(), *shipped_names()])
    raise UsageError(
        f"no template is called {like!r}{hint}; there are {', '.join(names())}, and the shipped "
        f"scenarios {', '.join(shipped_names())}"
    )


def shipped_names() -> list[str]:
    """The shipped scenarios that have no template of their name, and no trace next to them."""
    return [name for name in shipped.names() if name not in names() and not shipped.traced(name)]


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
    return folder / COMPANIONS[like][0] if like in COMPANIONS else None


def _write_companion(folder: Path, like: str) -> None:
    path = companion(folder, like)
    if path is not None and not path.exists():
        data = resources.files("sim.scenario") / "templates" / path.name
        path.write_bytes(data.read_bytes())
