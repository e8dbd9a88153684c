"""Compares the traffic with what the fleet can serve, and analyses how its queue moves.

Also finds which start of a run is not typical of the rest. Times in seconds, rates per second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim.growth.leaps import Leaps
from sim.metrics.blocks import blocks
from sim.metrics.busiest import BusiestReplica, busiest
from sim.metrics.full_batch import FullBatch, full_batch
from sim.metrics.sessions import per_session
from sim.metrics.usual_sessions import usual, usual_shares

if TYPE_CHECKING:
    from sim.metrics.pools import PoolRun
    from sim.metrics.run_record import RunRecord
    from sim.scenario.sections.arrivals import Arrivals

Floats = NDArray[np.float64]

STRETCHES = 20
"""Equal parts of a run whose differences say how sure the drift is: enough for an error, and each
longer than what the queue remembers unless it is close to saturation."""

LATE = 0.1
"""Share of a run, from its end, that says whether the queue was growing when it ended: 100 of 1,000
requests at 0.7 of the capacity exceed it by chance once in thousands of runs."""


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives in a run with open arrivals, against what full batches would serve.

    ``rate`` requests arrive per second that are not rejected, of ``offered``. They are the share
    ``utilisation`` of the capacity, with the standard error ``error``; ``late`` is the same for the
    last tenth of the run, as it came. ``batch`` requests fill the batches of the fleet, ``backlog``
    were waiting at the last arrival. Each came at one of ``arrived``, and takes full batches of the
    whole fleet as many seconds as ``costs`` has for it. ``estimated`` if the policy does not say
    how full batches look. At a time ``present`` requests are in the fleet, waiting or running, by
    Little's law. ``by_pool`` is what those that each pool got take of its own capacity; ``busiest``
    is the replica that takes the most of its own, None where there is no choice of replicas.
    ``remembered`` requests come while a session lasts: so long the start of a run lacks later
    turns.
    """

    rate: float
    offered: float
    utilisation: float
    error: float
    late: float
    batch: float
    backlog: int
    drift: Drift
    arrived: Floats
    costs: Floats
    estimated: bool
    present: float
    by_pool: tuple[float, ...]
    busiest: BusiestReplica | None = None
    remembered: float = 0.0

    @property
    def uneven(self) -> BusiestReplica | None:
        """The busiest replica, where it takes more of its capacity than the fleet by more than
        chance in dealing explains: twice its standard error."""
        top = self.busiest
        return top if top and top.utilisation - 2 * top.error > self.utilisation else None


@dataclass(frozen=True, slots=True)
class Drift:
    """Requests by which the queue grew per second while requests arrived, and the standard error
    of that, from the differences between parts of the run."""

    per_second: float
    error: float


def load(run: RunRecord) -> Load:
    """The load of a run with open arrivals, at least two of which were accepted at different times.

    Where a law rules the arrivals, its rate is known, and only the lengths are a sample, and how
    many requests a session has where it rules those; a trace is what it is, and nothing of it a
    sample. Sessions count in their usual mix (``usual_sessions``). What a request costs is its time
    in full batches, and in addition what the batches took longer than that while requests were left
    waiting.
    """
    accepted = run.accepted
    arrived = accepted["arrival"]
    span = float(arrived[-1] - arrived[0])
    shares, expected = usual_shares(run), usual(run)
    served = [_served(part, accepted, shares) for part in run.parts]
    costs, limiting = _of_fleet(run.parts, [own for _, own in served])
    law = run.scenario.workload.arrivals
    sessions, session_error = per_session(run) or (1.0, 0.0)
    if law is None:
        rate = offered = (len(arrived) - 1) / span
    else:
        offered = _rate(law, float(arrived[-1])) * sessions
        rate = offered * len(accepted) / len(run.requests)
    utilisation = rate * float(costs.mean() if shares is None else costs @ shares)
    queued = run.reached(accepted)
    left = np.sort(accepted["scheduled"][~np.isnan(accepted["scheduled"])])
    return Load(
        rate=rate,
        offered=offered,
        utilisation=utilisation,
        error=0.0
        if law is None
        else math.hypot(max(full.error for full, _ in served), session_error / sessions)
        * utilisation,
        late=float(costs[arrived > arrived[-1] - LATE * span].sum()) / (LATE * span),
        batch=sum(
            full.slots * part.ranks
            for (full, _), part in zip(served, run.parts, strict=True)
            if part.pool.settings.role == limiting
        ),
        backlog=len(queued) - int(np.searchsorted(left, queued[-1], side="right")),
        drift=drift(queued, left),
        arrived=np.asarray(arrived),
        costs=np.asarray(costs),
        estimated=any(full.estimated for full, _ in served),
        present=rate * float(np.nanmean(accepted["finish"] - arrived)),
        by_pool=tuple(
            rate * _share_of_mean(own, part.serves(accepted), shares)
            for (_, own), part in zip(served, run.parts, strict=True)
        ),
        busiest=None
        if run.scenario.failures or run.scenario.steering  # others serve for those that are out
        else busiest(run.parts, served, accepted, shares, rate),
        remembered=0.0 if expected is None else rate * expected.duration,
    )


def _share_of_mean(costs: Floats, mine: NDArray[np.bool_], shares: Floats | None) -> float:
    """What ``mine`` add to the mean of all ``costs``."""
    if shares is None:
        return float(costs[mine].sum()) / len(costs)
    return float((costs * shares)[mine].sum())


def _rate(law: Arrivals, end: float) -> float:
    """Requests per second: on average, or at the ``end`` of a ramp, where it leads."""
    match law.kind:
        case "poisson" | "gamma" | "constant":
            return law.rate
        case "diurnal":
            return (law.rate + law.peak_rate) / 2
        case "ramp":
            share = min(1.0, end / law.duration)
            return law.rate + (law.final_rate - law.rate) * share
    raise AssertionError(f"{law.kind} arrivals have no rate")


def _of_fleet(parts: Sequence[PoolRun], costs: Sequence[Floats]) -> tuple[Floats, str]:
    """What each request takes of the fleet, and the role of the pools that this is about: pools of
    one role share the requests, and of several roles the one that takes longest limits."""
    found: dict[str, Floats] = {}
    for part, own in zip(parts, costs, strict=True):
        role = part.pool.settings.role
        together = found.get(role)
        found[role] = own if together is None else together * own / (together + own)
    limiting = max(found, key=lambda role: float(found[role].mean()))
    return found[limiting], limiting


def _served(
    part: PoolRun, accepted: NDArray[np.void], shares: Floats | None
) -> tuple[FullBatch, Floats]:
    """The full batch of a pool for all requests, each with its share in it, and the seconds of its
    full batches that each takes: of as many pools as there are together, it takes the harmonic sum
    of theirs."""
    found = part.found
    if accepted is not part.requests:
        found = np.zeros(len(accepted), dtype=np.int64)
        _, here, there = np.intersect1d(accepted["id"], part.requests["id"], return_indices=True)
        found[here] = part.found[there]
    prompts, outputs = accepted["prompt_tokens"], accepted["output_tokens"]
    match part.pool.settings.role:
        case "prefill":
            outputs = np.ones_like(outputs)
        case "decode":
            found = prompts - 1
    full = full_batch(part.pool, prompts, outputs, found, shares)
    return full, full.costs * _slowness(part, full, accepted) / part.ranks


def _slowness(run: PoolRun, full: FullBatch, accepted: NDArray[np.void]) -> float:
    """How much longer requests take than predicted for full batches, as far as the run shows it.

    While requests are left waiting, the batch is as full as it gets. What it does then, at the
    times of ``full``, is compared with the time it takes: memory too small for any newcomer, and
    prompts prefilled again, make it slower. 1 for batches served as a whole, which are timed
    exactly.
    """
    plans, prefilled = run.plans, int(run.plans["prefill_tokens"].sum())
    behind = plans["waiting"] > 0
    if not (behind.any() and prefilled and full.token + full.prompt):
        return 1.0
    begun = ~np.isnan(accepted["scheduled"]) & run.serves(accepted)
    useful = min(1.0, int(accepted["prompt_tokens"][begun].sum()) / prefilled)
    decoded = sum(
        int(Leaps.recorded(plans[block][behind[block]]).tokens().sum())
        for block in blocks(len(plans))
    )
    prompts = int(plans["prefill_tokens"][behind].sum())
    done = full.token * decoded + full.prompt * useful * prompts
    took = float((plans["end"][behind] - plans["start"][behind]).sum())
    return 1.0 + (took - done) / float(full.costs[begun].sum())


def drift(queued: Floats, left: Floats) -> Drift:
    """The drift of a queue that was entered at ``queued`` and left at ``left`` (both ascending)."""
    edges = np.linspace(queued[0], queued[-1], STRETCHES + 1)
    waiting = np.searchsorted(queued, edges, side="right") - np.searchsorted(
        left, edges, side="right"
    )
    growth = np.diff(waiting) / (edges[1] - edges[0])
    return Drift(float(growth.mean()), float(growth.std(ddof=1)) / math.sqrt(STRETCHES))


@dataclass(frozen=True, slots=True)
class Growth:
    """The queue was longest, ``requests``, at ``until``, and had been growing since ``since``."""

    since: float
    until: float
    requests: int


def longest_growth(queued: Floats, scheduled: Floats) -> Growth:
    """How the queue became as long as it ever was, counted from when it was last a tenth of that.

    Requests entered it at ``queued`` (ascending) and left it at ``scheduled`` (NaN if never).
    """
    left = np.sort(scheduled[~np.isnan(scheduled)])
    waiting = np.arange(1, len(queued) + 1) - np.searchsorted(left, queued, side="right")
    peak = int(np.argmax(waiting))
    short = np.flatnonzero(waiting[: peak + 1] <= max(1, waiting[peak] // 10))
    start = int(short[-1]) if len(short) else 0
    return Growth(float(queued[start]), float(queued[peak]), int(waiting[peak]))


def peak_queue(queued: Floats, scheduled: Floats) -> int:
    """The most requests that waited at one time for their first iteration."""
    left = np.sort(scheduled[~np.isnan(scheduled)])
    entered = np.sort(queued)
    gone = np.searchsorted(left, entered, side="right")
    return int(np.max(np.arange(1, len(entered) + 1) - gone, initial=0))


def warmup_length(latency: Floats, batch: int = 5) -> int:
    """How many requests to leave out at the start, by the MSER-5 rule.

    Means of ``batch`` consecutive values; the cut that minimises the squared standard error of what
    is left (White, 1997). A cut at the limit of half the values says that there is no steady part
    to be found, and then nothing is cut.
    """
    count = len(latency) // batch
    if count < 10:
        return 0
    means = latency[: count * batch].reshape(count, batch).mean(axis=1)
    means = means - means.mean()  # squares of differences cancel, squares of latencies would not
    if np.abs(means).max() <= 1e-9 * float(latency.max()):
        return 0
    left = np.arange(count, 0, -1)
    # suffix sums, then the variance of each suffix over its length
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    spread = np.maximum(squares - total**2 / left, 1e-12 * squares[0])  # less is rounding
    error = spread / left**2
    cut = int(np.argmin(error[: count // 2]))
    return cut * batch if cut < 0.9 * (count // 2) else 0
