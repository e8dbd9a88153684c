"""Refuses requests that would not get their first token in time, before they wait for it.

What a gateway can know decides: the prompts that wait on the chosen replica, how fast it computes
prompts, and how long the first of its queue and the last to leave it have waited: those behind
should expect the longer of both (head of line and last to enter service, Ibrahim and Whitt, 2009).
Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import simpy

from sim.loop.engine import Engine
from sim.request import PLAIN, Refusal, Request


class DeadlineAdmission:
    """``deadline`` is that of requests without a class, of which a ``share`` may be expected to
    pass; ``per_token`` is what a token of a prompt takes on a replica, by its number, in an
    iteration full of them."""

    def __init__(
        self,
        env: simpy.Environment,
        deadline: float,
        share: float,
        per_token: Mapping[int, float],
    ) -> None:
        self._env, self._deadline, self._share = env, deadline, share
        self._per_token = per_token

    def refusal(self, request: Request, replica: Engine) -> str | None:
        """Why ``request`` is not sent to ``replica``; None if it is."""
        own = request.traffic_class
        deadline = self._deadline if own is PLAIN else own.deadline
        elapsed = self._env._now - request.arrival
        if elapsed + self.expected(request, replica) > self._share * deadline:
            return Refusal.LATE
        return None

    def expected(self, request: Request, replica: Engine) -> float:
        """Seconds from now to the first token of ``request`` on ``replica``."""
        per_token = self._per_token[replica.index]
        waiting = replica.queued_prompt_tokens * per_token
        first = next((r for r in replica.scheduler.waiting if not r.preemptions), None)
        waited = 0.0
        if first is not None:
            entered = [r.scheduled - r.queued for r in replica.scheduler.members()[-1:]]
            waited = max(self._env._now - first.queued, *entered, 0.0)
        return max(waiting, waited) + request.prompt_tokens * per_token
