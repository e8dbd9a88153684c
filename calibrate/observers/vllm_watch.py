"""Records what vLLM's scheduler does in one step, and when.

``VllmWatch`` stands between the engine and its scheduler and writes down what passes. It changes
nothing and decides nothing. Times are those of the clock it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Turn:
    """One step of the engine, requests by the names that the scheduler has for them.

    ``scheduled`` are the tokens that each request got computed, in the scheduler's order,
    ``before`` those it had then; ``running``, ``waiting`` and ``free_blocks`` are as the decision
    left them; ``planned`` is when it was made, ``sampled`` when its tokens were in the host's
    memory; ``tokens`` are those tokens, ``finished`` the requests that got their last one.
    """

    preempted: list[str] = field(default_factory=list)
    scheduled: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    running: int = 0
    waiting: int = 0
    free_blocks: int = 0
    planned: float = 0.0
    sampled: float = 0.0
    tokens: dict[str, list[int]] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)


class VllmWatch:
    """Watches ``scheduler``, a ``vllm.v1.core.sched.scheduler.Scheduler``, from now on."""

    def __init__(self, scheduler: Any, now: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._now = now
        self._turn = Turn()  # that is scheduled next
        self._in_flight: deque[Turn] = deque()
        self._done: Turn | None = None
        self._schedule = scheduler.schedule
        self._update = scheduler.update_from_output
        self._preempt = scheduler._preempt_request
        scheduler.schedule = self._on_schedule
        scheduler.update_from_output = self._on_update
        scheduler._preempt_request = self._on_preempt

    def take(self) -> Turn | None:
        """The step that ended since the last call; None if there was none. Requests preempted in a
        step without any tokens count towards the next one."""
        done, self._done = self._done, None
        return done

    def _on_preempt(self, request: Any, *args: Any, **named: Any) -> Any:
        self._turn.preempted.append(request.request_id)
        return self._preempt(request, *args, **named)

    def _on_schedule(self, *args: Any, **named: Any) -> Any:
        output = self._schedule(*args, **named)
        scheduler, turn = self._scheduler, self._turn
        requests = scheduler.requests
        turn.scheduled = dict(output.num_scheduled_tokens)
        turn.before = {
            name: requests[name].num_computed_tokens - tokens
            for name, tokens in turn.scheduled.items()
        }
        turn.running, turn.waiting = scheduler.get_request_counts()
        turn.free_blocks = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        turn.planned = self._now()
        if turn.scheduled:
            self._in_flight.append(turn)
            self._turn = Turn()
        return output

    def _on_update(self, *args: Any, **named: Any) -> Any:
        if not args[0].num_scheduled_tokens:
            return self._update(*args, **named)
        turn = self._done = self._in_flight.popleft()
        turn.sampled = self._now()
        outputs = self._update(*args, **named)
        for batch in outputs.values():
            for output in batch.outputs:
                turn.tokens[output.request_id] = list(output.new_token_ids)
                if output.finish_reason is not None:
                    turn.finished.append(output.request_id)
        return outputs
