"""Finds the replica of a fleet that takes the largest share of its own capacity.

A fleet may have capacity to spare while one of its replicas is overloaded: a session or a kind of
request that is kept on one replica cannot use the others. The load of a fleet is a mean over its
replicas and does not show that. Times in seconds, rates per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.metrics.load.full_batch import FullBatch
from sim.metrics.load.request_costs import Reached, RequestCosts, replica_costs
from sim.metrics.record.pools import PoolRun

Floats = NDArray[np.float64]

LOOKED_AT = 8
"""Replicas of an uneven fleet, the fullest first, that are compared with full batches of their own
requests; of others the requests of the whole pool fill the batches."""


class BusiestReplica(NamedTuple):
    """The replica with the largest share of its own capacity taken.

    ``replica`` is its number in the fleet, from 0. Its requests take the share ``utilisation`` of
    what its full batches serve, with the standard error ``error`` that chance in dealing and in
    lengths leaves. ``batch`` requests fill its batches; at the last arrival of the run ``backlog``
    more than those were unfinished on it. ``shares`` has the same share of each replica of its
    pool, by number.
    """

    replica: int
    utilisation: float
    error: float
    batch: float
    backlog: float
    shares: tuple[tuple[int, float], ...] = ()


def busiest_of(verdicts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The fullest of the entries ``busiest_replica`` of several runs; None where the router deals
    evenly in one of them."""
    found = [each.get("busiest_replica") for each in verdicts]
    known: list[Mapping[str, Any]] = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda each: float(each["utilisation"]))


def busiest(
    parts: Sequence[PoolRun],
    served: Sequence[RequestCosts],
    accepted: NDArray[np.void],
    shares: Floats | None,
    rate: float,
    reached: Reached,
) -> BusiestReplica | None:
    """The busiest replica of a run to which ``rate`` accepted requests come per second.

    ``served`` has what each of the ``accepted`` requests takes of each part; ``shares`` weighs
    them, None where they are alike; ``reached`` says when they came to the queue. None where it is
    not known which replica served a request, or where no pool has several that are there all the
    time.
    """
    weights = np.full(len(accepted), 1 / len(accepted)) if shares is None else shares
    found, before = [], 0
    for part, costs in zip(parts, served, strict=True):
        if part.pool.replicas > 1 and part.held is None:
            one = _of_pool(part, costs, weights * rate, accepted, reached)
            if one is not None:
                numbered = tuple((before + place, used) for place, used in one.shares)
                found.append(one._replace(replica=before + one.replica, shares=numbered))
        before += part.pool.replicas
    return max(found, key=lambda each: each.utilisation, default=None)


def _of_pool(
    part: PoolRun,
    costs: RequestCosts,
    rates: Floats,
    accepted: NDArray[np.void],
    reached: Reached,
) -> BusiestReplica | None:
    """The busiest replica of a pool, by its number there; each request has one of ``rates``."""
    count = part.pool.replicas
    at, known = _dealt(part, accepted)
    if not known.any():
        return None
    taken = (costs.seconds * rates)[known]
    used: Floats = np.bincount(at[known], taken, count).astype(np.float64) * count
    first = _replica(part, int(used.argmax()), costs.full, accepted, at, used)
    if first.utilisation - 2 * first.error <= float(used.mean()):
        return first
    fullest = [place for place in np.argsort(-used)[:LOOKED_AT].tolist() if used[place] > 0]
    alone = [_alone(part, place, rates, accepted, at, reached) for place in fullest]
    used[fullest] = [taken for _, taken in alone]
    place = max(range(len(fullest)), key=lambda each: alone[each][1])
    return _replica(part, fullest[place], alone[place][0], accepted, at, used)


def _alone(
    part: PoolRun,
    place: int,
    rates: Floats,
    accepted: NDArray[np.void],
    at: NDArray[np.int64],
    reached: Reached,
) -> tuple[FullBatch, float]:
    """The full batch of the requests that a replica was sent, which may be unlike those of the
    others, and the share of its own capacity that they take."""
    settings, mine = part.pool.settings, at == place
    start = settings.numbers.start + place * settings.engines.step
    own = range(start, start + settings.engines.step)
    full, seconds = replica_costs(part, accepted, mine, rates / rates.sum(), own, reached)
    return full, float(seconds @ rates[mine])


def _replica(
    part: PoolRun,
    place: int,
    full: FullBatch,
    accepted: NDArray[np.void],
    at: NDArray[np.int64],
    used: Floats,
) -> BusiestReplica:
    """The replica at ``place`` in its pool, of whose replicas so much is ``used``."""
    there = accepted[at == place]
    unfinished = len(there) - int((there["finish"] <= float(accepted["arrival"][-1])).sum())
    batch = full.slots * part.ranks / part.pool.replicas
    chance = math.sqrt((1 - len(there) / len(accepted)) / len(there))
    lengths = full.error * math.sqrt(len(full.costs) / len(there))
    return BusiestReplica(
        replica=place,
        utilisation=float(used[place]),
        error=float(used[place]) * math.hypot(chance, lengths),
        batch=batch,
        backlog=max(0.0, unfinished - batch),
        shares=tuple(enumerate(used.tolist())),
    )


def _dealt(
    part: PoolRun, accepted: NDArray[np.void]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The place in its pool of the replica that had each of the ``accepted`` requests, and of which
    of them it is known."""
    settings = part.pool.settings
    at = np.full(len(accepted), -1, dtype=np.int64)
    _, here, there = np.intersect1d(accepted["id"], part.requests["id"], return_indices=True)
    numbers = part.requests["replica"][there].astype(np.int64)
    at[here] = (numbers - settings.numbers.start) // settings.engines.step
    at[here[numbers < 0]] = -1
    return at, at >= 0
