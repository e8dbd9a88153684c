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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.engine.operating_points import roofline
from sim.metrics.fleet.energy import mean_power
from sim.metrics.fleet.fleet_course import fleet_course
from sim.metrics.latency.gaps import Gaps
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
