"""vLLM against the wall clock: arrivals, a step of the engine, what came of it, again.

An iteration begins when the one before it ended, unless the engine was idle, and ends when its
tokens are in the host's memory, as in the reference engine (``calibrate.engine.loop``). Seconds
since the start of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from calibrate.engine.arrivals import Source
from calibrate.engine.log import Phases
from calibrate.engine.loop import Clock, Progress
from calibrate.observers.ledger import Ledger, Ran
from calibrate.observers.vllm_engine import Driver
from calibrate.observers.vllm_watch import Turn, Watch
from sim.clock import Stop
from sim.errors import InfersimError
from sim.request import Request

MOST_EMPTY_STEPS = 1000
"""Steps in a row without a token for anybody, after which the engine is called stuck."""


class VllmLoop:
    """One vLLM engine serving one source of requests.

    ``prompt`` makes the tokens of a request, ``refusal`` says why one can never be served;
    ``usable_blocks`` of ``block_size`` tokens are what requests can have.
    """

    def __init__(
        self,
        driver: Driver,
        source: Source,
        clock: Clock,
        *,
        prompt: Callable[[Request], list[int]],
        refusal: Callable[[Request], str | None],
        usable_blocks: int,
        block_size: int,
        stop: Stop | None = None,
        horizon: float = math.inf,
        progress: Progress | None = None,
    ) -> None:
        self.ledger = Ledger()
        self.interrupted = False
        self._driver = driver
        self._source = source
        self._clock = clock
        self._prompt = prompt
        self._refusal = refusal
        self._usable_blocks = usable_blocks
        self._block_size = block_size
        self._stop = stop or Stop()
        self._horizon = horizon
        self._progress = progress
        self._watch = Watch(driver.scheduler, clock.now)
        self._empty = 0

    def run(self) -> float:
        """Serve until nothing is left, the horizon has passed, or somebody wishes to stop; the
        time at which that was."""
        clock = self._clock
        now = clock.now()
        while now < self._horizon and not self._stop.requested:
            self._arrive(now)
            if self._driver.busy():
                now = self._iterate(now)
            elif self._source.next_at() < self._horizon:
                clock.wait(self._source.next_at())
                now = clock.now()
            else:
                break
        self.interrupted = self._stop.requested
        self.ledger.close()
        return now

    def _arrive(self, now: float) -> None:
        """Give the engine every request that is due."""
        source, ledger = self._source, self.ledger
        while source.next_at() <= now:
            request = source.take()
            reason = self._refusal(request)
            if reason is not None:
                ledger.log.recorder.reject(request, reason)
                source.answered(now)
                continue
            ledger.arrive(request)
            prompt, kind = self._prompt(request), request.traffic_class
            self._driver.add(request.id, prompt, request.output_tokens, kind.priority)

    def _iterate(self, start: float) -> float:
        """Let the engine go on from ``start``, and return when its tokens were there."""
        self._driver.step()
        delivered = self._clock.now()
        turn = self._watch.take()
        if turn is None:
            self._empty += 1
            if self._empty > MOST_EMPTY_STEPS:
                left = len(self.ledger.alive)
                raise InfersimError(f"vLLM is stuck: {left} requests wait, nothing runs")
            return delivered
        self._empty = 0
        phases = Phases(
            schedule=turn.planned - start,
            prepare=0.0,
            forward=turn.sampled - turn.planned,
            finish=delivered - turn.sampled,
        )
        finished = self.ledger.write(self._ran(turn), start, turn.sampled, phases)
        for _ in finished:
            self._source.answered(turn.sampled)
        if finished and self._progress is not None:
            self._progress(self._source.issued - len(self.ledger.alive), self._source.total)
        return turn.sampled

    def _ran(self, turn: Turn) -> Ran:
        """``turn`` with our numbers."""
        number = self._driver.numbers
        return Ran(
            tokens={number[name]: tokens for name, tokens in turn.scheduled.items()},
            before={number[name]: tokens for name, tokens in turn.before.items()},
            sampled={number[name]: tokens for name, tokens in turn.tokens.items()},
            preempted=tuple(number[name] for name in turn.preempted),
            running=turn.running,
            waiting=turn.waiting,
            reserved=(self._usable_blocks - turn.free_blocks) * self._block_size,
        )
