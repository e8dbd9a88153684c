"""Splits a run by pool, and combines what was computed of each pool into that of the run.

A metric that depends on a pool's deployment, memory or limits is computed of ``PoolRun``, and put
together here: amounts are added, shares are means by weight, what describes a pool is the value
that all of them have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import PlanRows
from sim.metrics.record.attribution import Attribution, Work, attribute
from sim.metrics.record.blocks import durations
from sim.metrics.record.draws import Draws
from sim.metrics.record.recorded import Recorded
from sim.pools import PreparedPool
from sim.specs.deployment import Deployment
from sim.specs.precision import narrow_formats

Value = TypeVar("Value")
Trail = tuple[NDArray[np.void], NDArray[np.void]]


@dataclass(frozen=True)
class PoolRun:
    """One pool's share of a run: its ``plans``, its rows of ``requests`` (of a pool that prefills,
    those that it handed over) and their places among all, and its part of the trail, whose rows
    name plans and requests by their place here.

    ``duration`` is that of the run (s). A pool that is ``alone`` has every request: rejected ones
    too, and those of an observed run whose replica is not known.
    """

    pool: PreparedPool
    plans: PlanRows
    requests: NDArray[np.void]
    places: slice | NDArray[np.int64]
    trail: Trail | None
    duration: float
    alone: bool
    moves: NDArray[np.void] | None = None
    held: float | None = None
    """Seconds for which its replicas were held, together, where they are started and stopped."""

    @property
    def span(self) -> float:
        """Seconds of the run, of all its replicas together; of their data ranks, or of the batches
        that they have in flight."""
        if self.held is not None:
            return self.held * self.pool.deployment.layout.batches
        return self.duration * self.pool.ranks

    @property
    def ranks(self) -> float:
        """The data ranks of the pool; of a scaled one, how many were held on average."""
        if self.held is None or not self.duration:
            return self.pool.ranks
        return self.span / self.duration

    @property
    def caches(self) -> float:
        """KV caches of the pool; of one that is scaled, how many were held on average."""
        if self.held is None or not self.duration:
            return self.pool.caches
        return self.held * self.pool.deployment.layout.data / self.duration

    def cost(self, price: float) -> float:
        """Dollars for its GPUs, at this ``price`` of an hour of one."""
        if self.held is not None:
            return price * self.held * self.pool.deployment.layout.gpus / 3600
        return price * self.pool.gpus * self.duration / 3600

    def serves(self, requests: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which of ``requests`` were on its replicas."""
        if self.alone:
            return np.ones(len(requests), dtype=bool)
        return np.isin(requests["id"], self.requests["id"])

    @property
    def durations(self) -> NDArray[np.float64]:
        """Seconds that each plan took."""
        return durations(self.plans)

    @cached_property
    def found(self) -> NDArray[np.int64]:
        """Tokens of each prompt that were in the prefix cache when it was first admitted."""
        found = np.zeros(len(self.requests), dtype=np.int64)
        if self.pool.settings.kv_cache.enable_prefix_caching and self.trail is not None:
            chunks = self.trail[0]
            place, first = np.unique(chunks["request"], return_index=True)
            found[place] = chunks["context"][first]
        return found

    @property
    def attribution(self) -> Attribution:
        """Where the busy time went."""
        return self._taken_apart[0]

    @property
    def draws(self) -> Draws:
        """A GPU's power in each plan."""
        return self._taken_apart[1]

    @cached_property
    def _taken_apart(self) -> tuple[Attribution, Draws]:
        draws = Draws(self.pool.cost, len(self.plans))
        return attribute(self.pool.cost, self.plans, draws.add), draws


def split(run: Recorded) -> tuple[PoolRun, ...]:
    """The part of each pool: the rows with the numbers of its replicas, all for the only pool."""
    if len(run.pools) == 1:
        (pool,) = run.pools
        whole = slice(None)
        own = run.plans, run.requests, whole, run.trail, run.duration
        held = _held(run, pool)
        return (PoolRun(pool, *own, alone=True, moves=run.moves, held=held),)
    return tuple(_part(run, pool) for pool in run.pools)


def _part(run: Recorded, pool: PreparedPool) -> PoolRun:
    numbers = pool.settings.numbers
    plans, requests = (
        np.flatnonzero((rows["replica"] >= numbers.start) & (rows["replica"] < numbers.stop))
        for rows in (run.plans, run.requests)
    )
    own = run.requests[requests]
    if pool.settings.role == "prefill" and run.handed is not None:
        source = run.handed["source"]
        handed = run.handed[(source >= numbers.start) & (source < numbers.stop)]
        handed = handed[np.argsort(handed["request"], kind="stable")]
        requests = np.searchsorted(run.requests["id"], handed["request"])
        own = run.requests[requests]
        own["replica"] = handed["source"]  # of all requests it is the one that decoded them
    trail = None
    if run.trail is not None:
        chunks, absences = run.trail
        trail = (
            _placed(_placed(chunks, "plan", plans), "request", requests),
            _placed(absences, "request", requests),
        )
    moves = None
    if run.moves is not None:
        at = run.moves["replica"]
        moves = run.moves[(at >= numbers.start) & (at < numbers.stop)]
    return PoolRun(
        pool,
        run.plans[plans],
        own,
        requests,
        trail,
        run.duration,
        alone=False,
        moves=moves,
        held=_held(run, pool),
    )


def _held(run: Recorded, pool: PreparedPool) -> float | None:
    """Seconds for which replicas of ``pool`` were held while the run lasted; None where their
    number is fixed, and operators gave none back."""
    if run.held is None or not len(run.requests):
        return None
    mine = run.held[np.isin(run.held["replica"], pool.settings.numbers)]
    if pool.settings.scales is None and not len(mine):
        return None
    first = float(run.requests["arrival"].min())
    since, until = (np.clip(mine[key], first, first + run.duration) for key in ("since", "until"))
    return float((until - since).sum())


def _placed(rows: NDArray[np.void], name: str, kept: NDArray[np.int64]) -> NDArray[np.void]:
    """The ``rows`` whose ``name`` is one of ``kept`` (ascending), with its place there instead."""
    found = rows[np.isin(rows[name], kept)].copy()
    found[name] = np.searchsorted(kept, found[name])
    return found


def common(values: Iterable[Value]) -> Value | None:
    """The value that all pools have; None where they differ.

    >>> common(["h100-sxm", "h100-sxm"]), common([16, 32])
    ('h100-sxm', None)
    """
    first, *others = values
    return first if all(other == first for other in others) else None


def combined(parts: Sequence[Mapping[str, Value]]) -> dict[str, Value | None]:
    """The values that mappings with the same keys share; None where they differ."""
    return {key: common(part[key] for part in parts) for key in parts[0]}


def names(values: Iterable[str]) -> str:
    """The different names that pools have, each once.

    >>> names(["h100-sxm", "l40s", "h100-sxm"])
    'h100-sxm, l40s'
    """
    return ", ".join(dict.fromkeys(values))


def formats_of(deployments: Sequence[Deployment]) -> str:
    """The formats of fewer than 16 bits in storage or arithmetic; empty if there are none."""
    found = [
        narrow_formats(
            {
                "weights": d.weights,
                "experts": d.formats["experts"] if d.model.has_experts else d.weights,
                "activations": d.activations,
                "kv_cache": d.kv_cache,
            }
        )
        for d in deployments
    ]
    return names(narrow for narrow in found if narrow)


def mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The mean of one value a pool; the only one is exactly that of the run.

    >>> mean([0.1], [3]), mean([1, 4], [2, 1])
    (0.1, 2.0)
    """
    whole = sum(weights)
    if not whole:
        return 0.0
    return sum(value * (weight / whole) for value, weight in zip(values, weights, strict=True))


def total(parts: Sequence[Attribution]) -> Attribution:
    """The attributions of all pools, added up."""
    work: dict[str, Work] = {}
    for part in parts:
        for name, done in part.work.items():
            into = work.setdefault(name, Work())
            for each in fields(Work):
                setattr(into, each.name, getattr(into, each.name) + getattr(done, each.name))
    return Attribution(
        by_operator=_added(part.by_operator for part in parts),
        by_bound=_added(part.by_bound for part in parts),
        flops=sum(part.flops for part in parts),
        bytes=sum(part.bytes for part in parts),
        errors=_added(part.errors for part in parts),
        measured=sum(part.measured for part in parts),
        work=work,
    )


def _added(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    """The sum of each entry, in the order in which they first come."""
    found: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0.0) + amount
    return found
