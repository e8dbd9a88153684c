"""Makes long calls side by side, in this process or in several. Results in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sim.errors import InfersimError
from sim.planning.executors import end_with

R = TypeVar("R")


def calls(
    function: Callable[..., R], arguments: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[R]:
    """``function`` of each of ``arguments``, in their order, each as soon as it is ready.

    ``jobs`` processes work, -1 is one for each core; 1, or a single call, stays in this process.
    Raises InfersimError where a process was killed.
    """
    if jobs == 1 or len(arguments) < 2:
        for each in arguments:
            yield function(*each)
        return
    from joblib import Parallel, delayed  # noqa: PLC0415 - slow to import
    from joblib.externals.loky.process_executor import TerminatedWorkerError  # noqa: PLC0415

    parallel = Parallel(n_jobs=jobs, return_as="generator", batch_size=1)
    try:
        yield from parallel(delayed(_call)(os.getpid(), function, each) for each in arguments)
    except TerminatedWorkerError:
        raise InfersimError(
            "a process that simulated was killed, perhaps because memory ran out; "
            "use fewer of them (--jobs)"
        ) from None


def _call(parent: int, function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    """``function`` of ``arguments``, in a process that ends when the one that asked is gone."""
    end_with(parent)
    return function(*arguments)
