"""Provides Hugging Face transformers, an optional package, without importing it early.

Nothing of it is imported before ``module`` is called, and it makes no network request.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from sim.errors import UsageError

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # configuration and weights are made here
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Variables that transformers reads on import; those that are set stay."""


def module(name: str) -> Any:
    """The module ``name`` of transformers; UsageError if that is not installed, or is a release
    without it."""
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            "--engine transformers needs the package transformers, 5.17 or later, which cannot be "
            f"imported here ({error}); install infersim[transformers]"
        ) from None


def version() -> str:
    """The installed version."""
    return str(module("transformers").__version__)
