"""Why is a part of the page empty? A sentence for whoever expected a figure there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.run_directory import known, pick

OLDER = (
    "This run directory does not say: it was written by an older version. Run the scenario again "
    "to see it."
)


def is_observed(summary: Mapping[str, Any]) -> bool:
    """Whether the run was of a real engine and not simulated."""
    return bool(pick(summary, "infersim.verdict.state") == "observed")


def is_measured(summary: Mapping[str, Any]) -> bool:
    """Whether its figures were measured: an imported file may itself be a simulation's."""
    return is_observed(summary) and known(summary, "infersim.simulated_by") is None


def reason(summary: Mapping[str, Any], observed: str) -> str:
    """Why something is not known: ``observed`` says why not of a run of a real engine."""
    if not pick(summary, "infersim.requests.completed"):
        return "No request was completed, so that there is nothing to show."
    return observed if is_observed(summary) else OLDER
