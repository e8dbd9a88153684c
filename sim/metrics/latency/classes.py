"""Computes how each class of the traffic was served. Latencies in milliseconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.latency.percentiles import describe
from sim.metrics.record.run_record import RunRecord
from sim.request import TrafficClass
from sim.schedulers import ORDERS

FIGURES = ("mean", "p50", "p90", "p99")


def by_class(run: RunRecord) -> list[dict[str, Any]] | None:
    """One entry for each class, in the order of the scenario; None where the traffic has none.

    Latencies are of its completed requests, the warm-up left out, as those of the whole run.
    ``attainment`` is the share of its requests whose first token came by the class's own deadline
    and that kept slo.tpot and slo.e2el; None without any. (The run's SLO has one limit for all.)
    Requests whose clients went away before one of these had passed are set aside.
    """
    if not run.classes:
        return None
    return [_entry(run, item, run.requests["class"] == item.index) for item in run.classes]


def _entry(run: RunRecord, item: TrafficClass, mine: NDArray[np.bool_]) -> dict[str, Any]:
    served = mine & run.completed
    counted = served & ~run.warmup
    several = counted & (run.requests["output_tokens"] > 1)
    ttft, tpot = describe(run.ttft[counted], "ttft"), describe(run.tpot[several], "tpot")
    return {
        "name": item.name,
        "priority": item.priority,
        "deadline_ms": item.deadline * 1e3 if math.isfinite(item.deadline) else None,
        "submitted": int(mine.sum()),
        "completed": int(served.sum()),
        "preemptions": int(run.requests["preemptions"][mine].sum()),
        **{f"{figure}_ttft_ms": ttft[f"{figure}_ttft_ms"] for figure in FIGURES},
        **{f"{figure}_tpot_ms": tpot[f"{figure}_tpot_ms"] for figure in FIGURES},
        "attainment": _attainment(run, item, mine),
    }


def _attainment(run: RunRecord, item: TrafficClass, mine: NDArray[np.bool_]) -> float | None:
    slo = run.scenario.slo
    limits = {"ttft": item.deadline, "tpot": slo.tpot or math.inf, "e2el": slo.e2el or math.inf}
    judged = mine & run.judged(limits)
    if not judged.any() or all(map(math.isinf, limits.values())):
        return None
    held = run.completed.copy()
    for metric, limit in limits.items():
        latency = run.latency(metric)
        held &= np.isnan(latency) | (latency <= limit)
    return float(held[judged].mean())


def order_notes(run: RunRecord) -> list[str]:
    """A note on an order that found nothing to sort by."""
    orders = [ORDERS.find(pool.settings.scheduler.order, pool.folders) for pool in run.pools]
    return [
        f"All requests have the same {ranks_by}, so they are served first come, first served."
        for ranks_by in dict.fromkeys(order.ranks_by for order in orders)
        if ranks_by and len({_rank(item, ranks_by) for item in run.classes}) <= 1
    ]


def _rank(item: TrafficClass, by: str) -> Any:
    """The key that an order sorts by: the class itself, or one of its settings."""
    return item.index if by == "class" else getattr(item, by)
