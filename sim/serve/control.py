"""Lets operators take replicas of a live fleet out and in again: scale, drain, fail.

The scenario's replicas are all there can be. One that is drained takes no new requests and serves
those it has; one that fails gives them up, and their clients get status 503. Routers see only those
that take requests. Nothing takes time here: no start-up is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from sim.loop.fleet import Engine
from sim.loop.lockstep import LockStep
from sim.request import Request
from sim.serve.protocol import ApiError
from sim.serve.service import Service


class ScaleRequest(BaseModel):
    """The body of ``POST /control/scale``."""

    replicas: Annotated[int, Field(ge=0)]


class Control:
    """The replicas of a service, by their place in the fleet, from 0."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._fleet = service.fleet
        self._failed: set[int] = set()

    def document(self) -> dict[str, Any]:
        """Each replica: whether it takes requests, and what it has to do."""
        return {"replicas": [self._shown(at) for at in range(len(self._fleet.engines))]}

    def _shown(self, at: int) -> dict[str, Any]:
        engine = self._fleet.engines[at]
        taking = engine in self._fleet.replicas
        state = "active" if taking else "failed" if at in self._failed else "drained"
        if state == "drained" and engine.outstanding:
            state = "draining"
        return {
            "replica": at,
            "engine": engine.index,
            "state": state,
            "outstanding": engine.outstanding,
            "waiting": engine.queued,
            "kv_used": engine.kv_used,
        }

    def scale(self, wanted: int) -> None:
        """Let ``wanted`` replicas take requests: those that do go on, from the first; those that
        failed are the last to come back. ApiError for more than there are."""
        engines = self._fleet.engines
        if wanted > len(engines):
            raise ApiError(
                400, f"the scenario has {len(engines)} replicas (fleet.replicas)", param="replicas"
            )
        order = sorted(range(len(engines)), key=lambda at: (at in self._failed, at))
        self._take(order[:wanted])
        self._failed -= set(order[:wanted])

    def drain(self, at: int) -> None:
        """The replica takes no more requests."""
        self._engine(at)
        self._take([other for other in self._active() if other != at])

    def start(self, at: int) -> None:
        """The replica takes requests again."""
        self._engine(at)
        self._failed.discard(at)
        self._take(sorted({*self._active(), at}))

    def fail(self, at: int) -> None:
        """The replica is gone, and what it had is lost."""
        engine = self._engine(at)
        self.drain(at)
        self._failed.add(at)
        self._service.fail([request.id for request in _held(engine)], f"replica {at} failed")

    def _active(self) -> list[int]:
        engines, taking = self._fleet.engines, self._fleet.replicas
        return [at for at, engine in enumerate(engines) if engine in taking]

    def _take(self, places: Sequence[int]) -> None:
        self._service.steered = True
        self._fleet.replicas = [self._fleet.engines[at] for at in places]

    def _engine(self, at: int) -> Engine:
        if not 0 <= at < len(self._fleet.engines):
            raise ApiError(404, f"there is no replica {at}: 0 to {len(self._fleet.engines) - 1}")
        return self._fleet.engines[at]


def _held(engine: Engine) -> list[Request]:
    """The unfinished requests of ``engine``."""
    schedulers = [engine.scheduler]
    if isinstance(engine, LockStep):
        schedulers = [rank.scheduler for rank in engine.ranks]
    return [r for s in schedulers for r in (*s.waiting, *s.coming, *s.members())]
