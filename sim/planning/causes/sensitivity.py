"""Shows how far a decision depends on uncertain inputs: one input at a time, then all.

The decision is whether the SLO is met, or without one whether the traffic is held. Each input is
moved to its low and to its high end, with everything else unchanged and the same traffic. In the
end all are moved together to the ends at which each of them alone was worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.metrics.states import State
from sim.planning.causes.uncertain import Input, uncertain
from sim.planning.contrast.gains import (
    CAPACITY,
    LATENCIES,
    THROUGHPUT,
    Figures,
    Gained,
    GainFigure,
    gained,
)
from sim.planning.load.loads import Scale
from sim.planning.points.executors import Executor
from sim.planning.points.points import Outcome, Settings
from sim.planning.points.study import Study, Tell, running
from sim.scenario import Scenario

STRAIN = (*LATENCIES, CAPACITY)
"""The figures that say how hard the traffic is on the fleet. Throughput does not, where more of it
comes of more traffic; it counts only where there is no capacity to compare."""


@dataclass(frozen=True)
class End(Gained):
    """One input at one end, in a ``text``: what came of it, and what is decided then."""

    text: str

    @property
    def settings(self) -> Settings:
        """The settings of the end."""
        return self.outcome.point.settings

    @property
    def holds(self) -> bool | None:
        """The decision there: none holds where nothing runs."""
        return False if self.outcome.summary is None else decision(self.outcome.summary)


@dataclass(frozen=True)
class Swing:
    """An input with its ends; None for an end that it does not have."""

    input: Input
    low: End | None
    high: End | None

    @property
    def ends(self) -> list[End]:
        """The ends that there are."""
        return [end for end in (self.low, self.high) if end is not None]

    @property
    def width(self) -> float:
        """How far apart the effects of both ends are, the truth among them."""
        effects = [0.0, *(end.effect for end in self.ends if end.effect is not None)]
        return max(effects) - min(effects)

    @property
    def worse(self) -> End | None:
        """The end that hurts, if one does: the one that does not run at all before any other."""
        broken = [end for end in self.ends if end.effect is None]
        hurting = [end for end in self.ends if end.effect is not None and end.effect < 0]
        return broken[0] if broken else min(hurting, key=lambda e: e.effect or 0.0, default=None)


@dataclass(frozen=True)
class Sensitivity:
    """``base`` is the summary of the scenario unchanged; ``together`` what comes of all worse ends
    at once, None if no end hurts, ``scale`` how a trace gets another rate."""

    scenario: Scenario
    base: Mapping[str, Any]
    band: float
    swings: Sequence[Swing]
    together: End | None
    scale: Scale = "compress"

    @property
    def holds(self) -> bool | None:
        """The decision of the scenario unchanged."""
        return decision(self.base)

    @property
    def ordered(self) -> list[Swing]:
        """The swings, the widest first."""
        return sorted(self.swings, key=lambda swing: -swing.width)


def decision(summary: Mapping[str, Any]) -> bool | None:
    """Whether the SLO is met; without one, whether the traffic is held. None where neither is a
    question."""
    verdict = summary["infersim"]["verdict"]
    if verdict["slo_met"] is not None:
        return bool(verdict["slo_met"])
    if verdict["state"] in (State.OFFLINE, State.CLOSED_LOOP, State.NOTHING_SERVED):
        return None
    return bool(verdict["state"] != State.OVERLOADED)


def sensitivity(
    scenario: Scenario,
    executor: Executor,
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    scale: Scale = "compress",
    tell: Tell | None = None,
) -> Sensitivity:
    """Move every uncertain input of ``scenario`` to both of its ends; ``ranges`` replace the usual,
    and ``scale`` says how a trace gets another rate.

    Raises UsageError for a range of nothing, InfeasibleError if the scenario itself does not run.
    """
    chosen = ranges or {}
    uncertain(scenario, 0.0, chosen, scale)  # complains before anything is simulated
    study = Study(scenario, executor, tell)
    base = running(study.one("as it is", {}, at_ends=True))
    band = float(base["infersim"]["error_band"]["throughput"] or 0.0)
    inputs = uncertain(scenario, band, chosen, scale)
    made = iter(
        study.variants(
            (f"{each.title} {text}", settings)
            for each in inputs
            for settings, text in zip((each.low, each.high), each.texts, strict=True)
            if settings is not None
        )
    )
    swings = [
        Swing(
            each,
            None if each.low is None else _end(base, next(made), each.texts[0]),
            None if each.high is None else _end(base, next(made), each.texts[1]),
        )
        for each in inputs
    ]
    together = _together(study, base, swings)
    return Sensitivity(scenario, base, band, swings, together, scale)


def _end(base: Mapping[str, Any], outcome: Outcome, text: str) -> End:
    return End(*gained(base, outcome, _strain), text)


def _strain(found: Figures) -> Sequence[GainFigure]:
    """The figures whose gains make the effect of an end."""
    return STRAIN if found[CAPACITY.key] is not None else (THROUGHPUT, *STRAIN)


def _together(study: Study, base: Mapping[str, Any], swings: Sequence[Swing]) -> End | None:
    """All worse ends at once; arrivals of another kind bring the other rate with them."""
    merged: dict[str, object] = {}
    for swing in swings:
        if swing.worse is None:
            continue
        settings = dict(swing.worse.settings)
        law, rate = settings.get("workload.arrivals"), merged.get("workload.arrivals.rate")
        if isinstance(law, dict) and rate is not None:
            settings["workload.arrivals"] = {**law, "rate": rate}
            del merged["workload.arrivals.rate"]
        merged |= settings
    if not merged:
        return None
    return _end(base, study.one("all together", merged), "all worse ends together")
