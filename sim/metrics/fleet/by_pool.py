"""Describes what each pool of a fleet did, where it has several: load, work, memory and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.metrics.engine.kv_usage import Taken
from sim.metrics.latency.percentiles import describe
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.queues import peak_queues
from sim.metrics.record.run_record import RunRecord
from sim.scenario.prices import price_of
from sim.schedulers.roles import DecodeRole
from sim.units import show_utilisation


def by_pool(run: RunRecord, taken: Sequence[Taken], loads: Sequence[float] | None) -> Any:
    """An entry for each pool in the order of the fleet: what it is, what it served (requests that
    ended there), how busy it was, and what it cost. ``taken`` is how full its KV caches were,
    ``loads`` what its requests take of its own capacity, None where that is not known."""
    known = [None] * len(taken) if loads is None else loads
    return [
        _entry(run, part, own, load)
        for part, own, load in zip(run.parts, taken, known, strict=True)
    ]


def _peak_waiting(run: RunRecord, part: PoolRun) -> int:
    """The most requests in a queue of the pool; of one that decodes, when an iteration began."""
    if part.pool.settings.role == DecodeRole.role:
        return int(part.plans["waiting"].max(initial=0))
    return max(peak_queues(part.pool, run.reached(part.requests), part.requests))


def _entry(run: RunRecord, part: PoolRun, taken: Taken, load: float | None) -> dict[str, Any]:
    pool, plans, duration = part.pool, part.plans, run.duration
    mine = np.zeros(len(run.requests), dtype=bool)
    mine[part.places] = True
    done, counted = mine & run.completed, mine & run.completed & ~run.warmup
    outputs = int(run.requests["generated"][done].sum())
    if pool.settings.role == "prefill":
        outputs = 0
    deployment, span = pool.deployment, part.span
    price = price_of(pool.settings, deployment.gpu)
    usd = None if price is None else part.cost(price.usd)
    iterations, busy = int(plans["iterations"].sum()), float(part.durations.sum())

    def per_second(amount: float) -> float | None:
        return amount / duration if duration > 0 else None

    def of_span(amount: float) -> float:
        return amount / span if span > 0 else 0.0

    longer = max(1.0, of_span(part.attribution.seconds))  # a pass may outlast the last request
    return {
        "name": pool.settings.name,
        "role": pool.settings.role,
        "model": deployment.model.name,
        "gpu": deployment.gpu.name,
        "replicas": pool.replicas,
        "gpus": pool.gpus,
        "engine": deployment.engine.label,
        "batching": pool.settings.scheduler.batching,
        "completed": int(done.sum()),
        "share": int(done.sum()) / max(1, int(run.completed.sum())),
        "request_throughput": per_second(int(done.sum())),
        "output_throughput": per_second(outputs),
        "prefill_throughput": per_second(int(plans["prefill_tokens"].sum())),
        **{
            f"{rank}_{key}_ms": figures[f"{rank}_{key}_ms"]
            for key, values in (("ttft", run.ttft), ("tpot", run.tpot))
            for figures in (describe(values[counted & ~np.isnan(values)], key),)
            for rank in ("p50", "p99")
        },
        "utilisation": load,
        "busy": of_span(part.attribution.seconds) / longer,
        "mfu": of_span(part.attribution.flops)
        / deployment.gpu.flops(deployment.arithmetic)
        / longer,
        "mbu": of_span(part.attribution.bytes) / deployment.gpu.bandwidth / longer,
        "num_gpu_blocks": pool.capacity.num_gpu_blocks,
        "block_size": pool.capacity.block_size,
        "kv_mean_used": taken.mean_used,
        "kv_peak_used": taken.peak_used,
        "iterations": iterations,
        "mean_iteration_ms": busy / iterations * 1e3 if iterations else None,
        "mean_running": of_span(float((plans["running"] * part.durations).sum())),
        "peak_running": int(plans["running"].max(initial=0)),
        "peak_waiting": _peak_waiting(run, part),
        "preemptions": int(plans["preemptions"].sum()),
        "usd_per_gpu_hour": None if price is None else price.usd,
        "usd": usd,
    }


def limiting_text(names: Sequence[str], loads: Sequence[float]) -> str:
    """Which of several pools limits the fleet, by what their requests take of their capacity.

    >>> limiting_text(["fast", "slow"], [0.4, 0.9])
    ' Pool slow limits: its requests take 90% of its own capacity; fast 40%.'
    """
    order = sorted(range(len(names)), key=lambda at: -loads[at])
    first, *others = order
    rest = ", ".join(f"{names[at]} {show_utilisation(loads[at])}" for at in others)
    return (
        f" Pool {names[first]} limits: its requests take {show_utilisation(loads[first])} of its "
        f"own capacity; {rest}."
    )
