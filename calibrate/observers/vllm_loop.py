"""Runs vLLM step by step as an engine (``engine_loop``), and reports what each step did."""

from __future__ import annotations

import math
from collections.abc import Callable

from calibrate.engine.arrivals import ArrivalSource
from calibrate.engine.loop import Clock, Progress
from calibrate.observers.engine_loop import EngineLoop, ObservedStep
from calibrate.observers.ledger import LedgerRow
from calibrate.observers.vllm_engine import Arriving, Driver
from calibrate.observers.vllm_watch import Turn, VllmWatch
from sim.loop.clock import Stop
from sim.request import Request


class VllmLoop(EngineLoop):
    """One vLLM engine serving one source of requests.

    ``prompt`` makes the tokens of a request, ``refusal`` says why one can never be served;
    ``usable_blocks`` of ``block_size`` tokens are what requests can have.
    """

    def __init__(
        self,
        driver: Driver,
        source: ArrivalSource,
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
        super().__init__(
            _Steps(driver, clock.now, usable_blocks, block_size),
            source,
            clock,
            prompt=prompt,
            refusal=refusal,
            stop=stop,
            horizon=horizon,
            progress=progress,
        )


class _Steps:
    """A driver, and what its scheduler was seen to do."""

    name = "vLLM"

    def __init__(
        self, driver: Driver, now: Callable[[], float], usable_blocks: int, block_size: int
    ) -> None:
        self._driver = driver
        self._usable_blocks, self._block_size = usable_blocks, block_size
        self._watch = VllmWatch(driver.scheduler, now)

    def add(self, request: Request, prompt: list[int]) -> None:
        """``request`` arrives."""
        priority = request.traffic_class.priority
        self._driver.add(Arriving(request.id, prompt, request.output_tokens, priority))

    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return self._driver.busy()

    def step(self) -> ObservedStep | None:
        """One iteration; its inputs are prepared within the forward pass."""
        self._driver.step()
        turn = self._watch.take()
        if turn is None:
            return None
        return ObservedStep(self._ran(turn), turn.planned, turn.planned, turn.sampled)

    def _ran(self, turn: Turn) -> LedgerRow:
        """``turn`` with our numbers."""
        number = self._driver.numbers
        return LedgerRow(
            tokens={number[name]: tokens for name, tokens in turn.scheduled.items()},
            before={number[name]: tokens for name, tokens in turn.before.items()},
            sampled={number[name]: tokens for name, tokens in turn.tokens.items()},
            preempted=tuple(number[name] for name in turn.preempted),
            running=turn.running,
            waiting=turn.waiting,
            reserved=(self._usable_blocks - turn.free_blocks) * self._block_size,
        )
