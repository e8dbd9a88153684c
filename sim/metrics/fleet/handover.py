"""Describes how requests got from the pools that prefill to those that decode."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.latency.percentiles import describe
from sim.metrics.record.run_record import RunRecord
from sim.scenario.sections.transfer import Transfer

STAGES = ("memory", "link", "transfer", "first_token")
"""The waits of a request between its prompt and its first token, in order."""


def handover(run: RunRecord) -> dict[str, Any]:
    """The entry ``handover`` of a summary; nothing where each replica serves its requests alone.

    ``total`` is the time from the complete prompt to the first token, in four stages: until the
    decode replica has admitted it, which looks for ``memory`` between two iterations, until the
    ``link`` is free, the ``transfer``, and from there to the ``first_token``, with the wait for a
    slot. Where layers are pushed as they are computed, stages that ended before the prompt was
    complete are 0. ``link_busy`` is the busiest link of a replica, as a share of the run; ``bytes``
    what went over all of them.
    """
    rows = run.handed
    if rows is None or all(pool.settings.role == "both" for pool in run.pools):
        return {}
    first = run.requests["first_token"][np.searchsorted(run.requests["id"], rows["request"])]
    marks = [rows["prefilled"], rows["taken"], rows["sent"], rows["arrived"]]
    edges = np.maximum.accumulate(np.stack(marks), axis=0)
    spent = dict(zip(STAGES, [*np.diff(edges, axis=0), first - edges[-1]], strict=True))
    spent["total"] = first - rows["prefilled"]
    transfer = run.scenario.transfer or Transfer()
    return {
        "handover": {
            "mode": transfer.mode,
            "requests": len(rows),
            **{f"{name}_ms": _figures(seconds) for name, seconds in spent.items()},
            "bytes": _sent(run, rows),
            "link_busy": _busiest(run, rows, transfer.latency),
        }
    }


def _figures(seconds: NDArray[np.float64]) -> dict[str, float | None]:
    found = describe(seconds[~np.isnan(seconds)], "")
    return {rank: found[f"{rank}__ms"] for rank in ("mean", "p50", "p99")}


def _sent(run: RunRecord, rows: NDArray[np.void]) -> float:
    """Bytes that all links carried, in the format of the pool that sent them."""
    found = 0.0
    for pool in run.pools:
        numbers, d = pool.settings.numbers, pool.deployment
        mine = (rows["source"] >= numbers.start) & (rows["source"] < numbers.stop)
        found += float(rows["tokens"][mine].sum()) * d.model.kv_bytes_per_token(d.kv_cache)
    return found


def _busiest(run: RunRecord, rows: NDArray[np.void], latency: float) -> float:
    """The share of the run for which the busiest link was held."""
    held = rows["arrived"] - latency - rows["sent"]
    most = 0.0
    for pool in run.pools:
        size, first = pool.deployment.layout.data, pool.settings.first
        for end in ("source", "target"):
            at = rows[end]
            mine = (at >= first) & (at < first + pool.ranks)
            by_replica = np.bincount((at[mine] - first) // size, weights=held[mine], minlength=1)
            most = max(most, float(by_replica.max()))
    return min(1.0, most / run.duration) if run.duration > 0 else 0.0
