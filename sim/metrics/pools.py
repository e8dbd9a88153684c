"""Splits a run by pool, and combines what was computed of each pool into that of the run.

A metric that depends on a pool's deployment, memory or limits is computed of ``PoolRun``, and put
together here: amounts are added, shares are means by weight, what describes a pool is the value
that all of them have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.metrics.attribution import Attribution, Work, attribute

if TYPE_CHECKING:
    from sim.metrics.run_record import RunRecord
    from sim.pools import PreparedPool

Value = TypeVar("Value")
Trail = tuple[NDArray[np.void], NDArray[np.void]]


@dataclass(frozen=True)
class PoolRun:
    """What one pool did in a run: its ``plans``, its rows of ``requests`` and their places among
    all, and its part of the trail, whose rows name plans and requests by their place here.

    ``duration`` is that of the run (s). A pool that is ``alone`` has every request: rejected ones
    too, and those of an observed run whose replica is not known.
    """

    pool: PreparedPool
    plans: NDArray[np.void]
    requests: NDArray[np.void]
    places: slice | NDArray[np.int64]
    trail: Trail | None
    duration: float
    alone: bool

    @property
    def span(self) -> float:
        """Seconds of the run, of all its replicas together; of their data ranks, or of the batches
        that they have in flight."""
        return self.duration * self.pool.ranks

    def serves(self, requests: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which of ``requests`` were on its replicas."""
        if self.alone:
            return np.ones(len(requests), dtype=bool)
        numbers = self.pool.settings.numbers
        at = requests["replica"]
        return np.asarray((at >= numbers.start) & (at < numbers.stop))

    @cached_property
    def durations(self) -> NDArray[np.float64]:
        """Seconds that each plan took."""
        return np.asarray(self.plans["end"] - self.plans["start"])

    @cached_property
    def found(self) -> NDArray[np.int64]:
        """Tokens of each prompt that were in the prefix cache when it was first admitted."""
        found = np.zeros(len(self.requests), dtype=np.int64)
        if self.pool.settings.kv_cache.enable_prefix_caching and self.trail is not None:
            chunks = self.trail[0]
            place, first = np.unique(chunks["request"], return_index=True)
            found[place] = chunks["context"][first]
        return found

    @cached_property
    def attribution(self) -> Attribution:
        """Where the busy time went."""
        return attribute(self.pool.cost, self.plans)


def split(run: RunRecord) -> tuple[PoolRun, ...]:
    """The part of each pool: the rows with the numbers of its replicas, all for the only pool."""
    if len(run.pools) == 1:
        (pool,) = run.pools
        whole = slice(None)
        return (PoolRun(pool, run.plans, run.requests, whole, run.trail, run.duration, alone=True),)
    return tuple(_part(run, pool) for pool in run.pools)


def _part(run: RunRecord, pool: PreparedPool) -> PoolRun:
    numbers = pool.settings.numbers
    plans, requests = (
        np.flatnonzero((rows["replica"] >= numbers.start) & (rows["replica"] < numbers.stop))
        for rows in (run.plans, run.requests)
    )
    trail = None
    if run.trail is not None:
        chunks, absences = run.trail
        trail = (
            _placed(_placed(chunks, "plan", plans), "request", requests),
            _placed(absences, "request", requests),
        )
    own = run.plans[plans], run.requests[requests]
    return PoolRun(pool, *own, requests, trail, run.duration, alone=False)


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
    """What mappings with the same keys say alike; None where they differ."""
    return {key: common(part[key] for part in parts) for key in parts[0]}


def names(values: Iterable[str]) -> str:
    """The different names that pools have, each once.

    >>> names(["h100-sxm", "l40s", "h100-sxm"])
    'h100-sxm, l40s'
    """
    return ", ".join(dict.fromkeys(values))


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
        kernels=_added(part.kernels for part in parts),
    )


def _added(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    """The sum of each entry, in the order in which they first come."""
    found: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0.0) + amount
    return found
