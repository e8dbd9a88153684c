"""Provides the SLO's limits, and how runs met them: for the verdict and for every decision.

Seconds; shares of requests, 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.loop.recorder import REJECTED as STATUS_REJECTED
from sim.metrics.first_limit import KeptLimit, first_to_break
from sim.metrics.intervals import enough_to_decide, inflation, wilson
from sim.metrics.run_record import RunRecord
from sim.scenario import Scenario
from sim.scenario.sections.slo import METRICS
from sim.units import show_time

REJECTED = "rejected"
"""What breaks the SLO where requests are rejected: an entry next to the names of limits."""

LOST = "lost"
"""The same where requests are lost with a replica, or find none."""

TIMED_OUT = "timed_out"
"""The same where clients stop waiting for their answers."""

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
        """What the limit of ``metric`` is called: ``ttft``, or ``ttft_p95`` if judged apart."""
        return metric if self.percentile is None else f"{metric}_p{self.percentile}"

    def stretched(self, factor: float) -> Objective:
        """The same with limits that are ``factor`` times as long."""
        limits = {name: factor * limit for name, limit in self.limits.items()}
        return replace(self, limits=limits)

    @property
    def text(self) -> str:
        """As people say it.

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
    """What decides whether a fleet holds a load, as the documents of plans have it."""
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


@dataclass(frozen=True)
class SeenShare:
    """How one run met a limit of the SLO: which of the judged requests ``kept`` it, by arrival.

    For each limit, ``within`` has the share of requests that keep it, and ``pressure`` the latency
    at the wanted share over the limit: above 1 it is broken. ``rejected`` is the share of
    requests that were rejected, which no limit counts as kept, ``lost`` that of those which were
    lost with a replica, or found none, and not sent again, ``timed_out`` that of those whose
    clients had waited for too long. ``strain`` is the pressure of all limits together: by what they
    had to be multiplied for the wanted share to keep them.
    """

    kept: NDArray[np.bool_]
    pressure: Mapping[str, float]
    within: Mapping[str, float]
    rejected: float = 0.0
    strain: float = 0.0
    lost: float = 0.0
    timed_out: float = 0.0


@dataclass(frozen=True)
class Judged:
    """What a run says of limits whose values may still change: of each metric the latencies (s) of
    the requests that judge all limits ``together``, and of those that judge this one ``alone``, by
    arrival. Infinite where a request was not completed, NaN where it has no such latency."""

    together: Mapping[str, NDArray[np.float64]]
    alone: Mapping[str, NDArray[np.float64]]
    completed: NDArray[np.bool_]
    rejected: float
    lost: float
    timed_out: float

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
        gone = self.lost, self.timed_out
        return SeenShare(kept, pressure, within, self.rejected, strain, *gone)


def _keeps(latency: NDArray[np.float64], limit: float) -> NDArray[np.bool_]:
    return np.asarray(np.isnan(latency) | (latency <= limit))


def judged(run: RunRecord, limits: Mapping[str, float]) -> Judged:
    """What ``run`` says of limits of the metrics of ``limits``: without warm-up; requests that were
    not completed missed them. A request whose client went away before a limit had passed is set
    aside: no share counts it."""
    rows = run.judged(limits)
    reached = {name: _reached(run, name) for name in limits}
    rejected = (run.requests["status"] == STATUS_REJECTED)[rows]
    lost, timed_out = run.lost[rows], run.timed_out[rows]
    return Judged(
        together={name: latency[rows] for name, latency in reached.items()},
        alone={name: reached[name][run.judged({name: limits[name]})] for name in limits},
        completed=run.completed[rows],
        rejected=float(rejected.mean()) if len(rejected) else 0.0,
        lost=float(lost.mean()) if len(lost) else 0.0,
        timed_out=float(timed_out.mean()) if len(timed_out) else 0.0,
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
    (Wilson) with as many independent ones as they are worth (``effective``), each limit, the shares
    that were ``rejected``, ``lost`` and ``timed_out``, and the mean ``strain`` of the runs.
    """

    objective: Objective
    share: float
    low: float
    high: float
    limits: tuple[KeptLimit, ...]
    requests: int
    effective: float
    rejected: float = 0.0
    strain: float = 0.0
    lost: float = 0.0
    timed_out: float = 0.0

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
    def hopeless(self) -> bool:
        """Whether more requests are rejected than may miss the limits: no speed would help."""
        return self.rejected > 1 - self.objective.share

    @property
    def tightest(self) -> str:
        """What breaks first: a limit, or ``REJECTED`` where rejections do more, or ``LOST``, or
        ``TIMED_OUT``. Of an objective that is kept, the limit that comes closest to breaking."""
        if self.kept:
            return str(first_to_break(self.limits))
        if self.hopeless:
            return REJECTED
        if self.lost > 1 - self.objective.share:
            return LOST
        if self.timed_out > 1 - self.objective.share:
            return TIMED_OUT
        unserved = {REJECTED: self.rejected, LOST: self.lost, TIMED_OUT: self.timed_out}
        gone = sum(unserved.values())
        served = (limit._replace(share=limit.share + gone) for limit in self.limits)
        others = (
            KeptLimit(name, 1 - share, self.objective.share, 0.0)
            for name, share in unserved.items()
        )
        return str(first_to_break([*served, *others]))


def pooled(
    objective: Objective, runs: Sequence[SeenShare], memory: float | None = None
) -> Attained:
    """What independent runs say together.

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
    rejected = float(np.mean([run.rejected for run in runs]))
    strain = float(np.mean([run.strain for run in runs]))
    gone = (float(np.mean([getattr(run, name) for run in runs])) for name in (LOST, TIMED_OUT))
    return Attained(
        objective, share, low, high, limits, len(kept), effective, rejected, strain, *gone
    )


def breaks_first(found: Sequence[Attained]) -> Attained:
    """The limit to name: one that is missed before those that are met, and of these the one that
    the most requests miss, measured by how many may."""

    def strain(each: Attained) -> tuple[bool, bool, float, float]:
        allowed = 1 - each.objective.share
        missed = (1 - each.share) / allowed if allowed else 1 - each.share
        return not each.kept, each.hopeless, missed, max(each.pressure.values())

    return max(found, key=strain)
