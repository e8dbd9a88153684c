"""States what a page cannot show: why a figure is empty, and what an observed run leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
