"""Decides whether a run met its SLO, missed it or came too close to call, and what breaks first.

Shares are of the judged requests, 0 to 1; times in milliseconds. Rejected and unfinished requests
are beyond every limit. A request whose client went away is judged if a limit had passed by then,
and is beyond it; else it is set aside, and no share counts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.latency.intervals import share_interval
from sim.metrics.record.run_record import RunRecord
from sim.metrics.slo.objectives import (
    Objective,
    breaks_first,
    held_by,
    latency_at,
    look,
    pooled,
    slo_objectives,
)
from sim.metrics.states import DoubtKind, SloState

UNJUDGED: Mapping[str, Any] = {
    "slo_met": None,
    "slo_state": None,
    "slo_doubts": [],
    "requests_to_decide": None,
    "attainment": None,
    "attainment_low": None,
    "attainment_high": None,
    "target": None,
    "first_limit": None,
    "limits": {},
}
"""The verdict of a run without limits, or without a request to judge by."""


def judge_slo(run: RunRecord, memory: float | None = None) -> dict[str, Any]:
    """The part of the verdict about the SLO; keys as in ``UNJUDGED``, ``memory`` as in
    ``precision.inflation``.

    ``attainment``, ``attainment_low``, ``attainment_high`` and ``target`` are those of the limits
    that hold together; without such, those of the percentile that breaks first.
    """
    objectives = [each for each in slo_objectives(run.scenario) if run.judged(each.limits).any()]
    if not objectives:
        return {**UNJUDGED, "slo_doubts": []}
    found = [pooled(objective, [look(run, objective)], memory) for objective in objectives]
    first = breaks_first(found)
    shown = found[0] if found[0].objective.percentile is None else first
    wanted = [each.to_decide for each in found if not each.sure]
    state = slo_state((each.share, each.low, each.high, each.objective.share) for each in found)
    return {
        "slo_met": all(each.kept for each in found),
        "slo_state": state,
        "slo_doubts": [DoubtKind.CHANCE] if state == SloState.OPEN else [],
        "requests_to_decide": _most(wanted) if state == SloState.OPEN else None,
        "attainment": shown.share,
        "attainment_low": shown.low,
        "attainment_high": shown.high,
        "target": shown.objective.share,
        "first_limit": first.tightest,
        "limits": {
            objective.name(metric): _limit(run, objective, metric, memory)
            for objective in objectives
            for metric in objective.limits
        },
    }


def slo_state(shares: Any) -> str:
    """The state that (share, low, high, target) of every SLO limit give together.

    A target of 1 is judged by the share alone, since no number of requests proves that all will.

    >>> slo_state([(0.995, 0.992, 0.998, 0.99)]), slo_state([(0.995, 0.98, 0.999, 0.99)])
    ('met', 'too close to call')
    >>> slo_state([(0.7, 0.6, 0.8, 0.99), (0.995, 0.98, 0.999, 0.99)])
    'missed'
    """
    states = {_state(*each) for each in shares}
    return next(
        state for state in (SloState.MISSED, SloState.OPEN, SloState.MET) if state in states
    )


def _state(share: float, low: float, high: float, target: float) -> str:
    if target == 1:
        return SloState.MET if share == 1 else SloState.MISSED
    if low >= target:
        return SloState.MET
    return SloState.MISSED if high < target else SloState.OPEN


def _most(wanted: Sequence[int | None]) -> int | None:
    """The most of several numbers; None if one of them is not known."""
    known = [number for number in wanted if number is not None]
    return max(known, default=None) if len(known) == len(wanted) else None


def _limit(
    run: RunRecord, objective: Objective, metric: str, memory: float | None
) -> dict[str, Any]:
    """One limit: the share of requests within it with its interval, and the latency at the wanted
    percentile (None if more requests than that were not served).
    """
    limit = objective.limits[metric]
    held = held_by(run, metric, limit)
    low, high = share_interval(held, memory)
    value = latency_at(run, metric, limit, objective.share)
    return {
        "limit_ms": limit * 1e3,
        "attainment": float(held.mean()) if len(held) else 0.0,
        "low": low,
        "high": high,
        "target": objective.share,
        "percentile": float(f"{100 * objective.share:.9g}"),
        "value_ms": value * 1e3 if math.isfinite(value) else None,
    }
