"""Computes without simulating what a replica serves at most, and how fast a lone request is.

All times come from the cost model that the simulation uses. Rates in requests per second, latencies
in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.errors import InfeasibleError
from sim.iteration import Batch, Part
from sim.metrics.load.full_batch import FullBatch, full_batch
from sim.metrics.slo.objectives import Objective
from sim.planning.load.loads import Traffic
from sim.pools import PreparedPool
from sim.scenario.pools import DECODE, PREFILL

ALONE = 400
"""Requests whose latencies alone are predicted, evenly spread over the traffic."""

ROOM = 0.9
"""Share of a TPOT limit, or of the capacity, at which the search for the highest load begins: what
most requests see must stay below the limit if nearly all are to keep it."""


@dataclass(frozen=True)
class Saturation:
    """The throughput of full batches on one replica: ``rate`` requests per second, ``slots`` at a
    time.
    """

    rate: float
    slots: float


def acceptable(pool: PreparedPool, traffic: Traffic) -> Traffic:
    """The part of ``traffic`` that ``pool`` could ever serve; InfeasibleError for none."""
    most = min(pool.limits.max_model_len, pool.kv_longest)
    fits = traffic.prompts + traffic.outputs <= most
    if not fits.any():
        lengths = traffic.prompts + traffic.outputs
        shortest, longest = int(lengths.min()), int(lengths.max())
        model = pool.deployment.model
        accepted = f"{most:,} (the smaller of max_model_len and its KV cache)"
        if model.assumed_context and most == model.max_position_embeddings:
            accepted = (
                f"{model.made_for}; or --set max_model_len={longest} "
                "--set allow_long_max_model_len=true"
            )
        raise InfeasibleError(
            "no request fits",
            f"the shortest takes {shortest:,} tokens, and a replica accepts {accepted}",
        )
    return replace(traffic.taken(fits), notes=())


def saturation(pool: PreparedPool, traffic: Traffic) -> Saturation:
    """The throughput of full batches of ``traffic``."""
    full = full_batch(pool, traffic.prompts, traffic.outputs, traffic.found)
    ranks = pool.deployment.layout.data
    return Saturation(_rate(full) * ranks, full.slots * ranks)


def fleet_saturation(pools: Sequence[PreparedPool], traffic: Traffic) -> Saturation:
    """The throughput of full batches on all replicas of ``pools``: of several roles the one that
    takes longest limits. Slots are those in which answers are decoded."""
    slots = sum(
        pool.ranks * _of_role(pool, traffic).slots
        for pool in pools
        if pool.settings.role != PREFILL
    )
    return Saturation(min(rates_by_role(pools, traffic).values()), slots)


def rates_by_role(pools: Sequence[PreparedPool], traffic: Traffic) -> dict[str, float]:
    """Requests per second that full batches of the pools of each role serve together."""
    rates: dict[str, float] = {}
    for pool in pools:
        role = pool.settings.role
        rates[role] = rates.get(role, 0.0) + pool.ranks * _rate(_of_role(pool, traffic))
    return rates


def _of_role(pool: PreparedPool, traffic: Traffic) -> FullBatch:
    """The full batch of a pool that does its part of each request."""
    prompts, outputs, found = traffic.prompts, traffic.outputs, traffic.found
    if pool.settings.role == PREFILL:
        outputs = np.ones_like(outputs)
    elif pool.settings.role == DECODE:
        found = prompts - 1
    return full_batch(pool, prompts, outputs, found)


def _rate(full: FullBatch) -> float:
    return 1 / float(full.costs.mean())


def estimate(pool: PreparedPool, traffic: Traffic, objectives: list[Objective]) -> Saturation:
    """Where to look first for the highest load: the largest batch whose mean TPOT leaves room to
    the limits of ``objectives``, or nearly full batches where none limits it."""
    limits = [objective.limits["tpot"] for objective in objectives if "tpot" in objective.limits]
    low, high = 1, pool.limits.max_num_seqs
    whole = pool.policy.shape.whole
    while limits and not whole and low < high:
        middle = (low + high + 1) // 2
        smaller = replace(pool, limits=replace(pool.limits, max_num_seqs=middle))
        full = full_batch(smaller, traffic.prompts, traffic.outputs, traffic.found)
        tpot = full.slots * float(full.costs.mean()) / float(traffic.outputs.mean())
        if tpot <= ROOM * min(limits):
            low = middle
        else:
            high = middle - 1
    slots = high if limits and not whole else pool.limits.max_num_seqs
    smaller = replace(pool, limits=replace(pool.limits, max_num_seqs=slots))
    found = saturation(smaller, traffic)
    return Saturation(ROOM * found.rate, found.slots)


@dataclass(frozen=True)
class Alone:
    """Latencies of requests that are alone in a replica; ``residence`` is how long they stay
    in it on average."""

    ttft: NDArray[np.float64]
    tpot: NDArray[np.float64]
    residence: float

    def keeping(self, objective: Objective) -> float:
        """The share that meets the TTFT and TPOT limits of ``objective``."""
        kept = np.ones(len(self.ttft), dtype=bool)
        for name, latency in (("ttft", self.ttft), ("tpot", self.tpot)):
            if name in objective.limits:
                kept &= latency <= objective.limits[name]
        return float(kept.mean())


def alone(pool: PreparedPool, traffic: Traffic) -> Alone:
    """The latencies of requests that are alone: prompt by prompt, without what a prefix cache that
    never fills would have, at most that many tokens in an iteration as the scheduler allows, then
    token by token."""
    chosen = np.linspace(0, len(traffic.prompts) - 1, min(ALONE, len(traffic.prompts))).astype(int)
    budget, cost = pool.limits.max_num_batched_tokens, pool.cost.alone
    engine = cost.deployment.engine
    ttft, tpot = [], []
    columns = (traffic.prompts, traffic.outputs, traffic.found)
    for prompt, output, found in zip(*(each[chosen].tolist() for each in columns), strict=True):
        seconds = engine.front_end + engine.per_prompt_token * prompt
        for start in range(found, prompt, budget):
            part = Part(min(budget, prompt - start), start)
            seconds += cost.seconds(Batch(0, 0, [part], 1 if start == found else 0))
        ttft.append(seconds)
        tpot.append(cost.seconds(Batch(1, prompt + output // 2)) if output > 1 else 0.0)
    first, further = np.array(ttft), np.array(tpot)
    return Alone(first, further, float((first + further * (traffic.outputs[chosen] - 1)).mean()))
