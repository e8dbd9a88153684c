"""Lets operators take replicas of a live fleet out and in again: scale, drain, fail.

The scenario's replicas are all there can be. One that is drained takes no new requests and serves
those it has; one that fails loses them and its memory, and their clients get status 503. Routers
see only those that take requests. Nothing takes time here: no start-up is simulated.

A pool that scales itself (``fleet.replicas: {min, max}``) is not scaled by others; one of its
replicas that fails is started anew, and ready after a cold start.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sim.loop.autoscaler import ScaledPool
from sim.loop.fleet import Engine
from sim.loop.pipeline import Pipeline
from sim.pools import PreparedPool
from sim.serve.protocol import ApiError
from sim.serve.service import Service


class ScaleRequest(BaseModel):
    """The body of ``POST /control/scale``: so many replicas of a pool, which may go unnamed where
    there is one."""

    model_config = ConfigDict(extra="forbid")

    replicas: Annotated[int, Field(ge=0, strict=True)]
    pool: str | None = None


class Control:
    """The replicas of a service, by their place in the fleet, from 0."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._fleet, self._clients, self._scaler = service.fleet, service.clients, service.scaler
        self._failed: set[int] = set()
        self._drained: set[int] = set()
        self._pools: list[tuple[PreparedPool, range]] = []
        for pool in service.setup.pools:
            first = self._pools[-1][1].stop if self._pools else 0
            self._pools.append((pool, range(first, first + pool.replicas)))

    def document(self) -> dict[str, Any]:
        """Each replica: whether it takes requests, and what it has to do."""
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
        if at in self._failed:
            return "failed"
        if at in self._drained:
            return "draining" if engine.outstanding else "drained"
        if self._fleet.takes(engine):
            return "active"
        if self._scaler is None:
            return "failed"  # as the scenario wants
        pool, place = self._scaled(at), at - self._pool_of(at)[1].start
        if any(each == place for _, each in pool.starting):
            return "starting"
        return "stopping" if place in pool.stopping else "stopped"

    def scale(self, wanted: int, name: str | None) -> None:
        """Let ``wanted`` replicas of the pool of that ``name`` take requests: those that do go on,
        from the first; those that failed are the last to come back. ApiError for more than there
        are, or a pool that is not known or scales itself."""
        pool, places = self._named(name)
        self._check_steered(pool)
        if wanted > len(places):
            raise ApiError(
                400,
                f"pool {pool.settings.name} has {len(places)} replicas (fleet.replicas)",
                param="replicas",
            )
        self._steer()
        order = sorted(places, key=lambda at: (at in self._failed, at))
        for at in order[:wanted]:
            self._revive(at)
        self._drain((self._drained - set(places)) | set(order[wanted:]))

    def drain(self, at: int) -> None:
        """The replica takes no more requests."""
        self._check_steered(self._pool_of(at)[0])
        self._steer()
        self._drain(self._drained | {at})

    def start(self, at: int) -> None:
        """The replica takes requests again. ApiError for one that failed as the scenario says."""
        self._check_steered(self._pool_of(at)[0])
        self._steer()
        if self._state(at, self._fleet.replicas[at]) == "failed" and at not in self._failed:
            raise ApiError(409, "replicas come back when the scenario says so (failures)")
        self._revive(at)
        self._drain(self._drained - {at})

    def fail(self, at: int) -> None:
        """The replica is gone, and what it had is lost."""
        pool, places = self._pool_of(at)
        if self._service.setup.scenario.failures is not None:
            raise ApiError(409, "replicas fail when the scenario says so (failures)")
        engine = self._fleet.replicas[at]
        if pool.settings.role != "both" or isinstance(engine, Pipeline):
            raise ApiError(
                409, "pools of one phase and pipelines do not fail; drain the replica instead"
            )
        if at in self._failed:
            return
        self._steer()
        if pool.settings.scales is None:
            self._failed.add(at)
            self._clients.fail(at)
        else:
            scaled, place = self._scaled(at), at - places.start
            if place not in scaled.ready and place not in scaled.stopping:
                raise ApiError(409, f"replica {at} is not running")
            assert self._scaler is not None
            self._clients.fail(at)
            self._scaler.lose(scaled, place, self._fleet.replicas[at])
            self._clients.revive(at)
        self._service.pace.wake()

    def _revive(self, at: int) -> None:
        if at in self._failed:
            self._failed.discard(at)
            self._clients.revive(at)

    def _steer(self) -> None:
        """What is due by now happens before the fleet is changed."""
        self._service.steered = True
        self._service.catch_up()

    def _drain(self, places: set[int]) -> None:
        self._drained = places
        self._fleet.without("drained", places)

    def _scaled(self, at: int) -> ScaledPool:
        assert self._scaler is not None
        return self._scaler.pools[self._pools.index(self._pool_of(at))]

    def _check_steered(self, pool: PreparedPool) -> None:
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
