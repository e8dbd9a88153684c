"""Makes calls side by side that are asked for one by one, the most urgent first.

So no process waits for a whole round of calls where the next ones depend on some of them only.
Results are the same whatever the number of processes; only when each is there differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from sim.copies import LOOK_EVERY, Workers, can_copy, result_of
from sim.planning.points.executors import elsewhere

R = TypeVar("R")

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
        self,
        kept: Any,
        jobs: int,
        submit: Submit | None,
        look: Callable[[], None] | None = None,
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
            call = min(self._waiting, key=_later)
            self._waiting.remove(call)
            self._running[self._submit(call.make, *call.arguments)] = call


def _later(call: CrewCall[Any]) -> float:
    return call.later


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
