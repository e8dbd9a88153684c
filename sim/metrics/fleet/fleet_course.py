"""Computes what the pools of a fleet had over time: replicas, requests, hand-overs.

For fleets of several pools, and of pools that are scaled. Times in seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.loop.recorder import REJECTED
from sim.metrics.latency.timeline import Level, running, waiting
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.run_record import RunRecord

Floats = NDArray[np.float64]


def fleet_course(run: RunRecord, edges: Floats) -> dict[str, Any] | None:
    """Means between each of ``edges`` and the next one; None where the fleet is one pool of a fixed
    number of replicas.

    Of each pool the replicas ``held``, the requests ``running`` and those ``waiting`` for their
    first iteration; ``handed`` counts requests between a pool that prefills and one that decodes,
    whose prompts are complete and whose KV has not arrived yet, null where there are none.
    """
    parts = run.parts
    if len(parts) == 1 and parts[0].held is None:
        return None
    handed = None
    if run.handed is not None and any(p.pool.settings.role == "prefill" for p in parts):
        rows = run.handed
        handed = _rounded(waiting(rows["prefilled"], rows["arrived"]).means(edges))
    pools = [
        {
            "name": part.pool.settings.name,
            "held": _rounded(_held(run, part).means(edges)),
            "running": _rounded(_running(part).means(edges)),
            "waiting": _rounded(_waiting(run, part).means(edges)),
        }
        for part in parts
    ]
    return {"edges": _rounded(edges, 9), "pools": pools, "handed": handed}


def _rounded(values: Floats, digits: int = 6) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]


def _held(run: RunRecord, part: PoolRun) -> Level:
    if part.held is None or run.held is None:
        return Level(np.zeros(1), np.array([float(part.pool.replicas)]))
    rows = run.held[np.isin(run.held["replica"], part.pool.settings.numbers)]
    back = rows["until"][rows["until"] < run.end]
    times = np.concatenate([rows["since"], back])
    return Level.of_changes(times, np.repeat([1.0, -1.0], [len(rows), len(back)]))


def _running(part: PoolRun) -> Level:
    columns = {"start_s": part.plans["start"], "end_s": part.plans["end"]}
    return running({**columns, "running": part.plans["running"]})


def _waiting(run: RunRecord, part: PoolRun) -> Level:
    """Of a pool that decodes: requests whose KV has arrived, until their first token."""
    if part.pool.settings.role == "decode" and run.handed is not None:
        numbers, rows = part.pool.settings.numbers, run.handed
        mine = rows[(rows["target"] >= numbers.start) & (rows["target"] < numbers.stop)]
        mine = mine[~np.isnan(mine["arrived"])]
        first = run.requests["first_token"][np.searchsorted(run.requests["id"], mine["request"])]
        return waiting(mine["arrived"], first)
    rows = part.requests[part.requests["status"] != REJECTED]
    return waiting(run.reached(rows), rows["scheduled"])
