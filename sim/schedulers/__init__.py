"""Batching policies, found by name or as ``package.module:Class``."""

from __future__ import annotations

import importlib
import inspect

from sim.errors import UsageError, did_you_mean
from sim.memory import Allocator
from sim.schedulers.base import Chunk, Limits, Plan, Scheduler
from sim.schedulers.continuous import ChunkedPrefill, PrefillFirst
from sim.schedulers.whole_batch import RequestLevel, Static

__all__ = [
    "Chunk",
    "ChunkedPrefill",
    "Limits",
    "Plan",
    "PrefillFirst",
    "RequestLevel",
    "Scheduler",
    "Static",
    "make_scheduler",
]

BATCHING: dict[str, type[Scheduler]] = {
    "static": Static,
    "request": RequestLevel,
    "continuous": ChunkedPrefill,
}


def make_scheduler(
    batching: str, limits: Limits, kv: Allocator, *, chunked_prefill: bool = True
) -> Scheduler:
    """The scheduler that ``scheduler.batching`` names.

    Without ``chunked_prefill``, continuous batching runs whole prompts before any decode. A name
    with a colon is imported: ``package.module:Class``, a subclass of ``Scheduler``.
    Raises UsageError for a name that leads nowhere.
    """
    if batching == "continuous" and not chunked_prefill:
        return PrefillFirst(limits, kv)
    if ":" in batching:
        return _load(batching)(limits, kv)
    if batching not in BATCHING:
        raise UsageError(
            f"unknown batching {batching!r}{did_you_mean(batching, BATCHING)}; "
            f"known: {', '.join(BATCHING)}, or package.module:Class"
        )
    return BATCHING[batching](limits, kv)


def _load(path: str) -> type[Scheduler]:
    module_name, _, class_name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # whatever a user's module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"scheduler {path!r} cannot be imported ({reason})") from error
    if not (isinstance(found, type) and issubclass(found, Scheduler)):
        raise UsageError(f"scheduler {path!r} is not a subclass of sim.schedulers.Scheduler")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UsageError(f"scheduler {path!r} is abstract: it does not implement {missing}")
    return found
