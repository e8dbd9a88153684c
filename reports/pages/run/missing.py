"""States what a page cannot show, and how far apart the repetitions of a run are.

A figure may be empty, and an observed run leaves things out. Half-widths are of 95 % intervals, in
the unit of the metric that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.frame.formats import Kind, show
from reports.frame.run_directory import known, pick

OLDER = (
    "This run directory does not say: it was written by an older version. Run the scenario again "
    "to see it."
)

STANDING: Mapping[str, tuple[str, ...]] = {
    "limits": ("attainment",),
    "parts": ("parts-ttft", "parts-e2el"),
    "timeline": ("timeline",),
    "slots": ("slots",),
    "time": ("operators",),
    "roofline": ("roofline",),
}
"""Sections that stand with their figures: without any of them they are left out."""


class Absent(NamedTuple):
    """The omissions of an observed run's page: sections and figures by their names, and the titles
    of the figures, to be listed in one line."""

    sections: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()


def absent(summary: Mapping[str, Any], drawn: Mapping[str, bool], titles: Sequence[str]) -> Absent:
    """The parts that the record lacks; none for a simulated run, whose page says why a figure is
    empty. ``drawn`` says of each figure whether it has anything in it, ``titles`` are theirs."""
    if not is_observed(summary):
        return Absent()
    sections = [
        name for name, needed in STANDING.items() if not any(drawn[each] for each in needed)
    ]
    missing = [
        (name, title)
        for (name, there), title in zip(drawn.items(), titles, strict=True)
        if not there
    ]
    return Absent(
        tuple(sections), tuple(name for name, _ in missing), tuple(title for _, title in missing)
    )


def is_observed(summary: Mapping[str, Any]) -> bool:
    """Whether the run was of a real engine and not simulated."""
    return bool(pick(summary, "infersim.verdict.state") == "observed")


def is_measured(summary: Mapping[str, Any]) -> bool:
    """Whether its figures were measured: an imported file may itself be a simulation's."""
    return is_observed(summary) and known(summary, "infersim.simulated_by") is None


def reason(summary: Mapping[str, Any], observed: str) -> str:
    """Why something is not known: ``observed`` says why not of a run of a real engine."""
    if pick(summary, "infersim.requests.completed") == 0:
        return "No request was completed, so that there is nothing to show."
    return observed if is_observed(summary) else OLDER


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
