"""Evaluates points, and makes other calls, in this process or in others on this machine.

Whatever the executor, a point has the same outcome; only the order in which outcomes come differs.
A ``Crew`` makes calls that are asked for one by one, the most urgent first, so that no process
waits for a whole round of calls where the next ones depend on some of them only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from sim.copies import LOOK_EVERY, Workers, can_copy, end_with, killed, result_of
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
            asked = (delayed(_call)(os.getpid(), evaluate, (placed, point)) for point in points)
            yield from parallel(asked)
        except TerminatedWorkerError:
            raise killed() from None


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
    from joblib.executor import get_memmapping_executor  # noqa: PLC0415 - slow to import

    others = get_memmapping_executor(jobs)  # those of ``Processes``, which would take no others

    def submit(function: Callable[..., R], *arguments: Any) -> Future[R]:
        sent: Future[R] = others.submit(_call, os.getpid(), function, arguments)
        return sent

    return submit


def _call(parent: int, function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    """``function`` of ``arguments``, in a process that ends when the one that asked is gone."""
    end_with(parent)
    return function(*arguments)


Submit = Callable[..., Future[Any]]
"""Makes a call elsewhere."""


class CrewCall(Generic[R]):
    """A call that was asked for; ``later`` says how little urgent it is."""

    def __init__(self, make: Callable[..., R], arguments: tuple[Any, ...], later: float) -> None:
        self.make, self.arguments, self.later = make, arguments, later
        self._found: Callable[[], R] | None = None

    @property
    def done(self) -> bool:
        """Whether its result is there."""
        return self._found is not None

    @property
    def result(self) -> R:
        """The call's result, or its error raised."""
        assert self._found is not None
        return self._found()

    def found(self, result: Callable[[], R]) -> None:
        """Note where its result is."""
        self._found = result


class Crew:
    """Up to ``jobs`` processes that make calls; each begins with ``kept``. Without ``submit`` calls
    are made in this process, when they are waited for."""

    def __init__(
        self, kept: Any, jobs: int, submit: Submit | None, look: Callable[[], None] | None = None
    ) -> None:
        """``look`` is called now and then while others work."""
        self._kept, self._jobs, self._submit, self._look = kept, jobs, submit, look
        self._waiting: list[CrewCall[Any]] = []
        self._running: dict[Future[Any], CrewCall[Any]] = {}

    def begin(self, make: Callable[..., R], *arguments: Any, later: float = 0.0) -> CrewCall[R]:
        """Ask for ``make`` of what is kept and the arguments; what is ``later`` waits for others
        where all processes have something to do."""
        call = CrewCall(make, arguments, later)
        if self._submit is not None:
            self._waiting.append(call)
            self._fill()
        return call

    def as_done(self, calls: Sequence[CrewCall[R]]) -> Iterator[CrewCall[R]]:
        """``calls``, each as soon as its result is there; in this process in their order."""
        left = list(calls)
        while left:
            call = self._first(left)
            left.remove(call)
            yield call

    def finish(self, calls: Sequence[CrewCall[Any]]) -> None:
        """Wait for all of ``calls``."""
        for _ in self.as_done(calls):
            pass

    def _first(self, calls: Sequence[CrewCall[R]]) -> CrewCall[R]:
        if self._submit is None:
            call = calls[0]
            if not call.done:
                made = call.make(self._kept, *call.arguments)
                call.found(lambda: made)
            return call
        while True:
            for call in calls:
                if call.done:
                    return call
            timeout = None if self._look is None else LOOK_EVERY
            done, _ = wait(self._running, timeout, FIRST_COMPLETED)
            for future in done:
                self._running.pop(future).found(partial(result_of, future))
            self._fill()
            if self._look is not None:
                self._look()

    def _fill(self) -> None:
        assert self._submit is not None
        while self._waiting and len(self._running) < self._jobs:
            call = min(self._waiting, key=lambda call: call.later)
            self._waiting.remove(call)
            self._running[self._submit(call.make, *call.arguments)] = call


@contextmanager
def crew(kept: Any, jobs: int, look: Callable[[], None] | None = None) -> Iterator[Crew]:
    """``jobs`` processes, 1 being this one: copies of it where it can be copied, else others to
    which ``kept`` is sent. The context ends them."""
    if jobs == 1:
        yield Crew(kept, 1, None)
    elif can_copy():
        with Workers(kept, jobs) as copies:
            yield Crew(kept, jobs, copies.submit, look)
    else:
        sent = elsewhere(jobs)

        def submit(make: Callable[..., R], *arguments: Any) -> Future[R]:
            return sent(make, kept, *arguments)

        yield Crew(kept, jobs, submit, look)
