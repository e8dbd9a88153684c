"""Says in one word how sure a decision is, for ``run`` and for every command that decides.

Two things leave a decision open: chance in the traffic, to which the empty start of a run belongs,
and the error of the predicted times. More requests narrow the first and not the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.states import DoubtKind, State, Word
from sim.units import many


class Trust(Word):
    """How sure a decision is, the surest first."""

    SURE = "sure"
    LIKELY = "likely"
    GUESS = "a guess"


def trust(*, decided: bool, at_band: bool, at_half: bool) -> str:
    """How sure a decision is. ``decided`` says whether chance, and the start of a run, leave no
    doubt; ``at_band`` whether it is the same with iterations off by the 90 % band of predicted
    times, ``at_half`` by the 50 % band.

    >>> trust(decided=True, at_band=True, at_half=True)
    'sure'
    >>> trust(decided=True, at_band=False, at_half=True)
    'likely'
    >>> trust(decided=False, at_band=True, at_half=True)
    'a guess'
    """
    if not decided or not (at_band or at_half):
        return Trust.GUESS
    return Trust.SURE if at_band else Trust.LIKELY


Figures = Mapping[str, Mapping[str, Any]]
"""The bands of a run's figures (``sim.metrics.bands.figure_bands``)."""


def verdict_trust(
    verdict: Mapping[str, Any],
    figures: Figures,
    ends: Mapping[str, Any] | None,
    *,
    compared: bool = True,
    skipped: bool = False,
) -> dict[str, str] | None:
    """How sure the verdict of a run is (``word``), and that in a ``text``: whether its SLO is met
    or, without one, whether its traffic is held. None where there is nothing to decide. The
    bands of each limited percentile count, or of the capacity; the 90 % band also by the runs at
    its ``ends``, which a run that is far from its limits does not have. The text says
    so where the bands are of other engines or GPUs alone (not ``compared``). Where the ends matter
    and were ``skipped`` nothing is sure."""
    if decision(verdict) is None:
        return None
    if verdict["limits"]:
        met = bool(verdict["slo_met"])
        word = trust(
            decided=_decided(verdict),
            at_band=DoubtKind.BAND not in verdict["slo_doubts"]
            and not skipped
            and _same_within(verdict["limits"], figures, "band90", met=met),
            at_half=_same_within(verdict["limits"], figures, "band50", met=met),
        )
        return _said(verdict, word, compared=compared)
    state = verdict["state"]
    held = state != State.OVERLOADED
    low, high = figures["capacity"]["band50"] if "capacity" in figures else (0.0, 0.0)
    word = trust(
        decided=_decided(verdict),
        at_band=not skipped
        and (ends is None or _held_at(ends, "slower") == _held_at(ends, "faster") == held),
        at_half=low > 1 if held else 0 < high < 1,
    )
    return _said(verdict, word, compared=compared)


def _decided(verdict: Mapping[str, Any]) -> bool:
    """Whether chance and the start of a run leave no doubt at the predicted times."""
    if verdict["limits"]:
        return not set(verdict["slo_doubts"]) - {DoubtKind.BAND, DoubtKind.END_CHANCE}
    return bool(verdict["state"] != State.NEAR_SATURATION)


def reasoned(verdict: Mapping[str, Any], word: str, band: Mapping[str, Any]) -> str:
    """The decision of a verdict with how sure it is and why: by the end of the error ``band`` at
    which it could turn, which is the slower engine where the SLO is met or the traffic held."""
    holds = verdict["slo_met"] if verdict["limits"] else verdict["state"] != State.OVERLOADED
    far = band.get("slower", band["throughput"]) if holds else band["throughput"]
    way = "slower" if holds else "faster"
    at_band, at_half = (f"{many(each)} {way}" for each in (far, band["half"]))
    if word == Trust.SURE:
        why = f", even if the engine is {at_band} than predicted"
    elif word == Trust.LIKELY:
        why = f": so it is if the engine is {at_half} than predicted, perhaps not if {at_band}"
    elif _decided(verdict):
        why = f": it may turn if the engine is {at_half} than predicted"
    else:
        why = ": at the predicted times already, chance or the length of the run leaves it open"
    return f"that {decision(verdict)} is {word}{why}"


def decision(verdict: Mapping[str, Any]) -> str | None:
    """What a verdict decides: whether the SLO of its run is met or, without one, whether its
    traffic is held; None where there is nothing to decide."""
    if verdict["limits"]:
        return f"the SLO is {'met' if verdict['slo_met'] else 'missed'}"
    if verdict["state"] not in (State.STABLE, State.NEAR_SATURATION, State.OVERLOADED):
        return None
    return f"the traffic is {'held' if verdict['state'] != State.OVERLOADED else 'too much'}"


def _said(verdict: Mapping[str, Any], word: str, *, compared: bool) -> dict[str, str]:
    limits = "" if compared else ", if its times are no further off than those that were compared"
    return {"word": word, "text": f"That {decision(verdict)} is {word}{limits}."}


def _same_within(limits: Mapping[str, Any], figures: Figures, level: str, *, met: bool) -> bool:
    """Whether the bands of a ``level`` leave the limits as they are: all met, or one missed."""
    sides = []
    for name, limit in limits.items():
        metric = name.partition("_")[0]
        found = figures.get(f"p{limit['percentile']:g}_{metric}_ms")
        if found is None:
            return False
        low, high = found[level]
        sides.append((low > limit["limit_ms"], high is not None and high <= limit["limit_ms"]))
    return all(within for _, within in sides) if met else any(beyond for beyond, _ in sides)


def _held_at(ends: Mapping[str, Any], name: str) -> bool:
    return bool(ends[name]["verdict"]["state"] != State.OVERLOADED)
