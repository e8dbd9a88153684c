"""Provides the version of infersim, as every document states it."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


@cache
def version() -> str:
    """The version of the installed package; read once, since its description is parsed for it.
    "not installed" where a checkout runs as it lies there."""
    try:
        return metadata.version("infersim")
    except metadata.PackageNotFoundError:
        return "not installed"


def core() -> str:
    """Which event loop is imported: "compiled core", modules that a wheel of this platform has
    next to their Python files, or "Python core"."""
    replica = Path(__file__).parent / "loop" / "replica"
    compiled = any(Path(f"{replica}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    return "compiled core" if compiled else "Python core"
