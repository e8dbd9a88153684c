"""Decides whether a fleet meets its SLO, and lists what leaves that open: a rule for each doubt.

What the requests of a run had is ``attainment.judge_slo``. It stays open where only requests miss
the SLO that the end of the run cut off, and where they may be within it only because they came
early: to an empty fleet, before the peak, or while sessions are still short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sim.loop.recorder import UNFINISHED
from sim.metrics.latency.intervals import share_interval
from sim.metrics.load.long_enough import (
    SURE,
    ShareInTime,
    at_capacity,
    enough_of_all,
    enough_without_start,
    grows_at_its_end,
    holds_without_start,
    is_near,
    relaxation,
    too_much,
    too_much_for_one,
    too_short,
    unsettled,
)
from sim.metrics.load.peak import Peak
from sim.metrics.load.stability import Load
from sim.metrics.load.usual_sessions import usual
from sim.metrics.record.cut_short import WHOLE
from sim.metrics.record.run_record import RunRecord
from sim.metrics.slo.attainment import judge_slo, slo_state
from sim.metrics.slo.objectives import look, pooled, slo_objectives
from sim.metrics.states import DoubtKind, SloState, is_apart

YOUNG = "sessions are still young"
"""The subject of the last of the ``RULES``."""

EMPTY = "the fleet was empty at the start"
"""The subject of the rule on runs that have not settled, or whose start may hide late requests."""


class Doubt(NamedTuple):
    """A doubt that an SLO that a run's requests met would be met by later ones: its ``kind``, what
    it is ``about``, and how many requests a run ``needs`` to settle it, None where more of the same
    kind are not to be had."""

    kind: DoubtKind
    about: str
    needs: int | None


@dataclass(frozen=True, slots=True)
class DoubtFacts:
    """The facts that the rules examine: a run with its ``load`` and its ``peak``, and the SLO part
    of its requests alone, which is met or open."""

    run: RunRecord
    load: Load
    peak: Peak | None
    slo: Mapping[str, Any]

    @property
    def met(self) -> bool:
        """Whether the requests met the SLO beyond chance."""
        return bool(self.slo["slo_state"] == SloState.MET)

    @property
    def cut(self) -> bool:
        """Whether the run ends before the busiest part of its traffic."""
        return self.run.cut is not None and not self.run.cut.has_peak


def slo_verdict(run: RunRecord, load: Load | None, peak: Peak | None) -> dict[str, Any]:
    """The SLO part of a verdict (``attainment.judge_slo``) for a ``load``, None if that is no
    property of the traffic, and its ``peak``. Of several doubts about later requests it has the
    kind of the first, and the most requests that any needs."""
    slo = _judged(run, load)
    beyond = load is not None and too_much(load)
    if slo["slo_state"] == SloState.MISSED and not beyond and missed_by_unfinished_alone(run):
        left = [DoubtKind.UNFINISHED]
        slo |= {"slo_state": SloState.OPEN, "slo_doubts": left, "first_limit": None}
    if load is None or slo["slo_state"] not in (SloState.MET, SloState.OPEN):
        return slo
    found = doubts(DoubtFacts(run, load, peak, slo))
    if found:
        needs = [each.needs for each in found if each.needs is not None]
        slo |= {
            "slo_state": SloState.OPEN,
            "slo_doubts": [found[0].kind, *slo["slo_doubts"]],
            "requests_to_decide": max(needs, default=None),
        }
    return slo


def _before_the_peak(facts: DoubtFacts) -> bool:
    """Whether the run lacks the peak of a day, which may be too much."""
    load, law = facts.load, facts.load.law
    if law is None or law.kind != "diurnal" or facts.peak is None:
        return False
    least = facts.peak.utilisation * (1 + SURE * load.error / load.utilisation)
    return least >= 1 and float(load.arrived[-1]) < WHOLE * law.period


def _young_sessions(facts: DoubtFacts) -> bool:
    """Whether the second half of a run that lacks later turns of its sessions leaves open whether
    it meets the SLO: latencies rise while sessions grow older."""
    slo, run = facts.slo, facts.run
    if not facts.met or slo["target"] is None or any(map(is_apart, slo["limits"])):
        return False
    expected = usual(run)
    if expected is None or not expected.outlasts(run.duration):
        return False
    counted = run.within_slo[run.completed & ~run.warmup]
    low, _ = share_interval(counted[len(counted) // 2 :])
    return low < float(slo["target"])


def _empty_start(facts: DoubtFacts) -> bool:
    flattered = facts.met and is_near(facts.load) and not _without_start(facts.load, facts.slo)
    return unsettled(facts.load) or flattered


RULES: tuple[tuple[DoubtKind, str, Callable[[DoubtFacts], bool]], ...] = (
    (DoubtKind.LOAD, "more arrives than the fleet serves", lambda of: too_much(of.load)),
    (DoubtKind.LOAD, "a replica gets more than it serves", lambda of: too_much_for_one(of.load)),
    (DoubtKind.LENGTH, "an overload would not show yet", lambda of: too_short(of.load)),
    (DoubtKind.LENGTH, EMPTY, _empty_start),
    (DoubtKind.LENGTH, "the peak of the day was still to come", _before_the_peak),
    (DoubtKind.LENGTH, "a trace ends while its queue grows", lambda of: grows_at_its_end(of.load)),
    (DoubtKind.LENGTH, "the busiest part is cut off", lambda of: of.cut),
    (DoubtKind.LENGTH, YOUNG, _young_sessions),
)
"""The doubts that leave an SLO open, gravest first: kind, subject and condition."""


def doubts(facts: DoubtFacts) -> list[Doubt]:
    """Why requests that come later may fare worse than those of a run, the gravest first."""
    load = facts.load
    enough = None if at_capacity(load.utilisation, load.error) else enough_of_all(load)
    found = [Doubt(kind, about, enough) for kind, about, applies in RULES if applies(facts)]
    if enough is not None and facts.met and EMPTY in [each.about for each in found]:
        needs = max(enough_without_start(load, each) for each in _shares(facts.slo))
        found = [each._replace(needs=max(enough, needs)) for each in found]
    young = usual(facts.run) if found and found[-1].about == YOUNG else None
    if young is not None:
        found[-1] = found[-1]._replace(needs=max(enough or 0, young.enough))
    return found


def _judged(run: RunRecord, load: Load | None) -> dict[str, Any]:
    """The SLO part of these requests alone; near saturation with the intervals of a fleet that
    remembers for long. Where more may arrive than is served there is no such interval: then it says
    only whether the requests could miss the SLO by chance."""
    slo = judge_slo(run)
    if load is None or not is_near(load):
        return slo
    if too_short(load) and slo["slo_state"] != SloState.MISSED:
        return slo
    return judge_slo(run, relaxation(load))


def _without_start(load: Load, slo: Mapping[str, Any]) -> bool:
    """Whether the SLO would be met even if none of its late requests had come at the start."""
    start = relaxation(load) / len(load.arrived)
    return all(
        each.target == 1 or holds_without_start(each.low, each.target, start)
        for each in _shares(slo)
    )


def _shares(slo: Mapping[str, Any]) -> list[ShareInTime]:
    """The shares that decide an SLO: of its limits with a percentile of their own, and of those
    that hold together."""
    apart = [limit for name, limit in slo["limits"].items() if is_apart(name)]
    shares = [ShareInTime(each["attainment"], each["low"], each["target"]) for each in apart]
    if len(apart) < len(slo["limits"]):
        shares.append(ShareInTime(slo["attainment"], slo["attainment_low"], slo["target"]))
    return shares


def missed_by_unfinished_alone(run: RunRecord) -> bool:
    """Whether the other requests of a run do not miss the SLO for sure, of which requests that may
    still be within the limits make a missed one."""
    found = []
    for objective in slo_objectives(run.scenario):
        cut_off = np.asarray(run.requests["status"] == UNFINISHED)
        left = run.undecided(objective.limits, cut_off, run.end)[run.judged(objective.limits)]
        seen = look(run, objective)
        if left.all():
            continue
        known = pooled(objective, [replace(seen, kept=seen.kept[~left])])
        found.append((known.share, known.low, known.high, objective.share))
    return bool((run.requests["status"] == UNFINISHED).any()) and (
        not found or slo_state(found) != SloState.MISSED
    )


def missed_at_ends(verdict: Mapping[str, Any], ends: Mapping[str, Any]) -> bool:
    """Whether an SLO that chance or a short run leaves open is missed all the same: the requests so
    far miss it, and so do, beyond doubt, those of both ends of the error band."""
    if verdict["slo_state"] != SloState.OPEN or verdict["slo_met"]:
        return False
    return all(
        ends[name]["verdict"]["slo_state"] == SloState.MISSED for name in ("slower", "faster")
    )


def doubts_at_ends(verdict: Mapping[str, Any], ends: Mapping[str, Any]) -> dict[str, Any]:
    """The doubt of an SLO that the ends of the error band (``sim.band_runs``) leave open: the band,
    perhaps with chance at an end of it, or an end that met it so far in a run too short to tell,
    unless the requests at the predicted times miss it beyond doubt."""
    doubts = verdict["slo_doubts"]
    missed = not doubts and not verdict["slo_met"]
    short = [
        end
        for end in (ends[name]["verdict"] for name in ("slower", "faster"))
        if end["slo_met"] and DoubtKind.LENGTH in end["slo_doubts"]
    ]
    if short and not missed:
        wanted = [each["requests_to_decide"] for each in (*short, verdict)]
        wanted.append(verdict["requests_to_settle"])
        most = max((count for count in wanted if count is not None), default=None)
        return {
            "slo_doubts": list(dict.fromkeys([DoubtKind.LENGTH, *doubts])),
            "requests_to_decide": most,
        }
    chance = any(
        DoubtKind.CHANCE in ends[name]["verdict"]["slo_doubts"] for name in ("slower", "faster")
    )
    return {"slo_doubts": [*doubts, DoubtKind.BAND, *([DoubtKind.END_CHANCE] if chance else [])]}
