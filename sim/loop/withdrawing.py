"""Provides replicas from which requests leave before they are done.

As an engine aborts a request: it leaves the queue or the batch, and its memory is freed, at the end
of the iteration in flight. Some policies, and pipelines, serve every request to its end.
"""

from __future__ import annotations

from typing import Any

from sim.loop.engine import Engine
from sim.loop.pipeline import Pipeline
from sim.loop.replica import Replica
from sim.request import Request


class Withdrawing(Replica):
    """A replica from which requests can be withdrawn."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._unwanted: list[Request] = []  # that leave when the plan in flight has ended
        super().__init__(*given, **named)

    def has(self, request: Request) -> bool:
        """Whether it is here, unfinished."""
        scheduler = self.scheduler
        return any(
            request in held for held in (scheduler.members(), scheduler.waiting, scheduler.coming)
        )

    def withdraw(self, request: Request) -> None:
        """No client waits for ``request`` any more: it leaves at the end of the iteration in
        flight, unless the policy serves it to its end."""
        if self._iterations:
            self._unwanted.append(request)
        else:
            self._let_go(request)

    def account(self, end: float) -> None:
        """Record what ran until ``end``; requests that no client waits for leave after it."""
        super().account(end)
        if self._unwanted:
            for request in self._unwanted:
                self._let_go(request)
            self._unwanted = []

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        if self._unwanted:  # who finishes all the same has left by itself
            self._unwanted = [request for request in self._unwanted if request not in finished]
        super()._deliver(finished, number, end)

    def _let_go(self, request: Request) -> None:
        generated = request.generated + self.scheduler.steps(request)
        if self.scheduler.withdraw(request):
            self.count(-1)
            self._gone(request, generated)

    def _gone(self, request: Request, generated: int) -> None:
        """``request`` has left after that many tokens."""
        raise NotImplementedError


def withdraw(engine: Engine, request: Request) -> bool:
    """No client waits for ``request`` any more: it leaves ``engine`` if it is there, and may.
    Returns whether it is there, and always True of a pipeline."""
    if isinstance(engine, Pipeline):
        return True
    for part in engine.ranks:
        assert isinstance(part, Withdrawing)
        if part.has(request):
            part.withdraw(request)
            engine.cut()
            return True
    return False
