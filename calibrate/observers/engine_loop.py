"""Runs a third-party engine against the wall clock: arrivals, one step, its results, again.

An iteration begins when the one before it ended, unless the engine was idle, and ends when its
tokens are in the host's memory, as in the reference engine (``calibrate.engine.loop``). Seconds
since the start of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from calibrate.engine.arrivals import ArrivalSource
from calibrate.engine.log import Phases
from calibrate.engine.loop import Clock, RunLimits
from calibrate.observers.ledger import Ledger, LedgerRow
from sim.errors import InfersimError
from sim.request import Request

MOST_EMPTY_STEPS = 1000
"""Steps in a row without any token, after which the engine counts as stuck."""


class ObservedStep(NamedTuple):
    """The engine's work in one step, and when it had decided on it, laid out its tensors, and had
    the tokens in the host's memory."""

    ran: LedgerRow
    planned: float
    prepared: float
    sampled: float


class ObservedEngine(Protocol):
    """An engine that takes requests and runs one step when called; ``name`` is its own."""

    name: str

    def add(self, request: Request, prompt: list[int]) -> None:
        """``request`` arrives."""

    def busy(self) -> bool:
        """Whether any request is unfinished."""

    def step(self) -> ObservedStep | None:
        """Run one iteration; None if no request was computed in it."""


class EngineLoop:
    """One engine serving one source of requests.

    ``prompt`` makes the tokens of a request, ``refusal`` says why one can never be served.
    """

    def __init__(
        self,
        engine: ObservedEngine,
        source: ArrivalSource,
        clock: Clock,
        *,
        prompt: Callable[[Request], list[int]],
        refusal: Callable[[Request], str | None],
        limits: RunLimits,
    ) -> None:
        self.ledger = Ledger()
        self.interrupted = False
        self._engine = engine
        self._source = source
        self._clock = clock
        self._prompt = prompt
        self._refusal = refusal
        self._limits = limits
        self._empty = 0

    def run(self) -> float:
        """Serve until nothing is left, the horizon has passed, or a stop is requested; returns
        the time of the end."""
        now = self._clock.now()
        while not self._limits.reached(now):
            self._arrive(now)
            if self._engine.busy():
                now = self._iterate(now)
            elif self._source.next_at() < self._limits.horizon:
                self._clock.wait(self._source.next_at())
                now = self._clock.now()
            else:
                break
        self.interrupted = self._limits.stop.requested
        self.ledger.close()
        return now

    def _arrive(self, now: float) -> None:
        """Give the engine every request that is due."""
        while self._source.next_at() <= now:
            request = self._source.take()
            reason = self._refusal(request)
            if reason is None:
                self.ledger.arrive(request)
                self._engine.add(request, self._prompt(request))
            else:
                self.ledger.log.recorder.reject(request, reason)
                self._source.answered(now)

    def _iterate(self, start: float) -> float:
        """Run a step of the engine from ``start``, and return when its tokens were there."""
        step = self._engine.step()
        left = self._clock.now()
        if step is None:
            self._empty += 1
            if self._empty > MOST_EMPTY_STEPS:
                waiting = len(self.ledger.alive)
                raise InfersimError(
                    f"{self._engine.name} is stuck: {waiting} requests wait, nothing runs"
                )
            return left
        self._empty = 0
        end = step.sampled
        phases = Phases(
            schedule=step.planned - start,
            prepare=step.prepared - step.planned,
            forward=end - step.prepared,
            finish=left - end,
        )
        finished = self.ledger.write(step.ran, start, end, phases)
        for _ in finished:
            self._source.answered(end)
        if finished and self._limits.progress is not None:
            self._limits.progress(self._source.issued - len(self.ledger.alive), self._source.total)
        return end
