"""Finds what limits a run and what to change first, if anything, by runs with each change.

Each counterfactual meets the same traffic. Its **effect** is the mean of its gains in the metrics
of ``planning.contrast.gains`` (natural logarithms; each within a factor of ten). The what-if
that helps a metric most names what limits it.

Where the SLO is missed, advice begins with what meets it, the least effort first and doubtful ones
after sure ones, then what brings the most requests within it per effort. Where it is met, where
there is none, or where no change brings requests within it, advice is ranked by effect per effort.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.band_runs import run_ends
from sim.errors import InfeasibleError
from sim.metrics.fleet.rejection import Rejection, rejection
from sim.metrics.latency.latency_parts import PARTS, TTFT_PARTS, latency_parts
from sim.metrics.load.long_enough import FULL
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import DoubtKind, SloState, State, too_short_for
from sim.metrics.words.slo_text import slo_doubts
from sim.planning.causes.counterfactuals import (
    PROBE,
    SAVING,
    Counterfactual,
    Shortage,
    counterfactuals,
)
from sim.planning.contrast.gains import CAPACITY, FIGURES, Gained, gained
from sim.planning.points.evaluate import check_served
from sim.planning.points.executors import Executor
from sim.planning.points.figures import meets, slo_state
from sim.planning.points.points import Outcome
from sim.planning.points.study import Study, Tell
from sim.request import Refusal
from sim.scenario import Scenario
from sim.simulation import simulate

Means = Mapping[str, float]

SLOWEST = 0.01
"""Share of the requests that counts as the slowest: those beyond the p99."""


def mean_parts(run: RunRecord) -> dict[str, Means]:
    """The mean parts of ``ttft`` and ``e2el`` of the requests that count, and of those whose TTFT
    and E2EL are the longest (``slowest_ttft``, ``slowest_e2el``); empty if no request counts."""
    counted = run.completed & ~run.warmup
    if not counted.any():
        return {}
    parts = latency_parts(run)
    found: dict[str, Means] = {}
    for name, latency, of in (("ttft", run.ttft, TTFT_PARTS), ("e2el", run.e2el, PARTS)):
        limit = np.quantile(latency[counted], 1 - SLOWEST)
        slowest = counted & (latency >= limit)
        found[name] = {part: 1e3 * float(parts[part][counted].mean()) for part in of}
        found[f"slowest_{name}"] = {part: 1e3 * float(parts[part][slowest].mean()) for part in of}
    return found


WORTH = math.log(1.02)
"""Effects below 2 % are not mentioned: the order of events alone makes as much."""

WORTH_SHARE = 0.01
"""Requests within the SLO, as a share of all, that make a change worth mentioning whatever else it
does."""


@dataclass(frozen=True)
class Trial(Gained):
    """A counterfactual and what came of it; ``rejects`` is the share of the requests that only it
    rejects. Its capacity is then that of other traffic, and left out."""

    change: Counterfactual
    rejects: float = 0.0

    @classmethod
    def of(cls, base: Mapping[str, Any], outcome: Outcome, change: Counterfactual) -> Trial:
        """The trial of ``change`` with that ``outcome``, against the summary of the ``base``."""
        rejects = 0.0 if outcome.summary is None else _rejected(outcome.summary) - _rejected(base)
        left_out = () if rejects <= 0 else (CAPACITY.key,)
        return cls(*gained(base, outcome, lambda _: FIGURES, left_out), change, max(0.0, rejects))

    @property
    def rank(self) -> float:
        """Effect per effort."""
        return (self.effect or 0.0) / (self.change.effort.weight or math.inf)

    @property
    def slo(self) -> str | None:
        """Whether its run met the SLO, missed it, or leaves it open; None without a verdict."""
        return None if self.verdict is None else slo_state(self.verdict)

    @property
    def meets(self) -> bool:
        """Whether its run is within the SLO beyond doubt."""
        return meets(self.outcome.summary)

    @property
    def is_predicted(self) -> bool:
        """Whether its run is within the SLO at the predicted times, sure or not."""
        return bool(self.verdict and self.verdict["slo_met"])


def _rejected(summary: Mapping[str, Any]) -> float:
    """The share of the requests of a run that could never be served."""
    requests = summary["infersim"]["requests"]
    late = requests["rejected_reasons"].get(Refusal.LATE, 0)
    return float((requests["rejected"] - late) / max(1, requests["submitted"]))


@dataclass(frozen=True)
class Diagnosis:
    """``base`` is the summary of the scenario unchanged, ``latency`` where the time of its requests
    went, ``rejection`` the requests that it rejects (None without any); ``target`` is what commands
    in advice name, ``given`` the overrides that they repeat.
    """

    scenario: Scenario
    target: str
    given: Sequence[str]
    base: Mapping[str, Any]
    latency: Mapping[str, Means]
    rejection: Rejection | None
    trials: Sequence[Trial]

    @property
    def verdict(self) -> Mapping[str, Any]:
        """The verdict on the unchanged scenario."""
        found: Mapping[str, Any] = self.base["infersim"]["verdict"]
        return found

    @property
    def slo(self) -> str | None:
        """Whether the SLO is met, missed, or too close to call; None without one."""
        return slo_state(self.verdict)

    @property
    def misses(self) -> bool:
        """Whether the SLO is missed, or the traffic cannot be held, sure or not."""
        met = self.verdict["slo_met"]
        return met is not None and not (met and self.verdict["state"] != State.OVERLOADED)

    @property
    def at_ease(self) -> bool:
        """Whether nothing needs to change: the SLO is met beyond doubt and there is room."""
        peak = self.verdict["peak_utilisation"]
        room = self.verdict["state"] == State.STABLE and (peak is None or peak < FULL)
        return meets(self.base) and self.slo == SloState.MET and room

    @property
    def limits(self) -> list[Trial]:
        """The changes that ran and show a limit, the largest effect first."""
        ran = [t for t in self.trials if t.change.bound and t.effect is not None]
        return sorted(ran, key=lambda trial: -(trial.effect or 0.0))

    def helping(self, key: str) -> Trial | None:
        """The limit whose change helps one figure most; None if none is worth mentioning."""
        ran = [t for t in self.limits if (t.gains.get(key) or 0.0) > WORTH]
        return max(ran, key=lambda trial: trial.gains[key] or 0.0, default=None)

    def gained(self, trial: Trial) -> float:
        """The requests that a change brings within the SLO, as a share of all."""
        before, verdict = self.verdict["attainment"], trial.verdict
        if before is None or verdict is None:
            return 0.0
        return float(verdict["attainment"] or 0.0) - float(before)

    @property
    def open_by_band(self) -> bool:
        """Whether the error band leaves the SLO open, so that a longer run would not decide it."""
        doubts = slo_doubts(self.verdict) if self.slo == SloState.OPEN else []
        return DoubtKind.BAND in doubts and not too_short_for(doubts)

    @property
    def by_slo(self) -> bool:
        """Whether the advice begins with what meets the SLO, or brings requests within it."""
        return bool(self._serving) or self._at_the_band

    @property
    def advice(self) -> list[Trial]:
        """The actions that are worth it, best first."""
        if self._serving:
            return sorted(self._serving, key=self._order)
        worth = [t for t in self._actions if (t.effect or 0) > WORTH]
        return sorted(worth, key=self._order if self._at_the_band else lambda t: (-t.rank,))

    @property
    def _actions(self) -> list[Trial]:
        tried = (t for t in self.trials if not t.rejects)
        return [t for t in tried if t.change.effort not in (PROBE, SAVING)]

    @property
    def _serving(self) -> list[Trial]:
        """The actions that bring requests within an SLO that is missed, and serve no fewer of them
        each second."""
        found = [t for t in self._actions if self.misses and self.gained(t) > WORTH_SHARE]
        return [t for t in found if t.meets or (t.gains.get("request_goodput") or 0.0) >= 0]

    @property
    def _at_the_band(self) -> bool:
        """Whether some action meets an SLO that only the error band leaves open."""
        worth = (t for t in self._actions if (t.effect or 0) > WORTH)
        return self.open_by_band and any(t.meets for t in worth)

    def _order(self, trial: Trial) -> tuple[float, ...]:
        weight = trial.change.effort.weight
        shares = round(self.gained(trial) / weight, 3)
        doubt = 0 if trial.meets else 1 if trial.is_predicted else 2
        return doubt, weight if doubt < 2 else 0.0, -shares, -trial.rank

    @property
    def rerouted(self) -> Trial | None:
        """The other router that brings the most requests within the SLO, of a fleet whose router
        sends one replica more work than others; None if none brings any that are worth it."""
        if "busiest_replica" not in self.verdict:
            return None
        found = (t for t in self._serving if set(t.change.settings) == {"router"})
        return max(found, key=self.gained, default=None)

    @property
    def savings(self) -> list[Trial]:
        """The smaller fleets that were tried."""
        return [t for t in self.trials if t.change.effort is SAVING]


def diagnose(
    scenario: Scenario,
    executor: Executor,
    *,
    target: str,
    given: Sequence[str] = (),
    tell: Tell | None = None,
) -> Diagnosis:
    """Simulate ``scenario``, and each of its counterfactuals; all are judged at both ends of the
    error band, as ``infersim run`` judges them.

    Raises InfeasibleError if the scenario itself does not run, and whatever ``simulate`` raises.
    """
    result = simulate(scenario)
    base = result.summary
    try:
        check_served(base)
    except InfeasibleError as error:
        raise InfeasibleError("the scenario itself does not run", str(error)) from None
    ends = run_ends(scenario, base)
    if ends is not None:
        result.add_ends(ends)
    rejected = rejection(result.record)
    own = base["infersim"]
    evicted = own.get("prefix_cache", {}).get("evicted") or 0
    shortage = Shortage(evicted, own["preemptions"] or 0)
    uneven = "busiest_replica" in own["verdict"]
    changes = counterfactuals(scenario, rejected, shortage, uneven=uneven)
    study = Study(scenario, executor, tell)
    outcomes = study.variants(((c.title, c.settings) for c in changes), at_ends=True)
    trials = [
        Trial.of(base, outcome, change) for change, outcome in zip(changes, outcomes, strict=True)
    ]
    parts = mean_parts(result.record)
    return Diagnosis(scenario, target, given, base, parts, rejected, trials)
