"""Computes how far apart the repetitions of a run are, for the page to show beneath its metrics.

Half-widths of 95 % intervals, in the unit of the metric that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.frame.formats import Kind, show
from reports.frame.run_directory import pick


def count(summary: Mapping[str, Any]) -> int:
    """The number of repetitions that the figures are means of; 1: a single run."""
    repetitions = pick(summary, "infersim.repetitions")
    return 1 if repetitions is None else int(pick(repetitions, "count"))


def plus_minus(summary: Mapping[str, Any], path: str, kind: Kind = "number") -> str:
    """``± 14`` for the figure at ``path`` of the summary; empty where no interval is known, and
    for a figure that is the same in all repetitions."""
    repetitions = pick(summary, "infersim.repetitions")
    intervals = {} if repetitions is None else pick(repetitions, "intervals")
    key = path.removeprefix("infersim.")
    half = intervals[key]["half_width"] if key in intervals else None
    if not half:
        return ""
    rounded = float(f"{half:.2g}")  # more digits of an error mean nothing
    return f"± {show(rounded, 'number' if kind == 'count' else kind).text}"


def explanation(summary: Mapping[str, Any]) -> str:
    """The meaning of figures from repetitions, and what their intervals are not."""
    repetitions = pick(summary, "infersim.repetitions")
    if repetitions is None:
        return ""
    runs = count(summary)
    if runs == 1:
        return "One repetition had finished, so that no interval can be given."
    return (
        f"Figures are means of {runs:,} repetitions with different seeds; ± is the half-width of "
        "the 95 % confidence interval. It covers the chance in the traffic, and not the error of "
        "the cost model, which all repetitions share (see error band)."
    )
