"""Provides the version of infersim, as every document states it."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version of the installed package; read once, since its description is parsed for it.
    "not installed" where a checkout runs as it lies there."""
    try:
        return metadata.version("infersim")
    except metadata.PackageNotFoundError:
        return "not installed"
