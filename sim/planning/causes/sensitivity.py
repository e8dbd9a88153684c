"""Shows how far a decision depends on uncertain inputs: one input at a time, then all.

The decision is whether the SLO is met, or without one whether the traffic is held. Each input is
moved to its low and to its high end, with everything else unchanged and the same traffic. In the
end all are moved together to the ends at which each of them alone was worse.

In the ``document`` changes of metrics are relative (0.1: a tenth more); ``effect`` is a factor less
1 (0.1: a tenth better, over all metrics).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.metrics.bands.trust import trust
from sim.metrics.states import State, too_short_for
from sim.metrics.words.slo_text import slo_doubts
from sim.planning.causes.uncertain import Input, uncertain
from sim.planning.contrast.gains import (
    CAPACITY,
    LATENCIES,
    THROUGHPUT,
    Figures,
    Gained,
    GainFigure,
    figure_rows,
    figures_of,
    gained,
)
from sim.planning.load.loads import LoadAxis, Scale
from sim.planning.points.executors import Executor
from sim.planning.points.figures import is_open
from sim.planning.points.footnote_words import footnotes, sure_of
from sim.planning.points.points import Outcome, Settings
from sim.planning.points.study import Study, Tell, head, running, setup_text
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


def document(found: Sensitivity) -> dict[str, Any]:
    """The content of ``result.json``."""
    base, own, sure = figures_of(found.base), found.base["infersim"], _trust(found)
    decision, also = _answer(found)
    return {
        **head("sensitivity", found.scenario),
        "setup": setup_text(found.base),
        "verdict": own["verdict"],
        "holds": found.holds,
        "trust": sure,
        "question": _question(found),
        "answer": f"{decision}{also}" + ("" if sure is None else f" That is {sure}."),
        "short": decision,
        "flips": [swing.input.name for swing in found.ordered if _flips(found, swing)],
        "band": found.band,
        "figures": figure_rows(found.base),
        "inputs": [_swing(found, swing, base) for swing in found.ordered],
        "together": None if found.together is None else _end_row(found.together, base),
        "scaling": LoadAxis(found.scenario, "rate", None, found.scale).scaling,
        "footnotes": footnotes(_verdicts(found)),
        "sure": sure_of(found.base),
        "notes": own["notes"],
    }


def _verdicts(found: Sensitivity) -> list[Mapping[str, Any]]:
    """The verdicts of all rows of the table."""
    ends = [end for swing in found.ordered for end in swing.ends]
    ends += [] if found.together is None else [found.together]
    summaries = [found.base, *(end.outcome.summary for end in ends)]
    return [summary["infersim"]["verdict"] for summary in summaries if summary is not None]


def _question(found: Sensitivity) -> str:
    limits = found.base["infersim"]["verdict"]["limits"]
    return "Is the SLO met?" if limits else "Is the traffic held?"


def _trust(found: Sensitivity) -> str | None:
    """How sure the decision is: sure if no input flips it within its range, nor all worse ends
    together; likely if no input alone does. None where there is no decision."""
    if found.holds is None:
        return None
    alone = not any(_flips(found, swing) or any(map(_open, swing.ends)) for swing in found.swings)
    together = found.together
    all_of_them = together is None or (together.holds == found.holds and not _open(together))
    decided = not is_open(found.base)
    return trust(decided=decided, at_band=alone and (all_of_them or not found.holds), at_half=alone)


def _flips(found: Sensitivity, swing: Swing) -> bool:
    return any(end.holds != found.holds for end in swing.ends)


def _answer(found: Sensitivity) -> tuple[str, str]:
    """The decision and what flips it, in a sentence; and another on what leaves it open, or
    nothing."""
    if found.holds is None:
        none = "There is no verdict to flip: neither an SLO nor arrivals that could be too many."
        return none, ""
    text = f"{_question(found)} {_now(found)}"
    flipping = _named(found, lambda end: end.holds != found.holds and not _open(end))
    opening = _named(found, _open)
    also = f" Too close to call: {opening}." if opening else ""
    if all(_open(end) for swing in found.swings for end in swing.ends):
        also = " Every input leaves it too close to call, at either end."
    if flipping:
        return f"{text}, but it flips with {flipping}.", also
    text += f", and no input alone {'is sure to flip' if opening else 'flips'} it within its range"
    if found.together is None or found.holds is False:
        return f"{text}.", also
    both = "nor do all worse ends together" if found.together.holds else "all together do"
    if _open(found.together):
        both = "all worse ends together are too close to call"
    return f"{text}; {both}.", also


def _open(end: End) -> bool:
    return is_open(end.outcome.summary)


def _now(found: Sensitivity) -> str:
    """The decision of the scenario unchanged, in a word."""
    if is_open(found.base):
        word = "met" if found.holds else "missed"
        if too_short_for(slo_doubts(found.base["infersim"]["verdict"])):
            return f"Too close to call, {word} so far"
        return f"Too close to call, {word} at the predicted times"
    return "Yes" if found.holds else "No"


def _named(found: Sensitivity, wanted: Callable[[End], bool]) -> str:
    """The inputs with ends that are ``wanted``, and those ends."""
    named = []
    for swing in found.ordered:
        ends = [end.text for end in swing.ends if wanted(end)]
        if ends:
            named.append(f"{swing.input.title} {' or '.join(ends)}")
    return "; ".join(named)


def _swing(found: Sensitivity, swing: Swing, base: Figures) -> dict[str, Any]:
    each = swing.input
    return {
        "name": each.name,
        "title": each.title,
        "missing": each.missing or None,
        "flips": _flips(found, swing),
        "width": math.expm1(swing.width),
        "low": None if swing.low is None else _end_row(swing.low, base),
        "high": None if swing.high is None else _end_row(swing.high, base),
    }


def _end_row(end: End, base: Figures) -> dict[str, Any]:
    return {
        "text": end.text,
        "settings": dict(end.settings),
        **end.document(base),
        "holds": end.holds,
        **{key: end.judged(key) for key in ("attainment", "state", "slo_state")},
    }
