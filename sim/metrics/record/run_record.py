"""Provides the record of a run with what is computed of it once: pools, warm-up, attribution.

The metrics of ``sim.metrics`` and the tables of a run directory are made of these. Times in
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.loop.attempt_rows import CANCELLED
from sim.metrics.record.attribution import Attribution
from sim.metrics.record.cut_short import Cut, cut_short
from sim.metrics.record.links import OpenLinks, open_links
from sim.metrics.record.pools import PoolRun, split, total
from sim.metrics.record.recorded import Recorded
from sim.pools import cold_start_of
from sim.scenario.sections.autoscaling import Autoscaling


@dataclass(frozen=True)
class RunRecord(Recorded):
    """A run's record, and quantities that its metrics share, each computed when first asked for."""

    @cached_property
    def parts(self) -> tuple[PoolRun, ...]:
        """The share of each of its pools."""
        return split(self)

    @cached_property
    def attribution(self) -> Attribution:
        """Where the busy time went, in all pools."""
        return total([part.attribution for part in self.parts])

    @cached_property
    def open_links(self) -> OpenLinks | None:
        """The effect of the other case of links, where it is unknown how cards reach each other."""
        return None if self.observed else open_links(self.parts, self.scenario.assume.link)

    @cached_property
    def cut(self) -> Cut | None:
        """How it ended before its traffic did; None if it did not."""
        return cut_short(self)

    @cached_property
    def warmup(self) -> NDArray[np.bool_]:
        """The requests that are left out of the latency statistics."""
        return warmup(self, self.parts)

    @cached_property
    def found(self) -> NDArray[np.int64]:
        """Tokens of each prompt that were in a prefix cache when it was first admitted."""
        if len(self.parts) == 1:
            return self.parts[0].found
        found = np.zeros(len(self.requests), dtype=np.int64)
        for part in self.parts:
            found[part.places] = part.found
        return found

    def judged(self, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """The requests that say whether ``limits`` are met: all but the warm-up and those that are
        set aside."""
        return ~(self.warmup | self.set_aside(limits))

    @property
    def span(self) -> float:
        """Seconds of the run, of all ranks together."""
        if any(part.held is not None for part in self.parts):
            return sum(part.span for part in self.parts)
        return self.duration * self.ranks


Floats = NDArray[np.float64]


def warmup(run: Recorded, parts: Sequence[PoolRun]) -> NDArray[np.bool_]:
    """The requests that are left out: those that the scenario says, else a start that differs from
    the rest while requests arrive at a steady rate.

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
