"""Shows what fits in memory and what bounds each operator: ``fit`` and ``roofline``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group

from sim.cost import Deployment
from sim.memory.capacity import Capacity
from sim.planning.answers import fit, roofline
from sim.terminal.findings import parts_view


def roofline_view(d: Deployment, found: Mapping[str, Any]) -> Group:
    """``found``, a ``roofline_document`` of ``d``, as tables of at most 88 columns."""
    return parts_view(roofline.parts(d, found))


def fit_view(d: Deployment, memory: Capacity, context: int, document: Mapping[str, Any]) -> Group:
    """The memory of one GPU, line by line, down to how many requests of ``context`` tokens fit;
    ``document`` is that of the command."""
    return parts_view([fit.memory_table(d, memory, context, document)])


def answer_view(
    d: Deployment, memory: Capacity, context: int, document: Mapping[str, Any]
) -> Group:
    """The whole answer of ``fit``: its memory, stages, other layouts, and whether it fits."""
    return parts_view(fit.parts(d, memory, context, document))
