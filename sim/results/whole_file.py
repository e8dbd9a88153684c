"""Writes files that appear whole or not at all: under another name first, then renamed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file, and give it its name ``path`` when it is whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, all of it or nothing: an older file stays until then."""
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))
