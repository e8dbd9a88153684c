"""The page and the terminal's view of each decision whose answer is laid out as findings."""

from functools import partial
from typing import Any

from rich.console import Group

from reports.pages.planning.findings import render, sections
from sim.findings import Drawing, Drawings
from sim.planning.answers import findings_of
from sim.planning.contrast.compare_words import lines_of
from sim.terminal.findings import findings_view


def _view(command: str, document: Any) -> Group:
    return findings_view(findings_of(command, document))


def headlines(document: Any) -> list[str]:
    """The sentences on a comparison."""
    return [line.whole for line in lines_of(document)]


def drawings(command: str, document: Any) -> dict[str, Drawing]:
    """The figures of the page, by their names."""
    parts = (part for section in findings_of(command, document).sections for part in section.parts)
    return {each.name: each for part in parts if isinstance(part, Drawings) for each in part.each}


def drawn(command: str, document: Any, name: str) -> Any:
    """What the figure ``name`` of the page draws."""
    return drawings(command, document)[name].data


def anchors(command: str, document: Any) -> dict[str, str]:
    """Anchor -> heading of the page."""
    return sections(findings_of(command, document))


ablate_view, claims_view, diagnose_view, find_view, plan_view, sensitivity_view = (
    partial(_view, command)
    for command in ("ablate", "claims", "diagnose", "find", "plan", "sensitivity")
)
compare_view, sweep_view = (partial(_view, command) for command in ("compare", "sweep"))
render_ablation, render_claims, render_diagnosis, render_find, render_plan, render_sensitivity = (
    partial(render, command)
    for command in ("ablate", "claims", "diagnose", "find", "plan", "sensitivity")
)
render_compare, render_sweep = (partial(render, command) for command in ("compare", "sweep"))
