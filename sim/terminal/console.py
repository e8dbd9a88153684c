"""Provides the consoles for results and messages, of 88 columns, or more in a pipe.

``axis_columns`` computes the widths of the columns of what was varied, in characters, of tables
with blank edges and a blank between any two columns: values stay whole, long keys fold.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Literal

from rich.console import Console, RenderableType
from rich.text import Text

WIDTH = 88


def line_width() -> int:
    """The columns of results: ``WIDTH``, or in a pipe as many more as COLUMNS asks for."""
    asked = os.environ.get("COLUMNS", "")
    return max(int(asked), WIDTH) if asked.isdecimal() and not sys.stdout.isatty() else WIDTH


def stdout() -> Console:
    """The console results are written to; it obeys NO_COLOR and is ``line_width`` wide."""
    console = _plain(stderr=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else line_width()
    return console


def stderr() -> Console:
    """The console progress and complaints are written to."""
    return _plain(stderr=True)


def as_text(shown: RenderableType) -> str:
    """The output of a console, without colours and blanks at the ends of lines."""
    console = Console(
        file=StringIO(),
        width=line_width(),
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_html(shown: RenderableType) -> str:
    """The output with its colours, as one HTML element."""
    console = Console(
        file=StringIO(), width=line_width(), record=True, highlight=False, markup=False, emoji=False
    )
    console.print(shown)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _plain(*, stderr: bool) -> Console:
    """A console that takes no text for markup, and under NO_COLOR writes no escape code at all."""
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, color_system=system)


def paths_view(directory: Path, report: Path | None, *, full: bool = True) -> Text:
    """Where the run was written to; without ``full`` its report alone, if it has one."""
    lines = [] if report is not None and not full else [f"Run: {directory}"]
    if report is not None:
        lines.append(f"Report: {report}")
    return Text("\n".join(lines))


NARROWEST = 4
"""Characters that a column keeps, whatever else there is."""


def axis_columns(
    heads: Sequence[str], values: Sequence[Sequence[str]], figures: Sequence[int], width: int
) -> tuple[int, list[tuple[int, str]]]:
    """How many blanks (1 or 0) go after each cell of a table of ``width``, and of each column of
    what was varied its width and its head, folded to that.

    ``figures`` are the widths of the other columns. Blanks are spared where values, or words of the
    heads, would else fold.

    >>> axis_columns(["rate", "gpu_memory_utilization"], [["10000.5"], ["0.85"]], [50], 88)
    (1, [(7, 'rate'), (11, 'gpu_memory_\\nutilization')])
    >>> axis_columns(["rate", "gpu_memory_utilization"], [["10000.5"], ["0.85"]], [70], 88)
    (0, [(7, 'rate'), (7, 'gpu_\\nmemory_\\nutiliza\\ntion')])
    """
    least = [max(map(len, column), default=1) for column in values]
    words = [max(1, *map(len, head_words(head))) for head in heads]
    wanted = list(map(max, least, words))
    columns = len(figures) + len(heads)
    loose, tight = (width - sum(figures) - (1 + blank) * columns - 1 for blank in (1, 0))
    blank = 1 if sum(wanted) <= loose else 0
    widths = _narrowed(wanted, least, loose if blank else tight)
    return blank, [(w, folded(head, w)) for w, head in zip(widths, heads, strict=True)]


def _narrowed(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """``wanted`` brought down to ``room``: none below its ``least`` while another is above it."""
    widths = list(wanted)
    for _ in range(sum(widths) - room):
        spare = [width - size for width, size in zip(widths, least, strict=True)]
        if max(spare) <= 0:  # values must fold too
            spare = [width - NARROWEST for width in widths]
        if max(spare) <= 0:
            break
        widths[spare.index(max(spare))] -= 1
    return widths


def head_words(head: str) -> list[str]:
    """The pieces between which a key may fold, each with the mark that ends it."""
    return re.findall(r"[^_. ]*[_. ]|[^_. ]+$", head) or [head]


def folded(head: str, width: int) -> str:
    """The head of a key in lines of ``line_width``."""
    lines = [""]
    for word in head_words(head):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width))
