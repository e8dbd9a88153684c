"""Lets operators take replicas of a live fleet out and in again: scale, drain, fail, start.

The scenario's replicas are all there can be. What becomes of them is played by `sim.loop.steering`,
and recorded, so that the run of the recorded scenario has it too. Routers see only replicas that
take requests.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sim.loop.autoscaler import ScaledPool
from sim.loop.engine import Engine
from sim.pools import PreparedPool
from sim.scenario.checks.clients import unsteered
from sim.scenario.checks.table import unfailing
from sim.serve.protocol import ApiError
from sim.serve.service import Service


class ScaleRequest(BaseModel):
    """The body of ``POST /control/scale``: that many replicas of a pool, which may go unnamed where
    there is one."""

    model_config = ConfigDict(extra="forbid")

    replicas: Annotated[int, Field(ge=0, strict=True)]
    pool: str | None = None


class Control:
    """The replicas of a service, by their place in the fleet, from 0."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._fleet, self._scaler, self._steerer = service.fleet, service.scaler, service.steerer
        self._pools: list[tuple[PreparedPool, range]] = []
        for pool in service.setup.pools:
            first = self._pools[-1][1].stop if self._pools else 0
            self._pools.append((pool, range(first, first + pool.replicas)))

    def document(self) -> dict[str, Any]:
        """The state of each replica: whether it takes requests, and its load."""
        return {"replicas": [self._shown(at) for at in range(len(self._fleet.replicas))]}

    def _shown(self, at: int) -> dict[str, Any]:
        engine = self._fleet.replicas[at]
        return {
            "replica": at,
            "engine": engine.index,
            "pool": self._pool_of(at)[0].settings.name,
            "role": self._pool_of(at)[0].settings.role,
            "state": self._state(at, engine),
            "outstanding": engine.outstanding,
            "waiting": engine.queued,
            "kv_used": engine.kv_used,
        }

    def _state(self, at: int, engine: Engine) -> str:
        steerer = self._steerer
        if at in steerer.drained - steerer.starting:
            return "draining" if engine.outstanding else "drained"
        if self._fleet.takes(engine):
            return "active"
        if self._pool_of(at)[0].settings.scales is None:  # else it failed, perhaps by the scenario
            return "starting" if at in steerer.starting else "failed"
        pool = self._scaled(at)
        if any(place == at for _, place in pool.starting):
            return "starting"
        return "stopping" if at in pool.stopping else "stopped"

    def scale(self, wanted: int, name: str | None) -> None:
        """Let ``wanted`` replicas of the pool of that ``name`` take requests: those that do, and
        those that start, go on, from the first; then come those that still serve some, those that
        are drained, and those that failed. ApiError for more than there are, or a pool that is not
        known or scales itself."""
        pool, places = self._named(name)
        self._check_steered(pool)
        if wanted > len(places):
            raise ApiError(
                400,
                f"pool {pool.settings.name} has {len(places)} replicas (fleet.replicas)",
                param="replicas",
            )
        first = ("active", "starting", "draining", "drained", "failed")
        states = {at: self._state(at, self._fleet.replicas[at]) for at in places}
        order = sorted(places, key=lambda at: (first.index(states[at]), at))
        starts = [at for at in order[:wanted] if states[at] not in ("active", "starting")]
        drains = [at for at in order[wanted:] if states[at] in ("active", "starting")]
        self._service.steer(
            *(("start", at) for at in sorted(starts)), *(("drain", at) for at in sorted(drains))
        )

    def drain(self, at: int) -> None:
        """The replica takes no more requests."""
        self._check_steered(self._pool_of(at)[0])
        self._service.steer(("drain", at))

    def start(self, at: int) -> None:
        """The replica takes requests again, perhaps after a cold start. ApiError for one that
        failed as the scenario says."""
        self._check_steered(self._pool_of(at)[0])
        state = self._state(at, self._fleet.replicas[at])
        if state == "failed" and at not in self._steerer.failed:
            raise ApiError(409, "replicas come back when the scenario says so (failures)")
        self._service.steer(("start", at))

    def fail(self, at: int) -> None:
        """The replica is gone, and what it had is lost."""
        pool, _ = self._pool_of(at)
        self._check_router()
        if self._service.setup.scenario.failures is not None:
            raise ApiError(409, "replicas fail when the scenario says so (failures)")
        if (why := unfailing(self._service.setup.scenario, pool.settings)) is not None:
            raise ApiError(409, f"{why}; drain the replica instead")
        if pool.settings.scales is not None:
            assert self._scaler is not None
            if not self._scaler.serves(at):
                raise ApiError(409, f"replica {at} is not running")
        self._service.steer(("fail", at))

    def _scaled(self, at: int) -> ScaledPool:
        assert self._scaler is not None
        return self._scaler.pools[self._pools.index(self._pool_of(at))]

    def _check_router(self) -> None:
        router = self._service.setup.scenario.router
        if (why := unsteered(router, len(self._fleet.replicas))) is not None:
            raise ApiError(409, why)

    def _check_steered(self, pool: PreparedPool) -> None:
        self._check_router()
        if pool.settings.scales is not None:
            raise ApiError(
                409,
                f"pool {pool.settings.name} scales itself (fleet.replicas); give it a number of "
                "replicas to scale it here",
            )

    def _named(self, name: str | None) -> tuple[PreparedPool, range]:
        names = [pool.settings.name for pool, _ in self._pools]
        if name is None and len(names) == 1:
            (name,) = names
        if name not in names:
            told = "pool: which one?" if name is None else f"there is no pool {name}:"
            raise ApiError(400 if name is None else 404, f"{told} {', '.join(names)}", param="pool")
        return self._pools[names.index(name)]

    def _pool_of(self, at: int) -> tuple[PreparedPool, range]:
        for found in self._pools:
            if at in found[1]:
                return found
        raise ApiError(404, f"there is no replica {at}: 0 to {len(self._fleet.replicas) - 1}")
