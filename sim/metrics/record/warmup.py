"""Finds the requests at the start of a run that the statistics leave out.

Times in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.loop.attempt_rows import CANCELLED
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.recorded import Recorded
from sim.pools import cold_start_of
from sim.scenario.sections.autoscaling import Autoscaling

Floats = NDArray[np.float64]


def warmup(run: Recorded, parts: Sequence[PoolRun]) -> NDArray[np.bool_]:
    """Which requests are left out: those that the scenario says, else a start that differs from the
    rest while requests arrive at a steady rate.

    The start that is found ends before the first trouble. An outage makes requests slower, a cold
    start keeps them waiting at the gateway, and those that were given up have no latency at all: to
    the search all look like a fleet that is still filling up, and the SLO would be judged without
    what is to be judged.
    """
    count, setting = len(run.requests), run.scenario.run.warmup
    if setting.seconds is not None:
        return np.asarray(run.requests["arrival"] < setting.seconds)
    skipped = setting.requests
    if skipped is None:
        served = np.flatnonzero(run.completed)
        cut = warmup_length(run.e2el[served]) if run.steady_rate is not None else 0
        skipped = min(int(served[cut]), _first_trouble(run), _first_held(run, parts)) if cut else 0
    return np.arange(count) < skipped


def _first_trouble(run: Recorded) -> int:
    """The place of the first request that timed out, was lost or found no replica, or came after
    the first replica had failed; the number of requests where there is none."""
    found = [len(run.requests)]
    if run.attempts is not None:
        failed, outages = run.attempts.failed, run.attempts.outages
        hit = failed["request"][failed["outcome"] != CANCELLED]
        if len(hit):
            found.append(int(np.searchsorted(run.requests["id"], hit.min())))
        if len(outages):
            since = outages["since"].min()
            found.append(int(np.count_nonzero(run.requests["arrival"] < since)))
    return min(found)


def _first_held(run: Recorded, parts: Sequence[PoolRun]) -> int:
    """The place of the first request that waited at the gateway since no replica served; the number
    of requests where there is none.

    Requests are sent to replicas that serve. One that came before its own did was held until then;
    but a replica that decodes is chosen only when the prompt is computed, so there no other one of
    its pool may have served either.
    """
    found = [len(run.requests)]
    asked = run.scenario.autoscaling or Autoscaling()
    for part in parts:
        settings = part.pool.settings
        if run.held is None or settings.scales is None or settings.scales.min:
            continue
        rows = run.held[np.isin(run.held["replica"], settings.numbers)]
        begun = rows["since"] + np.where(rows["since"] > 0, cold_start_of(part.pool, asked), 0.0)
        came = run.reached(part.requests)
        others = np.zeros(len(came), dtype=bool)
        late = others.copy()
        for number, since, until in zip(rows["replica"], begun, rows["until"], strict=True):
            on = (part.requests["replica"] == number) & (part.requests["scheduled"] >= since)
            late |= on & (part.requests["scheduled"] <= until) & (came < since)
            if settings.role == "decode":
                others |= (came >= since) & (came < until)
        places = np.arange(len(run.requests))[part.places][late & ~others]
        found.extend(places[:1].tolist())
    return min(found)


def warmup_length(latency: Floats, batch: int = 5) -> int:
    """How many requests to leave out at the start, by the MSER-5 rule.

    Means of ``batch`` consecutive values; the cut that minimises the squared standard error of what
    is left (White, 1997). A cut at the limit of half the values says that there is no steady part
    to be found, and then nothing is cut.
    """
    count = len(latency) // batch
    if count < 10:
        return 0
    means = latency[: count * batch].reshape(count, batch).mean(axis=1)
    means = means - means.mean()  # squares of differences cancel, squares of latencies would not
    if np.abs(means).max() <= 1e-9 * float(latency.max()):
        return 0
    left = np.arange(count, 0, -1)
    # suffix sums, then the variance of each suffix over its length
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    spread = np.maximum(squares - total**2 / left, 1e-12 * squares[0])  # less is rounding
    error = spread / left**2
    cut = int(np.argmin(error[: count // 2]))
    return cut * batch if cut < 0.9 * (count // 2) else 0
