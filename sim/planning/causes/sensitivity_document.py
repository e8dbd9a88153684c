"""Describes a study of sensitivity as one plain mapping, for JSON, the terminal and the page.

Changes of metrics are relative (0.1: a tenth more); ``effect`` is a factor less 1 (0.1: a tenth
better, over all metrics).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sim.metrics.bands.trust import trust
from sim.metrics.states import too_short_for
from sim.metrics.words.slo_text import slo_doubts
from sim.planning.causes.sensitivity import End, Sensitivity, Swing
from sim.planning.contrast.gains import Figures, figure_rows, figures_of
from sim.planning.load.loads import LoadAxis
from sim.planning.points.figures import is_open
from sim.planning.points.footnote_words import footnotes, sure_of
from sim.planning.points.study import head, setup_text


def document(found: Sensitivity) -> dict[str, Any]:
    """The content of ``result.json``."""
    base, own = figures_of(found.base), found.base["infersim"]
    return {
        **head("sensitivity", found.scenario),
        "setup": setup_text(found.base),
        "verdict": own["verdict"],
        "holds": found.holds,
        "trust": _trust(found),
        "question": _question(found),
        "answer": f"{_answer(found)}{_how_sure(found)}",
        "short": _short(found),
        "flips": [swing.input.name for swing in found.ordered if _flips(found, swing)],
        "band": found.band,
        "figures": figure_rows(found.base),
        "inputs": [_swing(found, swing, base) for swing in found.ordered],
        "together": None if found.together is None else _end(found.together, base),
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


def _how_sure(found: Sensitivity) -> str:
    word = _trust(found)
    return "" if word is None else f" That is {word}."


def _flips(found: Sensitivity, swing: Swing) -> bool:
    return any(end.holds != found.holds for end in swing.ends)


def _answer(found: Sensitivity) -> str:
    if found.holds is None:
        return "There is no verdict to flip: neither an SLO nor arrivals that could be too many."
    text = f"{_question(found)} {_now(found)}"
    flipping = _named(found, lambda end: end.holds != found.holds and not _open(end))
    opening = _named(found, _open)
    also = f" Too close to call: {opening}." if opening else ""
    if all(_open(end) for swing in found.swings for end in swing.ends):
        also = " Every input leaves it too close to call, at either end."
    if flipping:
        return f"{text}, but it flips with {flipping}.{also}"
    text += f", and no input alone {'is sure to flip' if opening else 'flips'} it within its range"
    if found.together is None or found.holds is False:
        return f"{text}.{also}"
    both = "nor do all worse ends together" if found.together.holds else "all together do"
    if _open(found.together):
        both = "all worse ends together are too close to call"
    return f"{text}; {both}.{also}"


def _short(found: Sensitivity) -> str:
    """The decision, and what changes it for sure, in a line."""
    if found.holds is None:
        return _answer(found)
    flipping = _named(found, lambda end: end.holds != found.holds and not _open(end))
    opening = _named(found, _open)
    what = "no input alone is sure to flip it" if opening else "no input alone flips it"
    if flipping:
        what = f"it flips with {flipping}"
    return f"{_question(found)} {_now(found)}; {what}."


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
        "low": None if swing.low is None else _end(swing.low, base),
        "high": None if swing.high is None else _end(swing.high, base),
    }


def _end(end: End, base: Figures) -> dict[str, Any]:
    return {
        "text": end.text,
        "settings": dict(end.settings),
        **end.document(base),
        "holds": end.holds,
        **{key: end.judged(key) for key in ("attainment", "state", "slo_state")},
    }
