"""Describes what the stages of pipelines did: how long they computed, and how long batches waited.

A pipeline has several batches in flight, each at a place of its own, and the rows of a place follow
each other in time. The state of queue and KV cache in a row is that of the whole replica. Seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.growth.leaps import COMPUTING
from sim.metrics.record.attribution import waited
from sim.metrics.record.pools import PoolRun

Floats = NDArray[np.float64]


def pipeline(part: PoolRun) -> dict[str, Any] | None:
    """The ``stages`` of a pool's pipelines with the ``layers`` of each; the share of their time in
    which they compute nothing (``idle``: bubbles, and no requests), the mean number of batches in
    flight (``batches``), and the share of the batches' time in which they wait for each other
    (``waiting``). None for a pool that has no pipelines.
    """
    d = part.pool.deployment
    if d.layout.pipeline == 1:
        return None
    flying = float((part.plans["end"] - part.plans["start"]).sum())
    computing = float(part.plans[COMPUTING].sum())
    replicas = part.duration * part.pool.replicas
    return {
        "stages": d.layout.pipeline,
        "layers": [stage.model.num_layers for stage in d.stages()],
        "idle": 1 - computing / part.span if part.span > 0 else 1.0,
        "batches": flying / replicas if replicas > 0 else 0.0,
        "waiting": float(np.sum(waited(part.plans))) / flying if flying > 0 else 0.0,
    }


def standing(part: PoolRun) -> Floats:
    """For how long the state of the KV cache in each row is that of its replica: until the next
    batch is scheduled there, or none is in flight any more."""
    plans, stages = part.plans, part.pool.deployment.layout.pipeline
    if stages == 1:
        return part.durations
    found = np.zeros(len(plans))
    replicas = (plans["replica"] - part.pool.settings.first) // stages
    for replica in np.unique(replicas).tolist():
        rows = np.flatnonzero(replicas == replica)
        rows = rows[np.argsort(plans["start"][rows], kind="stable")]
        start, end = plans["start"][rows], np.maximum.accumulate(plans["end"][rows])
        found[rows] = np.minimum(np.append(start[1:], np.inf), end) - start
    return found
