"""Finds the file that a name of the catalogue, or a path, stands for."""

from __future__ import annotations

from pathlib import Path

from sim.catalog.entries import FOLDER, Kind, names
from sim.catalog.ids import named
from sim.errors import UsageError, did_you_mean, known_names, shorten


def find(kind: Kind, name_or_path: str | Path, base: Path | None) -> Path:
    """The file or folder meant: a catalogue name goes before a path of the same spelling, and that
    before the id of a model on Hugging Face whose shape the catalogue has.

    Raises UsageError, with the known names and the nearest, if there is neither.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, str) and text in names(kind):
        return FOLDER / kind / f"{text}.yaml"
    path = _path(text, base)
    if text and path is not None:
        return path
    if kind == "models" and isinstance(name_or_path, str):
        meant = named(text)
        if meant is not None:
            return FOLDER / kind / f"{meant.entry}.yaml"
    spelled_as_path = isinstance(name_or_path, Path) or "/" in text or "\\" in text
    if spelled_as_path or Path(text).suffix in (".yaml", ".yml", ".json", ".gguf"):
        hint = did_you_mean(Path(text).name.lower(), names(kind))  # as models are named on a hub
        raise UsageError(
            f"{(base or Path()) / text} does not exist{hint}; give a file on this machine, or one "
            f"of the {kind} by name: {known_names(kind, names(kind))}"
        )
    raise unknown(kind, text)


def _path(text: str, base: Path | None) -> Path | None:
    """The file or folder at that path; None if there is none, or no path is spelt like that."""
    try:
        path = (base or Path()) / Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, an unknown ~user
        return None


def unknown(kind: Kind, name: str) -> UsageError:
    """The complaint about a name that the catalogue does not have."""
    known = names(kind)
    shown = shorten(repr(name))
    return UsageError(
        f"unknown {kind.removesuffix('s')} {shown}{did_you_mean(name, known)}; "
        f"{known_names(kind, known, name)}"
    )
