"""An engine that looks like vLLM's from outside and is this project's scheduler inside.

It has what ``calibrate.observers`` touches of vLLM, and nothing else, so that everything around the
real engine can be tested where that is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from calibrate.observers.vllm_engine import Arriving, Driver, VllmSettings
from sim.request import Request, TrafficClass
from sim.schedulers import Plan, Scheduler
from tests.conformance.replay import make_scheduler, tokens_of
from tests.conformance.vllm_alone import AloneSettings


class FakeScheduler:
    """vLLM's scheduler, as far as anybody looks."""

    def __init__(self, ours: Scheduler, usable_blocks: int, block_size: int) -> None:
        self.ours = ours
        self.requests: dict[str, Any] = {}
        self._blocks = usable_blocks, block_size
        pool = SimpleNamespace(get_num_free_blocks=self._free_blocks)
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)
        self._plan: Plan | None = None

    def _free_blocks(self) -> int:
        blocks, size = self._blocks
        return blocks - self.ours.kv.reserved // size

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.ours.members()), len(self.ours.waiting)

    def has_unfinished_requests(self) -> bool:
        return bool(self.ours.members() or self.ours.waiting)

    def add_request(self, request: Request, name: str) -> None:
        self.requests[name] = SimpleNamespace(
            request_id=name, num_computed_tokens=0, ours=request, lost=0
        )
        self.ours.submit(request)

    def _preempt_request(self, request: Any, timestamp: float) -> None:
        request.num_computed_tokens = 0
        request.lost += 1

    def schedule(self, throttle: bool = False) -> Any:
        plan = self._plan = self.ours.schedule(0.0)
        for request in list(self.requests.values()):
            if request.ours.preemptions > request.lost:
                self._preempt_request(request, 0.0)
        tokens = {} if plan is None else tokens_of(plan, self.ours)
        names = {request.ours.id: name for name, request in self.requests.items()}
        scheduled = {names[number]: count for number, count in tokens.items()}
        for name, count in scheduled.items():
            self.requests[name].num_computed_tokens += count
        return SimpleNamespace(num_scheduled_tokens=scheduled)

    def update_from_output(self, output: Any) -> dict[int, Any]:
        if self._plan is None:
            return {}
        finished = {request.id for request in self.ours.complete(self._plan, 1, 0.0)}
        told = []
        for name in output.num_scheduled_tokens:
            request = self.requests[name]
            done = request.ours.id in finished
            if done or request.ours.joined >= 0:
                reason = "length" if done else None
                told.append(
                    SimpleNamespace(request_id=name, new_token_ids=[7], finish_reason=reason)
                )
            if done:
                del self.requests[name]
        return {0: SimpleNamespace(outputs=told)}


class FakeEngine(Driver):
    """In the place of ``WholeEngine``; ``closed`` says whether it was given back."""

    def __init__(self, settings: VllmSettings, own_blocks: int = 40) -> None:
        super().__init__()
        self.num_gpu_blocks = settings.num_gpu_blocks or own_blocks
        self.max_model_len = settings.max_model_len
        alone = AloneSettings(**asdict(settings))
        self.scheduler = FakeScheduler(
            make_scheduler(alone, "0.33"), self.num_gpu_blocks - 1, settings.block_size
        )
        self.prompts: dict[int, Sequence[int]] = {}
        self.closed = False
        self.tick: Callable[[], None] = lambda: None

    def add(self, request: Arriving) -> None:
        number, length = request.number, len(request.prompt)
        self.prompts[number] = request.prompt
        name = f"{number}-x"
        self.numbers[name] = number
        kind = TrafficClass(0, "", request.priority, 0.0)
        self.scheduler.add_request(Request(number, 0.0, length, request.output, kind), name)

    def step(self) -> None:
        output = self.scheduler.schedule(False)
        self.tick()
        self.scheduler.update_from_output(output)

    def attention(self) -> str:
        return "none at all"

    def close(self) -> None:
        self.closed = True
