"""Makes calls in copies of this process, which have whatever it has read and prepared.

A copy starts at once, where a new process takes a second to import what it needs. Only a process of
one thread can be copied safely, and only where the system forks as Linux does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sim.errors import InfersimError

LOOK_EVERY = 0.5
"""Seconds between two looks of a process at whether the one that it works for is still there, and
of that one at how far its copies are."""

P = ParamSpec("P")
R = TypeVar("R")

_kept: Any = None  # in a copy, what its calls are about


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def can_copy() -> bool:
    """Whether this process can be copied."""
    return sys.platform == "linux" and threading.active_count() == 1


class Workers:
    """``jobs`` copies of this process, made at the first call; each call begins with ``kept``, as
    it was then. Leaving the context ends them, whatever they are at."""

    def __init__(self, kept: Any, jobs: int) -> None:
        self.jobs = jobs
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(
            jobs,
            mp_context=multiprocessing.get_context("fork"),
            initializer=_begin,
            initargs=(os.getpid(), kept),
        )

    def submit(
        self, function: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """``function`` of ``kept`` and the arguments, in a copy, as soon as one is free."""
        return self._pool.submit(_call, function, args, kwargs)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()
        self._pool.shutdown(cancel_futures=True)


def killed() -> InfersimError:
    """The error of a simulation whose process was killed."""
    return InfersimError(
        "a process that simulated was killed, perhaps because memory ran out; use fewer of them "
        "(--jobs)"
    )


def result_of(future: Future[R], look: Callable[[], None] | None = None) -> R:
    """The result of a call in a copy, or its error raised; InfersimError where the copy was killed.
    While it is awaited, ``look`` is called now and then."""
    try:
        if look is not None:
            while not wait([future], LOOK_EVERY).done:
                look()
        return future.result()
    except BrokenProcessPool:
        raise killed() from None


def _begin(parent: int, kept: Any) -> None:
    """Begins a copy: the keyboard interrupts the process that it works for."""
    global _kept  # noqa: PLW0603 - of this process alone
    _kept = kept
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)


def _call(function: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    return function(_kept, *args, **kwargs)


@cache
def end_with(parent: int) -> None:
    """Watch from now on whether ``parent`` lives: if killed, it cannot end its processes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
