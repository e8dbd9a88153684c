"""Describes a diagnosis in words and as one plain mapping, for JSON, the terminal and the page.

Changes of metrics are relative (0.1: a tenth more); ``effect`` is a factor less 1 (0.1: a tenth
better, over all metrics).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.states import SloState, too_short_for
from sim.metrics.terms.definitions import bound_name
from sim.metrics.texts import replica_name
from sim.metrics.words.slo_text import (
    deciding,
    limit_text,
    open_word,
    shown_limit,
    slo_doubts,
    within,
)
from sim.planning.causes.counterfactuals import EFFORTS, LONGER, PROBE
from sim.planning.causes.diagnose import WORTH, Diagnosis, Trial
from sim.planning.contrast.gains import CAPACITY, FIGURES, GainFigure, figure_rows, figures_of
from sim.planning.points.footnote_words import footnotes, sure_of
from sim.planning.points.padding_words import padding_text
from sim.planning.points.points import Settings, show
from sim.planning.points.study import head, setup_text
from sim.planning.points.wording import share
from sim.units import many, milliseconds, number

FACTOR = math.log(3)
"""From this gain on, values say more than a percentage: ``0.13 -> 8.9 requests/s``."""


def headline(found: Diagnosis) -> tuple[str, str]:
    """Whether anything needs to change, and what first, a text each; the second may be empty."""
    verdict = found.verdict
    if verdict["slo_met"] is None:
        return "There is no SLO to meet; the advice is ranked by what it does to all figures.", ""
    cut = verdict["cut"]
    where = "" if cut is None or found.slo == SloState.OPEN else f" in {cut['part']}"
    close = found.slo == SloState.OPEN and open_word(verdict) == SloState.OPEN
    enough = found.at_ease or close or not found.misses
    attained = verdict["attainment"]
    kept = f"{within(attained, share(attained), enough=enough)} within {limit_text(verdict)}{where}"
    wanted = f"{share(verdict['target'])} are asked for"
    if found.at_ease:
        return f"Nothing needs to change: {kept}, {wanted}.", _saving(found).strip()
    if found.slo == SloState.OPEN:
        return _open(found, kept, wanted)
    if not found.misses:
        return f"The SLO is met, with little room: {kept}, {wanted}.", _saving(found).strip()
    return f"The SLO is missed: {kept}, {wanted}.", _cure(found)


def _open(found: Diagnosis, kept: str, wanted: str) -> tuple[str, str]:
    """Why the SLO is too close to call, and what to do before anything is changed."""
    verdict, doubts = found.verdict, slo_doubts(found.verdict)
    word = open_word(verdict)
    first = f"The SLO is {word}:"
    if found.open_by_band:
        where = "at the predicted times " if word == SloState.OPEN else ""
        more = f"{deciding(verdict)} {_cure(found)}"
        return f"{first} {where}{kept}, {wanted}.", more.strip()
    so_far = " so far" if too_short_for(doubts) else ""
    told = verdict["requests_to_decide"] or verdict["cut"]
    ends = (
        "a longer time (run.horizon)" if found.scenario.run.horizon is not None else "more requests"
    )
    todo = "Do that" if told else f"Simulate {ends}"
    more = f"{deciding(verdict)} {todo} before changing anything."
    return f"{first} {kept}{so_far}, {wanted}.", more.strip()


def _cure(found: Diagnosis) -> str:
    """The least that meets the SLO, where a change that was tried does, beyond doubt or not; first
    what another router does that deals more evenly, which costs nothing."""
    return f"{_rerouted(found)}{_least(found)}"


def _rerouted(found: Diagnosis) -> str:
    """The effect of another router on a fleet that deals unevenly; empty where that is none."""
    trial, one = found.rerouted, found.verdict.get("busiest_replica")
    if trial is None or trial.verdict is None or one is None:
        return ""
    name = replica_name(one["replica"])
    settings = " ".join(f"--set {key}={value}" for key, value in trial.change.settings.items())
    when = "" if trial.meets else " at the predicted times, not for sure"
    return (
        f"{name[0].upper()}{name[1:]} is the one that the router sends the most work: "
        f"`{settings}` costs nothing, and then {share(trial.verdict['attainment'])} of requests "
        f"are within the SLO{when}. "
    )


def _least(found: Diagnosis) -> str:
    """The least that meets the SLO, where a change that was tried does, beyond doubt or not."""
    meeting = [trial for trial in found.advice if trial.meets]
    if meeting:
        sure = " for sure" if _rerouted(found) else ""
        return f"The least that meets it{sure}: {meeting[0].change.title}."
    likely = [trial for trial in found.advice if trial.is_predicted]
    if likely:
        return (
            "No single change that was tried meets it for sure; the least that does at the "
            f"predicted times: {likely[0].change.title}.{_accepted(found)}"
        )
    return f"No single change that was tried meets it.{_accepted(found)}"


def _accepted(found: Diagnosis) -> str:
    """The effect of accepting the requests that are too long, where that was tried."""
    tried = [t for t in found.trials if t.change.name == LONGER and t.verdict is not None]
    if not tried or tried[0].verdict is None:
        return ""
    inside = share(tried[0].verdict["attainment"] or 0.0)
    return (
        f" {tried[0].change.title} accepts all lengths, and then {inside} of requests are within "
        "the SLO: the fleet needs more besides."
    )


def _saving(found: Diagnosis) -> str:
    """The SLO's result with a smaller fleet, where there is one."""
    if not found.savings:
        return ""
    trial = found.savings[0]
    word = "would miss it"
    if trial.slo is not None and trial.slo != SloState.MISSED:
        met = trial.slo == SloState.MET
        word = "would also meet it" if met else "leaves that too close to call"
    return f" {trial.change.title[0].upper()}{trial.change.title[1:]} {word}."


def bound_text(found: Diagnosis) -> str:
    """The limit of each figure, and how that differs from the shares of busy time in a run."""
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
    parts = [padding_text(found.base), f"What limits each figure: {'; '.join(limited)}."]
    return " ".join(part for part in [*parts, busy_text(found)] if part)


def busy_text(found: Diagnosis) -> str:
    """The waits that filled the busy time."""
    shares = [
        f"{bound_name(name)} {part:.0%}"
        for name, part in found.base["infersim"]["bound_by"].items()
        if part >= 0.01
    ]
    return (
        f"Busy time as a whole: {', '.join(shares)} (what a run calls 'Bound by'); a tail may "
        "depend on something else."
    )


def order_text(found: Diagnosis) -> str:
    """By what the advice is ordered; that there is none."""
    if not found.advice:
        return "Advice: none of what was tried makes it 2 % better."
    if found.by_slo:
        if found.advice[0].is_predicted:
            return "Advice: what meets the SLO, the least effort first; then what helps it most:"
        return "Advice, what helps the SLO most for its effort first:"
    word = "If more is wanted" if found.at_ease else "Advice"
    return f"{word}, the most for its effort first:"


def told(found: Diagnosis, trial: Trial) -> str:
    """The effect of a change: on the share within the SLO first, then on each figure that moves."""
    parts = [rejects_text(trial)] if trial.rejects else []
    before, verdict = found.verdict["attainment"], trial.verdict
    if before is not None and verdict is not None:
        met = f"SLO {trial.slo or 'missed'}"
        after = verdict["attainment"] or 0.0
        mine, its = limit_text(found.verdict), limit_text(verdict)
        same = verdict["limits"].get(shown_limit(found.verdict))
        if trial.is_predicted and same is not None:  # which limit is the nearest does not matter
            after, its = same["attainment"], mine
        moved = f"{share(before)} -> {share(after)}" if after != before else f"still {share(after)}"
        if mine != its:
            moved = f"{share(before)} of requests within {mine} -> {share(after)}"
        parts.append(f"{met}, {moved} of requests within {its}{_if_off(trial)}")
    for figure in FIGURES:
        gain = trial.gains.get(figure.key)
        if gain is not None and abs(gain) > WORTH:
            parts.append(f"{figure.title} {_change(figure, found, trial)}")
    return "; ".join(parts) or "next to nothing"


def rejects_text(trial: Trial) -> str:
    """The share of the requests that a change rejects beyond those that are rejected anyway."""
    summary = trial.outcome.summary
    reasons = {} if summary is None else summary["infersim"]["requests"]["rejected_reasons"]
    more = f" ({', '.join(reasons)})" if reasons else ""
    return f"rejects {share(trial.rejects)} of the requests{more}"


def _if_off(trial: Trial) -> str:
    """The share within the SLO at the end of the error band that decides otherwise; empty where
    none does."""
    summary = trial.outcome.summary
    ends = None if summary is None else summary["infersim"]["ends"]
    if summary is None or ends is None or ends["decided"]:
        return ""
    met = summary["infersim"]["verdict"]["slo_met"]
    end = "slower" if met else "faster"
    kept = share(ends[end]["verdict"]["attainment"])
    kept += (
        " within the limit that breaks first" if shown_limit(summary["infersim"]["verdict"]) else ""
    )
    return f" ({kept} if iterations are {many(ends['error'])} {end})"


def _change(figure: GainFigure, found: Diagnosis, trial: Trial) -> str:
    """``+40%``, or both values where the change is large."""
    before, after = figures_of(found.base)[figure.key], trial.figures[figure.key]
    gain = trial.gains[figure.key] or 0.0
    if gain > 0 and figure.is_scant(found.base):
        return f"from almost none to {_value(figure, after)}"
    if abs(gain) > FACTOR:
        return f"{_value(figure, before)} -> {_value(figure, after)}"
    return f"{math.expm1(gain if figure.more else -gain):+.0%}"


def _value(figure: GainFigure, value: float | None) -> str:
    if figure.key.endswith("_ms"):
        return milliseconds(value)
    if figure.key == CAPACITY.key:
        return f"{number(value)}x the traffic"
    return f"{number(value)} {figure.unit}"


def document(found: Diagnosis) -> dict[str, Any]:
    """The content of ``result.json``."""
    base, (state, least) = figures_of(found.base), headline(found)
    own = found.base["infersim"]
    return {
        **head("diagnosis", found.scenario),
        "target": found.target,
        "setup": setup_text(found.base),
        "verdict": own["verdict"],
        "headline": " ".join(filter(None, (state, least))),
        "state": state,
        "least": least,
        "at_ease": found.at_ease,
        "order": order_text(found),
        "rejection": None if found.rejection is None else found.rejection.document(),
        "figures": figure_rows(found.base),
        "bound": _bound(found),
        "busy_time": own["bound_by"],
        "latency": {name: dict(means) for name, means in found.latency.items()},
        "efforts": [e._asdict() for e in EFFORTS],
        "trials": [_trial(found, trial, base) for trial in found.trials],
        "footnotes": _footnotes(found),
        "sure": sure_of(found.base),
        "advice": [trial.change.name for trial in found.advice],
        "savings": [trial.change.name for trial in found.savings],
        "plan": _plan_command(found),
        "notes": own["notes"],
    }


def _footnotes(found: Diagnosis) -> list[str]:
    """The meaning of the marks in the table of changes."""
    verdicts = [found.verdict, *(trial.verdict for trial in found.trials)]
    return footnotes([verdict for verdict in verdicts if verdict is not None])


def command(target: str, settings: Settings, given: Sequence[str] = ()) -> str:
    """The command that tries ``settings``, on top of the overrides ``given``.

    >>> command("chat.yaml", {"router": "random", "assume.host_time": 0.0})
    'infersim run chat.yaml --set router=random --set assume.host_time=0'
    """
    texts = [*given, *(f"{key}={show(value)}" for key, value in settings.items())]
    sets = (f"--set {shlex.quote(text)}" for text in texts)
    return " ".join(["infersim run", shlex.quote(target), *sets])


def _trial(found: Diagnosis, trial: Trial, base: Mapping[str, float | None]) -> dict[str, Any]:
    change = trial.change
    return {
        "name": change.name,
        "title": change.title,
        "settings": dict(change.settings),
        "effort": change.effort.name,
        "bound": change.bound or None,
        "command": command(found.target, change.settings, found.given),
        **trial.document(base),
        "per_effort": None if change.effort is PROBE or trial.effect is None else trial.rank,
        "attainment": trial.judged("attainment"),
        "told": told(found, trial),
        "rejects": trial.rejects,
        "slo_met": trial.judged("slo_met"),
        "slo_state": trial.slo,
        "state": trial.judged("state"),
    }


def _plan_command(found: Diagnosis) -> str:
    """The command that looks for the cheapest fleet instead of twice the one there is."""
    length = None if found.rejection is None else found.rejection.wanted_length
    given = [*found.given, *([] if length is None else [f"max_model_len={length}"])]
    sets = "".join(f" --set {shlex.quote(text)}" for text in given)
    gpus = shlex.quote(",".join(dict.fromkeys(pool.gpu for pool in found.scenario.pools)))
    return f"infersim plan {shlex.quote(found.target)} --gpus {gpus}{sets}"


def _bound(found: Diagnosis) -> dict[str, Any]:
    """The limit of each figure: the one whose change helps it most."""
    helping = [trial for trial in found.limits if (trial.effect or 0.0) > WORTH]
    figures = {}
    for figure in FIGURES:
        trial = found.helping(figure.key)
        if trial is not None:
            figures[figure.key] = {"by": trial.change.bound, "shown_by": trial.change.title}
    return {
        "by": helping[0].change.bound if helping else None,
        "figures": figures,
        "text": bound_text(found),
        "padding": padding_text(found.base),
        "busy": busy_text(found),
    }
