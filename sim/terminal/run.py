"""Renders a run in a terminal of 88 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group

from sim.metrics.latency.timeline import Timeline
from sim.planning.answers.run import parts
from sim.terminal.findings import parts_view


def run_view(summary: Mapping[str, Any], timeline: Timeline | None = None) -> Group:
    """The figures of one run, and what went on in it."""
    return parts_view(parts(summary, timeline))
