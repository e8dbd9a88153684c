"""Reads from a run's summary whether it met its SLO, for sweeps, diagnoses and sensitivities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.metrics.states import SloState, State


def slo_state(verdict: Mapping[str, Any]) -> SloState | None:
    """Whether the run met its SLO; None without an SLO, or without a request to judge by."""
    found: SloState | None = verdict["slo_state"]
    return found


def meets(summary: Mapping[str, Any] | None) -> bool:
    """Whether a run met its SLO beyond doubt and was not overloaded."""
    if summary is None:
        return False
    verdict = summary["infersim"]["verdict"]
    return slo_state(verdict) == SloState.MET and verdict["state"] != State.OVERLOADED


def is_open(summary: Mapping[str, Any] | None) -> bool:
    """Whether it is open whether a run was within its SLO: by chance, or because it is short."""
    return summary is not None and slo_state(summary["infersim"]["verdict"]) == SloState.OPEN
