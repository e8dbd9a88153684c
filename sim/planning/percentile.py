"""The percentile that an SLO judges a latency by, and its value, from summaries of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.planning.wording import rank

USUAL = 99.0
"""Percentile that is shown where the SLO says nothing of it."""


def percentile(summaries: Sequence[Mapping[str, Any]], metric: str) -> float:
    """The percentile of ``metric`` to show for these runs: the one that limits it in all of them,
    else p99."""
    limits = [summary["infersim"]["verdict"]["limits"].get(metric) for summary in summaries]
    asked = {limit["percentile"] for limit in limits if limit is not None}
    return float(asked.pop()) if len(asked) == 1 else USUAL


def latency_ms(summary: Mapping[str, Any], metric: str, value: float) -> float | None:
    """The latency at a percentile that ``percentile`` gave; None where it is not defined."""
    key = f"{rank(value / 100)}_{metric}_ms"
    if key in summary:
        found = summary[key]
    else:
        limit = summary["infersim"]["verdict"]["limits"].get(metric)
        found = None if limit is None else limit["value_ms"]
    return None if found is None else float(found)
