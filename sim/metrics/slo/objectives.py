"""Provides the SLO's limits, and how runs met them: for the verdict and for every decision.

Seconds; shares of requests, 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.loop.recorder import REJECTED as STATUS_REJECTED
from sim.metrics.latency.intervals import enough_to_decide, inflation, wilson
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import Unserved
from sim.scenario import Scenario
from sim.scenario.sections.slo import METRICS
from sim.units import show_time

USUAL_SHARE = 0.99
"""Share whose latency is shown where there is no SLO: the p99."""

MOST_TO_DECIDE = 1e8
"""Requests beyond which no number is given: too many to simulate for one load."""

ROUNDING = 1e-9
"""Requests by which a product such as 0.07 * 100 may exceed the whole number it stands for."""


@dataclass(frozen=True)
class Objective:
    """At least ``share`` of the requests keep every one of ``limits`` (metric -> seconds).

    ``percentile`` is that of a limit which is judged apart from the others, as ``ttft_p95`` is.
    """

    limits: Mapping[str, float]
    share: float
    percentile: int | None = None

    def name(self, metric: str) -> str:
        """The name of the limit of ``metric``: ``ttft``, or ``ttft_p95`` if judged apart."""
        return metric if self.percentile is None else f"{metric}_p{self.percentile}"

    def stretched(self, factor: float, metric: str | None = None) -> Objective:
        """The objective with limits that are ``factor`` times as long: all, or that of one
        ``metric``."""
        limits = {
            name: limit * (factor if metric in (None, name) else 1.0)
            for name, limit in self.limits.items()
        }
        return replace(self, limits=limits)

    @property
    def text(self) -> str:
        """The objective in words.

        >>> Objective({"ttft": 0.5, "tpot": 0.04}, 0.99).text
        '99% of requests within TTFT 500 ms and TPOT 40 ms'
        """
        told = [f"{name.upper()} {show_time(limit)}" for name, limit in self.limits.items()]
        return f"{100 * self.share:.6g}% of requests within {' and '.join(told)}"


def slo_objectives(scenario: Scenario) -> tuple[Objective, ...]:
    """The limits of the scenario's ``slo``: those that requests meet together, then those of
    single percentiles."""
    slo = scenario.slo
    together = (Objective(slo.together, slo.attainment),) if slo.together else ()
    apart = (
        Objective({each.metric: each.limit}, each.percentile / 100, each.percentile)
        for each in slo.apart
    )
    return (*together, *apart)


def limits_ms(objectives: Sequence[Objective]) -> dict[str, float]:
    """The tightest limit of each metric, in milliseconds, whatever share must meet it."""
    limits: dict[str, float] = {}
    for objective in objectives:
        for name, limit in objective.limits.items():
            limits[name] = min(1e3 * limit, limits.get(name, math.inf))
    return limits


def judged_by(objectives: Sequence[Objective]) -> dict[str, Any]:
    """The criterion for a fleet to hold a load, as plan documents state it."""
    return {
        "criterion": "promises" if objectives else "stable",
        "promises": [objective.text for objective in objectives],
        "limits_ms": limits_ms(objectives),
        "shares": shown_shares(objectives),
    }


def shown_shares(objectives: Sequence[Objective]) -> dict[str, float]:
    """For each metric the share whose latency tables and figures show: that of the first objective
    that limits it, else of the first objective, else the usual one.

    >>> shown_shares([Objective({"ttft": 0.5}, 0.95)])["ttft"], shown_shares([])["tpot"]
    (0.95, 0.99)
    """
    usual = objectives[0].share if objectives else USUAL_SHARE
    return {
        name: next((each.share for each in objectives if name in each.limits), usual)
        for name in METRICS
    }


class KeptLimit(NamedTuple):
    """How one limit was kept: the ``share`` of requests within it, the ``target`` share, and the
    ``pressure``, the latency at the target share over the limit (above 1: broken)."""

    name: str
    share: float
    target: float
    pressure: float

    @property
    def used(self) -> float:
        """The requests beyond the limit, as a multiple of those that the target allows."""
        missed = 1 - self.share
        if missed <= 0:
            return 0.0
        return missed / (1 - self.target) if self.target < 1 else math.inf


def first_to_break(limits: Iterable[KeptLimit]) -> str | None:
    """The limit that the most requests exceed, measured by how many may; None without limits.

    Where none exceed any, the limit that latencies come closest to.

    >>> first_to_break([KeptLimit("ttft", 0.98, 0.99, 2.4), KeptLimit("tpot", 0.70, 0.99, 1.3)])
    'tpot'
    >>> first_to_break([KeptLimit("ttft", 1.0, 0.99, 0.4), KeptLimit("tpot", 1.0, 0.99, 0.7)])
    'tpot'
    """
    worst = max(limits, key=lambda each: (each.used, each.pressure), default=None)
    return None if worst is None else worst.name


UnservedShares = Mapping[Unserved, float]
"""Shares of requests by what became of those that were not served."""


@dataclass(frozen=True)
class SeenShare:
    """How one run met a limit of the SLO: which of the judged requests ``kept`` it, by arrival.

    For each limit, ``within`` has the share of requests that keep it, and ``pressure`` the latency
    at the wanted share over the limit: above 1 it is broken. ``strain`` is the pressure of
    all limits together: by what they had to be multiplied for the wanted share to keep them.
    ``unserved`` are the shares of requests that no limit counts as kept: rejected, lost, timed out.
    """

    kept: NDArray[np.bool_]
    pressure: Mapping[str, float]
    within: Mapping[str, float]
    strain: float = 0.0
    unserved: UnservedShares = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """A run's evidence on limits whose values may still change: of each metric the latencies (s) of
    the requests that judge all limits ``together``, and of those that judge this one ``alone``, by
    arrival. Infinite where a request was not completed, NaN where it has no such latency."""

    together: Mapping[str, NDArray[np.float64]]
    alone: Mapping[str, NDArray[np.float64]]
    completed: NDArray[np.bool_]
    unserved: UnservedShares

    def seen(self, objective: Objective) -> SeenShare:
        """How the run met ``objective``, which limits the same metrics."""
        kept, worst = self.completed, np.where(self.completed, np.nan, np.inf)
        pressure, within = {}, {}
        for name, limit in objective.limits.items():
            kept = kept & _keeps(self.together[name], limit)
            worst = np.fmax(worst, self.together[name] / limit)
            held = _keeps(self.alone[name], limit)
            within[name] = float(held.mean()) if len(held) else 0.0
            pressure[name] = _at_share(self.alone[name], objective.share) / limit
        strain = _at_share(worst, objective.share)
        return SeenShare(kept, pressure, within, strain, self.unserved)


def _keeps(latency: NDArray[np.float64], limit: float) -> NDArray[np.bool_]:
    return np.asarray(np.isnan(latency) | (latency <= limit))


def judged(run: RunRecord, limits: Mapping[str, float]) -> Judged:
    """The evidence of ``run`` on the metrics of ``limits``: without warm-up; requests that were not
    completed missed them. A request whose client went away before a limit had passed is set aside:
    no share counts it."""
    rows = run.judged(limits)
    reached = {name: _reached(run, name) for name in limits}
    gone = {
        Unserved.REJECTED: run.requests["status"] == STATUS_REJECTED,
        Unserved.LOST: run.lost,
        Unserved.TIMED_OUT: run.timed_out,
    }
    return Judged(
        together={name: latency[rows] for name, latency in reached.items()},
        alone={name: reached[name][run.judged({name: limits[name]})] for name in limits},
        completed=run.completed[rows],
        unserved={why: float(each[rows].mean()) for why, each in gone.items() if rows.any()},
    )


def look(run: RunRecord, objective: Objective) -> SeenShare:
    """How ``run`` met ``objective``. Requests of one output token have no TPOT, and keep any limit
    of it."""
    return judged(run, objective.limits).seen(objective)


def held_by(run: RunRecord, metric: str, limit: float) -> NDArray[np.bool_]:
    """Which of the judged requests were completed within ``limit`` of one metric (inclusive)."""
    return _keeps(_reached(run, metric)[run.judged({metric: limit})], limit)


def latency_at(run: RunRecord, metric: str, limit: float, share: float) -> float:
    """The latency at this share of the served requests which ``limit`` of it judges, interpolated
    as the percentiles of the summary are; infinite if fewer of all were served than that, 0 if none
    of them has such a latency."""
    rows = run.judged({metric: limit})
    latencies = run.latency(metric)[rows & run.completed]
    latencies = latencies[~np.isnan(latencies)]
    if int(run.completed[rows].sum()) < share * int(rows.sum()) - ROUNDING:
        return math.inf
    return float(np.percentile(latencies, 100 * share)) if len(latencies) else 0.0


def _reached(run: RunRecord, metric: str) -> NDArray[np.float64]:
    """The latency of each request, infinite of those that were not completed."""
    return np.where(run.completed, run.latency(metric), np.inf)


def _at_share(values: NDArray[np.float64], share: float) -> float:
    """The value that this share does not exceed; what is not defined does not count."""
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        return 0.0
    rank = math.ceil(share * len(values) - ROUNDING)
    return float(values[max(0, min(len(values), rank) - 1)])


@dataclass(frozen=True)
class Attained:
    """How runs together met a limit of the SLO: the share of ``requests``, its 95 % interval
    (Wilson) with as many independent ones as they are worth (``effective``), each limit, the mean
    ``strain`` of the runs, and the mean shares that were ``unserved``.
    """

    objective: Objective
    share: float
    low: float
    high: float
    limits: tuple[KeptLimit, ...]
    requests: int
    effective: float
    strain: float = 0.0
    unserved: UnservedShares = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether the limit was met, sure or not."""
        return self.share >= self.objective.share

    @property
    def sure(self) -> bool:
        """Whether the interval leaves no doubt whether the limit is met."""
        return self.low >= self.objective.share or self.high < self.objective.share

    @property
    def pressure(self) -> Mapping[str, float]:
        """For each limit, the latency at the wanted share over the limit."""
        return {limit.name: limit.pressure for limit in self.limits}

    @property
    def to_decide(self) -> int | None:
        """Requests, to two digits, with which the interval will probably leave no doubt; None where
        it leaves none, or where no number of them would do."""
        if self.sure or not self.effective:
            return None
        needed = enough_to_decide(self.share, self.objective.share, self.effective)
        wanted = self.requests / self.effective * needed
        if wanted > MOST_TO_DECIDE:
            return None
        unit = int(10 ** max(0, math.floor(math.log10(wanted)) - 1))
        return math.ceil(wanted / unit) * unit

    @property
    def rejected(self) -> float:
        """The share that was rejected."""
        return self.unserved.get(Unserved.REJECTED, 0.0)

    @property
    def hopeless(self) -> bool:
        """Whether more requests are rejected than may miss the limits: no speed would help."""
        return self.rejected > 1 - self.objective.share

    @property
    def tightest(self) -> str:
        """The first to break: a limit, or the fate of unserved requests where that does more. Of an
        objective that is kept, the limit that comes closest to breaking."""
        if self.kept:
            return str(first_to_break(self.limits))
        target, gone = self.objective.share, sum(self.unserved.values())
        most = next((why for why, share in self.unserved.items() if share > 1 - target), None)
        if most is not None:
            return most
        served = (limit._replace(share=limit.share + gone) for limit in self.limits)
        others = (KeptLimit(why, 1 - share, target, 0.0) for why, share in self.unserved.items())
        return str(first_to_break([*served, *others]))


def pooled(
    objective: Objective, runs: Sequence[SeenShare], memory: float | None = None
) -> Attained:
    """The joint result of independent runs.

    Neighbouring requests share a queue, and the requests of a run its luck: batch means over all
    runs say how many independent requests they are worth (``precision.inflation``, as is
    ``memory``).
    """
    kept = np.concatenate([run.kept for run in runs])
    share = float(kept.mean()) if len(kept) else 0.0
    effective = len(kept) / inflation(kept, memory) if len(kept) else 0.0
    low, high = wilson(share, effective)
    limits = tuple(
        KeptLimit(
            name=objective.name(metric),
            share=float(np.mean([run.within[metric] for run in runs])),
            target=objective.share,
            pressure=float(np.mean([run.pressure[metric] for run in runs])),
        )
        for metric in objective.limits
    )
    strain = float(np.mean([run.strain for run in runs]))
    reasons = dict.fromkeys(why for run in runs for why in run.unserved)
    unserved = {
        why: float(np.mean([run.unserved.get(why, 0.0) for run in runs])) for why in reasons
    }
    return Attained(objective, share, low, high, limits, len(kept), effective, strain, unserved)


def breaks_first(found: Sequence[Attained]) -> Attained:
    """The limit to name: one that is missed before those that are met, and of these the one that
    the most requests miss, measured by how many may."""

    def strain(each: Attained) -> tuple[bool, bool, float, float]:
        allowed = 1 - each.objective.share
        missed = (1 - each.share) / allowed if allowed else 1 - each.share
        return not each.kept, each.hopeless, missed, max(each.pressure.values())

    return max(found, key=strain)
