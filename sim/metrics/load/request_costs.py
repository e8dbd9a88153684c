"""Computes what each request takes of the full batches of a pool, or of one of its replicas.

A request's cost is its time in full batches, in addition to what the batches of the run took longer
than that while requests were left waiting. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import PlanRows
from sim.growth.leaps import Leaps
from sim.metrics.load.full_batch import FullBatch, full_batch
from sim.metrics.record.blocks import blocks
from sim.metrics.record.pools import PoolRun
from sim.schedulers.ahead import Ahead

Floats = NDArray[np.float64]


class RequestCosts(NamedTuple):
    """The ``full`` batch of requests, and the ``seconds`` that each takes of as many of them as
    there are: of a pool one for each of its ranks, of a replica one for each of its own."""

    full: FullBatch
    seconds: Floats


Reached = Callable[[NDArray[np.void]], Floats]
"""When requests, by their rows, came to the queue (s)."""


def request_costs(
    part: PoolRun, accepted: NDArray[np.void], shares: Floats | None, reached: Reached
) -> RequestCosts:
    """What a pool's full batches of all ``accepted`` requests take for each, if it is dealt them
    evenly. ``shares`` weighs them, 1 in sum; None: they are alike."""
    return _costs(part, accepted, _found(part, accepted), shares, part.ranks, reached)


def replica_costs(
    part: PoolRun,
    accepted: NDArray[np.void],
    mine: NDArray[np.bool_],
    shares: Floats | None,
    numbers: range,
    reached: Reached,
) -> RequestCosts:
    """The same of one replica of the pool, whose ranks have the ``numbers``: its full batches hold
    those of the requests that are ``mine``, and its own plans say how long they took."""
    own = accepted[mine]
    weights = None if shares is None else shares[mine] / shares[mine].sum()
    at = part.plans["replica"]
    alone = replace(
        part,
        plans=part.plans[np.flatnonzero((at >= numbers.start) & (at < numbers.stop))],
        requests=own,
        alone=True,
    )
    ranks = part.ranks / part.pool.replicas
    return _costs(alone, own, _found(part, accepted)[mine], weights, ranks, reached)


def _found(part: PoolRun, accepted: NDArray[np.void]) -> NDArray[np.int64]:
    """The tokens of each prompt of ``accepted`` that the pool's prefix cache had."""
    if accepted is part.requests:
        return part.found
    found = np.zeros(len(accepted), dtype=np.int64)
    _, here, there = np.intersect1d(accepted["id"], part.requests["id"], return_indices=True)
    found[here] = part.found[there]
    return found


def _costs(
    part: PoolRun,
    accepted: NDArray[np.void],
    found: NDArray[np.int64],
    shares: Floats | None,
    ranks: float,
    reached: Reached,
) -> RequestCosts:
    prompts, outputs = accepted["prompt_tokens"], accepted["output_tokens"]
    match part.pool.settings.role:
        case "prefill":
            outputs = np.ones_like(outputs)
        case "decode":
            found = prompts - 1
    full = full_batch(part.pool, prompts, outputs, found, shares)
    return RequestCosts(full, full.costs * _slowness(part, full, accepted, reached) / ranks)


def _slowness(run: PoolRun, full: FullBatch, accepted: NDArray[np.void], reached: Reached) -> float:
    """How much longer requests take than predicted for full batches, as far as the run shows it.

    While plans leave requests waiting, the batch is as full as it gets. What it does then, at the
    times of ``full``, is compared with the time it takes: memory too small for any newcomer, and
    prompts prefilled again, make it slower. 1 for batches served as a whole, which are timed
    exactly.
    """
    plans, prefilled = run.plans, int(run.plans["prefill_tokens"].sum())
    behind = _behind(run, reached)
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


def _behind(run: PoolRun, reached: Reached) -> NDArray[np.bool_]:
    """Which plans leave requests waiting that they knew of."""
    plans = run.plans
    if not issubclass(run.pool.policy, Ahead) or run.pool.settings.role == "decode":
        return np.asarray(plans["waiting"] > 0)
    newcomers, behind = _Newcomers(run, reached), np.empty(len(plans), dtype=bool)
    for block in blocks(len(plans)):
        rows = plans[block]
        behind[block] = rows["waiting"] > newcomers.of(rows)
    return behind


class _Newcomers:
    """Counts of each plan those of the requests that wait which came after it was made: of policies
    that plan one iteration ahead all that came while the iteration before it ran."""

    def __init__(self, run: PoolRun, reached: Reached) -> None:
        requests, times = run.requests, reached(run.requests)
        self._apart = 1.0 + float(run.plans[-1:]["end"].max(initial=0.0))  # of times of replicas
        known = (requests["replica"] >= 0) & (times < self._apart)
        self._came = np.sort(requests["replica"][known] * self._apart + times[known])
        self._last: dict[int, int] = {}  # how many had come when the last iteration began

    def of(self, plans: PlanRows) -> NDArray[np.int64]:
        """The newcomers of ``plans``, which follow those asked for before."""
        order = np.argsort(plans["replica"], kind="stable")
        rows = plans[order]
        numbers, here = rows["replica"], rows["replica"] * self._apart
        last = rows["end"] - rows["gap"] - (rows["iterations"] - 1) * rows["slope"]
        last = np.where(rows["iterations"] > 1, last, rows["start"])
        begun, before = (
            np.searchsorted(self._came, here + t, "right") for t in (rows["start"], last)
        )
        previous = np.roll(before, 1)
        for at in np.flatnonzero(np.diff(numbers, prepend=-1)).tolist():
            nothing = int(np.searchsorted(self._came, here[at]))
            previous[at] = self._last.get(int(numbers[at]), nothing)
        ends = np.flatnonzero(np.diff(numbers, append=-1)).tolist()
        self._last |= {int(numbers[at]): int(before[at]) for at in ends}
        newcomers = np.empty(len(order), dtype=np.int64)
        newcomers[order] = begun - previous
        return newcomers
