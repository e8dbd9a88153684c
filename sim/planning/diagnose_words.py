"""Words a diagnosis: whether anything needs to change, and what a change does."""

from __future__ import annotations

import math

from sim.planning.counterfactuals import LONGER
from sim.planning.diagnose import WORTH, Diagnosis, Trial
from sim.planning.gains import CAPACITY, FIGURES, Figure, figures_of
from sim.planning.slo_state import OPEN
from sim.planning.wording import milliseconds, number, share

FACTOR = math.log(3)
"""From this gain on, values say more than a percentage: ``0.13 -> 8.9 requests/s``."""


def headline(found: Diagnosis) -> str:
    """Whether anything needs to change, and what first."""
    verdict = found.verdict
    if verdict["slo_met"] is None:
        return "There is no SLO to meet; the advice is ranked by what it does to all figures."
    kept = f"{share(verdict['attainment'])} of requests are within the limits"
    wanted = f"{share(verdict['target'])} are asked for"
    if found.at_ease:
        return f"Nothing needs to change: {kept}, {wanted}.{_saving(found)}"
    if found.slo == OPEN:
        between = f"{share(verdict['attainment_low'])} to {share(verdict['attainment_high'])}"
        first = f"The SLO is too close to call: {between} of requests are within the limits"
        return (
            f"{first} (95 % interval), {wanted}. Simulate more requests before changing anything."
        )
    if not found.misses:
        return f"The SLO is met, with little room: {kept}, {wanted}.{_saving(found)}"
    meeting = [trial for trial in found.advice if trial.meets]
    cure = (
        f"The least that meets it: {meeting[0].change.title}."
        if meeting
        else f"No single change that was tried meets it.{_accepted(found)}"
    )
    return f"The SLO is missed: only {kept}, {wanted}. {cure}"


def _accepted(found: Diagnosis) -> str:
    """What comes of accepting the requests that are too long, where that was tried."""
    tried = [t for t in found.trials if t.change.name == LONGER and t.verdict is not None]
    if not tried or tried[0].verdict is None:
        return ""
    inside = share(tried[0].verdict["attainment"] or 0.0)
    return (
        f" {tried[0].change.title} accepts all lengths, and then {inside} of requests are within "
        "the limits: the fleet needs more besides."
    )


def _saving(found: Diagnosis) -> str:
    """What becomes of the SLO with a smaller fleet, where there is one."""
    if not found.savings:
        return ""
    trial = found.savings[0]
    word = "would also meet it" if trial.meets else "would miss it"
    return f" {trial.change.title[0].upper()}{trial.change.title[1:]} {word}."


def bound_text(found: Diagnosis) -> str:
    """What limits each figure, and how that differs from the shares of busy time in a run."""
    limited = []
    for figure in FIGURES:
        trial = found.helping(figure.key)
        if trial is not None:
            change = _change(figure, found, trial)
            limited.append(f"{figure.title}: {trial.change.bound} ({trial.change.title}: {change})")
    if not limited:
        return (
            "No hardware limits this run: twice the memory, bandwidth or compute, or no host time, "
            "changes no figure by 2 %. What is left is the traffic itself, or a setting."
        )
    shares = [
        f"{name} {part:.0%}"
        for name, part in found.base["infersim"]["bound_by"].items()
        if part >= 0.01
    ]
    return (
        f"What limits each figure: {'; '.join(limited)}. Busy time as a whole: "
        f"{', '.join(shares)} (what a run calls 'Bound by'); a tail may depend on something else."
    )


def told(found: Diagnosis, trial: Trial) -> str:
    """What a change does: to the share within the SLO first, then to each figure that moves."""
    parts = []
    before, verdict = found.verdict["attainment"], trial.verdict
    if before is not None and verdict is not None:
        met = "SLO met" if trial.meets else "SLO missed"
        after = verdict["attainment"] or 0.0
        moved = f"{share(before)} -> {share(after)}" if after != before else f"still {share(after)}"
        parts.append(f"{met}, {moved} of requests within the limits")
    for figure in FIGURES:
        gain = trial.gains.get(figure.key)
        if gain is not None and abs(gain) > WORTH:
            parts.append(f"{figure.title} {_change(figure, found, trial)}")
    return "; ".join(parts) or "next to nothing"


def _change(figure: Figure, found: Diagnosis, trial: Trial) -> str:
    """``+40%``, or both values where the change is large."""
    before, after = figures_of(found.base)[figure.key], trial.figures[figure.key]
    gain = trial.gains[figure.key] or 0.0
    if abs(gain) > FACTOR:
        return f"{_value(figure, before)} -> {_value(figure, after)}"
    return f"{math.expm1(gain if figure.more else -gain):+.0%}"


def _value(figure: Figure, value: float | None) -> str:
    if figure.key.endswith("_ms"):
        return milliseconds(value)
    if figure.key == CAPACITY.key:
        return f"{number(value)}x the traffic"
    return f"{number(value)} {figure.unit}"
