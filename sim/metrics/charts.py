"""Provides what charts of a run need that is neither a metric nor in a table: ``charts.json``.

``itl``       the distribution of the gaps between tokens: at each of ``ms`` the ``share`` that is
              at most as long; null where no gap is known
``roofline``  the roof of one GPU, and the points at which the run worked (``operating_points``)
``power``     what a GPU of the fleet drew: the mean ``watts`` between each of ``edges`` (s) and the
              next one; null where nothing ran
``fleet``     where the fleet has several pools, or pools that are scaled: what each had over time
              (``fleet_course``)

Of a run with repetitions they are of the first one, as the tables are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost import Batches, CostModel, Deployment
from sim.growth.kept_rows import PlanRows
from sim.loop.recorder import REJECTED
from sim.metrics.fleet.energy import mean_power
from sim.metrics.latency.gaps import Gaps
from sim.metrics.latency.timeline import Level, running, waiting
from sim.metrics.record.attribution import waited
from sim.metrics.record.blocks import blocks
from sim.metrics.record.pools import PoolRun, common
from sim.metrics.record.run_record import RunRecord

STRETCHES = 240
"""Parts of a run in which its power, and what its pools do, is averaged."""


def charts(run: RunRecord) -> dict[str, Any]:
    """The content of ``charts.json``."""
    found = {"itl": _itl(run), "roofline": roofline(run), "power": _power(run)}
    if len(run.plans) and not run.observed:
        course = fleet_course(run, _edges(run))
        found |= {} if course is None else {"fleet": course}
    return found


def _edges(run: RunRecord) -> NDArray[np.float64]:
    return np.linspace(0.0, float(run.plans["end"].max()), STRETCHES + 1)


def _power(run: RunRecord) -> dict[str, list[float]] | None:
    if not len(run.plans) or run.observed:
        return None
    edges = _edges(run)
    watts = mean_power(run, edges) / run.gpus
    return {
        "edges": [float(f"{value:.9g}") for value in edges],
        "watts": [float(f"{value:.6g}") for value in watts],
    }


def _itl(run: RunRecord) -> dict[str, list[float]] | None:
    seconds, share = Gaps.recorded(run.plans, run.gaps).curve()
    if not len(seconds):
        return None
    # six digits are more than a screen shows
    return {
        "ms": [float(f"{value * 1e3:.6g}") for value in seconds],
        "share": [float(f"{value:.6g}") for value in share],
    }


Floats = NDArray[np.float64]

KINDS = ("decode", "mixed", "prefill")
"""Iterations that only decode, that do both, and that only prefill."""

STEPS = 6
"""Points per doubling of the intensity."""

SMALLEST, LARGEST = 2.0**-10, 2.0**20
"""Intensities beyond these are drawn together with them."""

CELLS = 1 + round(STEPS * math.log2(LARGEST / SMALLEST))
"""Points of one kind that there may be."""

SUMS = ("iterations", "seconds", "flops", "bytes")
"""The quantities summed over the iterations of a point."""


def roofline(run: RunRecord) -> dict[str, Any] | None:
    """The roof of one GPU (FLOP/s, bytes/s), and the ``points`` at which the run worked.

    A point has its ``kind`` of iteration, ``iterations``, ``seconds``, ``flops`` and ``bytes``.
    None where nothing was run, or on GPUs of several kinds, which have no roof in common.
    """
    roof = common(_roof(pool.deployment) for pool in run.pools)
    if not len(run.plans) or roof is None:
        return None
    sums = {name: np.zeros(len(KINDS) * CELLS) for name in SUMS}
    taken = np.zeros(len(KINDS) * CELLS, dtype=bool)
    for part in run.parts:
        for block in blocks(len(part.plans)):
            plans = part.plans[block]
            flops, traffic = work(part.pool.cost, plans)
            cell = _cells(plans, flops, traffic)
            taken[cell] = True
            seconds = plans["end"] - plans["start"] - waited(plans)
            columns = plans["iterations"].astype(np.float64), seconds, flops, traffic
            for name, column in zip(SUMS, columns, strict=True):
                np.add.at(sums[name], cell, column)  # one by one: the same sums whatever the blocks
    return {
        **roof,
        "points": [
            {"kind": KINDS[at // CELLS], **{name: float(sums[name][at]) for name in SUMS}}
            for at in np.flatnonzero(taken).tolist()
        ],
    }


def _cells(plans: PlanRows, flops: Floats, traffic: Floats) -> NDArray[np.int64]:
    """The point of each of ``plans``: by the kind of iteration, then by intensity."""
    intensity = np.clip(flops / np.maximum(traffic, 1.0), SMALLEST, LARGEST)
    kinds = np.where(plans["prefill_seqs"] == 0, 0, np.where(plans["computed"] > 0, 1, 2))
    place = np.rint(STEPS * np.log2(intensity / SMALLEST)).astype(np.int64)
    return np.asarray(kinds * CELLS + place)


def _roof(d: Deployment) -> dict[str, Any]:
    """The roofline of one GPU."""
    return {
        "precision": d.arithmetic,
        "peak_flops": d.gpu.flops(d.arithmetic),
        "bandwidth": d.gpu.bandwidth,
    }


def work(cost: CostModel, plans: PlanRows) -> tuple[Floats, Floats]:
    """FLOP and bytes of each of ``plans`` (``recorder.PLAN`` rows), all its iterations together."""
    batches = Batches.of(plans)
    flops, traffic = np.zeros(len(plans)), np.zeros(len(plans))
    for ran in cost.operators(batches, each=True):
        often = 1.0 if ran.by == "prompts" else batches.times
        flops += ran.each(ran.operator.flops) * often
        traffic += ran.each(ran.operator.bytes) * often
    some = batches.tokens > 0
    return flops * some, traffic * some


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
    """Requests of a pool that decodes whose KV has arrived, until their first token."""
    if part.pool.settings.role == "decode" and run.handed is not None:
        numbers, rows = part.pool.settings.numbers, run.handed
        mine = rows[(rows["target"] >= numbers.start) & (rows["target"] < numbers.stop)]
        mine = mine[~np.isnan(mine["arrived"])]
        first = run.requests["first_token"][np.searchsorted(run.requests["id"], mine["request"])]
        return waiting(mine["arrived"], first)
    rows = part.requests[part.requests["status"] != REJECTED]
    return waiting(run.reached(rows), rows["scheduled"])
