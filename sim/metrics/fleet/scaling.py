"""Describes how the replicas of a fleet that is scaled came and went."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.record.run_record import RunRecord
from sim.pools import cold_start_of
from sim.scenario.sections.autoscaling import Autoscaling
from sim.units import show_time


def scaling(run: RunRecord) -> dict[str, Any]:
    """The entry ``scaling`` of a summary, one for each pool that is scaled; nothing where none is.

    ``held`` has (time, replicas held from then on), those that start or finish their last requests
    included; ``started`` and ``stopped`` count replicas after the start of the run, and
    ``replica_hours`` is what was held of them. What happened after the last token, when the
    duration and the cost of the run end, is in none of them.
    """
    found = []
    asked = run.scenario.autoscaling or Autoscaling()
    aim = f" to {asked.aim}" if asked.aim else ""
    unheeded = " and ".join(asked.unheeded)
    told = f" {asked.policy} does not heed {unheeded}." if unheeded else ""
    end = min(run.end, float(run.requests["arrival"].min(initial=np.inf)) + run.duration)
    for part in run.parts:
        settings = part.pool.settings
        if settings.scales is None or part.held is None or run.held is None:
            continue
        rows = run.held[np.isin(run.held["replica"], settings.numbers)]
        rows = rows[rows["since"] <= end]
        back = rows["until"] < end
        held = _steps(rows, back)
        mean = part.held / run.duration if run.duration else float(settings.scales.first)
        started, stopped = int((rows["since"] > 0).sum()), int(back.sum())
        cold, hours = cold_start_of(part.pool, asked), part.held / 3600
        found.append(
            {
                "name": settings.name,
                "policy": asked.policy,
                "min": settings.scales.min,
                "max": settings.scales.max,
                "mean_replicas": mean,
                "peak_replicas": max((count for _, count in held), default=0),
                "replica_hours": hours,
                "started": started,
                "stopped": stopped,
                "cold_start_s": cold,
                "held": held,
                "text": (
                    f"Scaled by {asked.policy}{aim}: pool {settings.name} held {mean:.3g} replicas "
                    f"on average ({hours:,.3g} replica-hours), {started:,} were started (ready "
                    f"after {show_time(cold)}) and {stopped:,} given back.{told}"
                ),
            }
        )
    return {"scaling": found} if found else {}


def _steps(rows: NDArray[np.void], back: NDArray[np.bool_]) -> list[tuple[float, int]]:
    """(time, replicas held from then on), of ``rows`` of which some were given ``back``."""
    times = np.concatenate([rows["since"], rows["until"][back]])
    changes = np.repeat([1, -1], [len(rows), int(back.sum())])
    at, places = np.unique(times, return_inverse=True)
    counts = np.cumsum(np.bincount(places, weights=changes)).astype(int)
    return list(zip(at.tolist(), counts.tolist(), strict=True))
