"""Serves padded static batches with ``generate``, and records when each token was there.

The simulator's static scheduler decides who is in a batch; ``generate`` computes it to its longest
answer, and calls back after every token: there the iteration is recorded, the scheduler updated,
and arrivals are taken in. Prompts are padded in front, and the padding is masked. Seconds since the
start of the run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from calibrate.engine.arrivals import ArrivalSource, take_in
from calibrate.engine.log import Iteration, Log, Phases
from calibrate.engine.loop import Clock, RunLimits
from calibrate.lazy_torch import Tensor, torch
from calibrate.observers import lazy_transformers
from sim.errors import InfersimError
from sim.request import Request
from sim.schedulers import Plan, Scheduler

STATIC = "sdpa"
"""transformers' name of the attention over padded batches."""

PADDING = 0
"""The token that stands where there is none; prompts do not have it."""


class StaticBatches:
    """``model.generate`` serving one source of requests, batch after batch."""

    def __init__(
        self,
        scheduler: Scheduler,
        model: Any,
        source: ArrivalSource,
        clock: Clock,
        *,
        prompt: Callable[[Request], list[int]],
        sampling: str,
        limits: RunLimits,
    ) -> None:
        self.log = Log()
        self.answers: dict[int, list[int]] = {}
        self.interrupted = False
        self._said: dict[int, list[int]] = defaultdict(list)
        self._scheduler, self._model, self._source = scheduler, model, source
        self._clock, self._prompt, self._sampling = clock, prompt, sampling
        self._limits = limits
        self._outstanding = 0
        self._batch: list[Request] = []
        self._plan: Plan | None = None
        self._start = self._planned = 0.0

    def warm_up(self) -> None:
        """A small batch that is not counted."""
        self._generate(torch.zeros((2, 8), dtype=torch.long), torch.ones((2, 8)), 2, [])

    def run(self) -> float:
        """Serve until nothing is left, the horizon has passed, or a stop is requested; returns
        the time of the end."""
        self._decide(self._clock.now())
        while not self._over():
            if self._plan is not None:
                self._serve(self._plan)
            elif not self._wait():
                break
        self.interrupted = self._limits.stop.requested
        self.log.close(self._scheduler)
        return self._start

    def _over(self) -> bool:
        return self._limits.reached(self._start)

    def _decide(self, now: float) -> None:
        """Take in the requests that are due, and ask the scheduler what to do next."""
        scheduler = self._scheduler
        self._outstanding += take_in(self._source, scheduler, self.log.recorder, now)
        self._plan, self._start = scheduler.schedule(now), now
        self._planned = self._clock.now()

    def _wait(self) -> bool:
        """Wait for an event after which something can run; False if nothing is left to do."""
        until = self._source.next_at()
        if until < math.inf:
            self._clock.wait(min(until, self._limits.horizon))
        elif not self._outstanding:
            return False
        else:
            left = self._outstanding
            self._scheduler.flush()  # clients wait for answers, and the batch for clients
            self._decide(self._clock.now())
            if self._plan is None:
                raise InfersimError(f"the scheduler is stuck: {left} requests wait, nothing runs")
            return True
        self._decide(self._clock.now())
        return True

    def _serve(self, plan: Plan) -> None:
        """The batch that ``plan`` prefills, to its end or until a stop is requested."""
        self._batch = [chunk.request for chunk in plan.chunks]
        width = plan.chunks[0].tokens
        tokens = torch.full((len(self._batch), width), PADDING, dtype=torch.long)
        for row, request in enumerate(self._batch):
            tokens[row, width - request.prompt_tokens :] = torch.tensor(self._prompt(request))
        longest = max(request.output_tokens for request in self._batch)
        self._generate(tokens, (tokens != PADDING).long(), longest, [self._delivered])

    def _generate(self, tokens: Tensor, mask: Tensor, longest: int, watching: list[Any]) -> None:
        """Let the model answer with ``longest`` tokens, or fewer where a watcher says so."""
        library = lazy_transformers.module("transformers")
        self._model.generate(
            tokens.to(self._model.device),
            attention_mask=mask.to(self._model.device),
            generation_config=library.GenerationConfig(
                do_sample=self._sampling == "random",
                top_k=0,
                max_new_tokens=longest,
                pad_token_id=PADDING,
            ),
            stopping_criteria=library.StoppingCriteriaList(watching),
        )

    def _delivered(self, tokens: Tensor, scores: Any, **others: Any) -> Tensor:
        """Called after every token of the batch; says to each row whether it is done."""
        plan, start, scheduler = self._plan, self._start, self._scheduler
        assert plan is not None
        sampled = tokens[:, -1].tolist()
        end = self._clock.now()
        waiting = len(scheduler.waiting)
        served = tuple(
            request.id
            for request in self._batch
            if len(self._said[request.id]) < request.output_tokens
        )
        for request, token in zip(self._batch, sampled, strict=True):
            if request.id in served:
                self._said[request.id].append(token)
        row = self.log.begin(plan, scheduler, start, end)
        finished = scheduler.complete(plan, 1, end)
        self.log.end(plan, row, waiting, len(finished))
        for request in finished:
            self._finish(request, end)
        planned = self._planned
        over = self._next(end)
        self._write(plan, served, (start, planned, end, self._clock.now()))
        return torch.full((len(tokens),), over, dtype=torch.bool, device=tokens.device)

    def _next(self, now: float) -> bool:
        """Decide what comes after this iteration; whether the batch ends here."""
        self._decide(now)
        return self._over() or self._plan is None or bool(self._plan.chunks)

    def _finish(self, request: Request, end: float) -> None:
        self.answers[request.id] = self._said[request.id]
        self._outstanding -= 1
        self.log.recorder.close(request, 0, request.generated, end)
        self._source.answered(end)
        if self._limits.progress is not None:
            self._limits.progress(self._source.issued - self._outstanding, self._source.total)

    def _write(
        self, plan: Plan, served: tuple[int, ...], times: tuple[float, float, float, float]
    ) -> None:
        """Record the iteration."""
        start, planned, end, left = times
        self.log.iterations.append(
            Iteration(
                start=start,
                end=end,
                phases=Phases(planned - start, 0.0, end - planned, left - end),
                decodes=() if plan.chunks else served,
                prefills=tuple((chunk.request.id, 0, chunk.tokens) for chunk in plan.chunks),
                padded=plan.sequences - plan.decode,
                served=served,
                preempted=(),
            )
        )
