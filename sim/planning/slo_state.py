"""Whether a run was within its SLO, from its summary: for sweeps, diagnoses and sensitivities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MET, MISSED, OPEN = "met", "missed", "too close to call"


def slo_state(verdict: Mapping[str, Any]) -> str | None:
    """``MET``, ``MISSED``, or ``OPEN`` where the 95 % interval holds both; None without an SLO, or
    without a request to judge by."""
    low, high, target = (verdict[key] for key in ("attainment_low", "attainment_high", "target"))
    if verdict["slo_met"] is None or low is None:
        return None
    if low >= target:
        return MET
    return MISSED if high < target else OPEN


def meets(summary: Mapping[str, Any] | None) -> bool:
    """Whether a run was served within its SLO and was not overloaded."""
    if summary is None:
        return False
    verdict = summary["infersim"]["verdict"]
    return bool(verdict["slo_met"]) and verdict["state"] != "overloaded"
