"""Provides PyTorch without importing it before something is measured.

``from calibrate.lazy_torch import torch`` costs nothing; the first attribute imports the package,
and where it is not installed raises a UsageError that says what to do. It may be typed or not
depending on what is installed, so it is Any everywhere. Inside timed calls hold the function itself
(``mm = torch.mm``): each look-up here costs a fraction of a microsecond.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from sim.errors import UsageError

Tensor = Any
"""A ``torch.Tensor``."""


class _Torch:
    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules.get("torch") or _load(), name)


def _load() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UsageError(
            "measuring needs PyTorch, which cannot be imported here "
            f"({error}); install infersim[calibrate], or PyTorch itself for your device"
        ) from None


torch: Any = _Torch()


def installed() -> bool:
    """Whether PyTorch could be imported; does not import it."""
    return importlib.util.find_spec("torch") is not None


def optional(module: str) -> Any | None:
    """A module that may be missing or broken on this machine, such as ``flashinfer``, or None.

    Packages with compiled parts fail in their own ways when driver and build do not fit (OSError,
    RuntimeError): for a benchmark all of that means "not here".
    """
    try:
        return importlib.import_module(module)
    except Exception:
        return None
