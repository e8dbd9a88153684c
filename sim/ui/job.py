"""Defines what goes to a process that simulates, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Window = tuple[float, float]
"""The stretch of a run (s) whose slots are drawn."""


class Job(NamedTuple):
    """A question, with the file of its trace and the reader's name of that, and the ``window`` that
    another answer shows."""

    question: Mapping[str, str]
    trace: Path | None = None
    trace_name: str = ""
    window: Window | None = None


Step = dict[str, Any]
"""A part of an answer as a JSON object; its entries replace those of earlier steps."""

Draw = Callable[[Mapping[str, Any], Window | None], Step]
"""Draws the contents of a run's page: its summary and tables alone, then in full."""
