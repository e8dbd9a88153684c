"""How does a policy of one's own get in? By ``package.module:Class``."""

from __future__ import annotations

import importlib
import inspect
from abc import ABCMeta
from typing import Any

from sim.errors import UsageError


def load(path: str, base: type, noun: str) -> Any:
    """The concrete subclass of ``base`` at ``path``; ``noun`` is what messages call it.

    Raises UsageError for a path that leads nowhere, or to something else.
    """
    module_name, _, class_name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (Exception, SystemExit) as error:  # whatever a user's module does when imported
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{noun} {path!r} cannot be imported ({reason})") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UsageError(f"{noun} {path!r} is not a subclass of sim.schedulers.{base.__name__}")
    if isinstance(found, ABCMeta) and inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UsageError(f"{noun} {path!r} is abstract: it does not implement {missing}")
    return found
