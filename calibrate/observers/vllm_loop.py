"""Provides vLLM as an engine of ``engine_loop``: one step at a time, with what each step did."""

from __future__ import annotations

from collections.abc import Callable

from calibrate.observers.engine_loop import ObservedStep
from calibrate.observers.ledger import LedgerRow
from calibrate.observers.vllm_engine import Arriving, Driver
from calibrate.observers.vllm_watch import Turn, VllmWatch
from sim.memory.capacity import Capacity
from sim.request import Request


class VllmSteps:
    """A driver, and what its scheduler was seen to do."""

    name = "vLLM"

    def __init__(self, driver: Driver, now: Callable[[], float], capacity: Capacity) -> None:
        self._driver, self._capacity = driver, capacity
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
            reserved=(self._capacity.usable_blocks - turn.free_blocks) * self._capacity.block_size,
        )
