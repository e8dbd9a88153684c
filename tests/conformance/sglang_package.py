"""Imports modules of SGLang, where it is installed."""

from __future__ import annotations

import importlib
from typing import Any

from sim.errors import UsageError


def module(name: str) -> Any:
    """The module ``name`` of SGLang; UsageError if it cannot be imported here."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"recording SGLang needs the package sglang, which cannot be imported here ({error})"
        ) from None


def version() -> str:
    """The installed version."""
    return str(module("sglang").__version__)
