"""Evaluates the points of a question in this process, or in others on this machine.

Whatever the executor, a point has the same outcome; only the order in which outcomes come differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sim.copies import end_with, killed
from sim.errors import UsageError
from sim.planning.points.evaluate import evaluate
from sim.planning.points.points import Outcome, Point
from sim.scenario import Scenario


class Executor(Protocol):
    """Evaluates points."""

    def run(self, scenario: Scenario, points: Iterable[Point]) -> Iterator[Outcome]:
        """The outcomes of ``points``, each as soon as it is ready, in any order.

        Raises InfersimError if the points cannot be evaluated where they were to be.
        """


@dataclass(frozen=True)
class InProcess:
    """One point after the other, here."""

    def run(self, scenario: Scenario, points: Iterable[Point]) -> Iterator[Outcome]:
        """Runs the points one after the other, in their order."""
        for point in points:
            yield evaluate(scenario, point)


@dataclass(frozen=True)
class Processes:
    """``jobs`` processes on this machine, kept for later calls together with what they have
    read."""

    jobs: int

    def run(self, scenario: Scenario, points: Iterable[Point]) -> Iterator[Outcome]:
        """Runs the points in processes; short ones travel several at a time."""
        from joblib import Parallel, delayed  # noqa: PLC0415 - slow to import
        from joblib.externals.loky.process_executor import (  # noqa: PLC0415
            TerminatedWorkerError,
        )

        placed = scenario.moved(scenario.base.absolute())
        parallel = Parallel(n_jobs=self.jobs, return_as="generator_unordered", max_nbytes=None)
        try:
            yield from parallel(delayed(_evaluate)(os.getpid(), placed, point) for point in points)
        except TerminatedWorkerError:
            raise killed() from None


def _evaluate(parent: int, scenario: Scenario, point: Point) -> Outcome:
    """``evaluate`` in a process that ends when the one that asked is gone."""
    end_with(parent)
    return evaluate(scenario, point)


def local(jobs: int = 1) -> Executor:
    """Evaluate on this machine with ``jobs`` processes; -1 is one for each core, 1 this one.

    Raises UsageError for any other number below 1.
    """
    if jobs == 1:
        return InProcess()
    if jobs < 1 and jobs != -1:
        raise UsageError(f"jobs: {jobs} processes; give 1 or more, or -1 for one for each core")
    return Processes(jobs)


R = TypeVar("R")


def elsewhere(jobs: int) -> Callable[..., Future[Any]]:
    """A function that has calls made by up to ``jobs`` other processes, to which they are sent."""
    from joblib.externals.loky import get_reusable_executor  # noqa: PLC0415 - slow to import

    others = get_reusable_executor(max_workers=jobs)

    def submit(function: Callable[..., R], *arguments: Any) -> Future[R]:
        sent: Future[R] = others.submit(_call, os.getpid(), function, arguments)
        return sent

    return submit


def _call(parent: int, function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    """``function`` of ``arguments``, in a process that ends when the one that asked is gone."""
    end_with(parent)
    return function(*arguments)
