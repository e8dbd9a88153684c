"""Provides the consoles for results and messages, of at most 88 columns, and their styles."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path
from typing import Literal

from rich.console import Console, RenderableType
from rich.text import Text

WIDTH = 88

STATE_STYLES = {
    "stable": "green",
    "near saturation": "yellow",
    "too short to tell": "yellow",
    "overloaded": "red",
    "no traffic served": "red",
}

SLO_STYLES = {"met": "green", "too close to call": "yellow", "missed": "red"}


def stdout() -> Console:
    """The console results are written to; it obeys NO_COLOR and draws no wider than ``WIDTH``."""
    console = _plain(stderr=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def stderr() -> Console:
    """The console progress and complaints are written to."""
    return _plain(stderr=True)


def as_text(shown: RenderableType) -> str:
    """What a console would print, without colours and blanks at the ends of lines."""
    console = Console(
        file=StringIO(), width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False
    )
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_html(shown: RenderableType) -> str:
    """The same with its colours, as one HTML element."""
    console = Console(
        file=StringIO(), width=WIDTH, record=True, highlight=False, markup=False, emoji=False
    )
    console.print(shown)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _plain(*, stderr: bool) -> Console:
    """A console that takes no text for markup, and under NO_COLOR writes no escape code at all."""
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, color_system=system)


def paths_view(directory: Path, report: Path | None) -> Text:
    """Where the run was written to."""
    lines = [f"Run: {directory}"]
    if report is not None:
        lines.append(f"Report: {report}")
    return Text("\n".join(lines))
