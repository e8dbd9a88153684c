"""Computes the widths of the columns of what was varied: values stay whole, long keys fold.

Widths in characters, of tables with blank edges and a blank between any two columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    words = [max(1, *map(len, _words(head))) for head in heads]
    wanted = list(map(max, least, words))
    columns = len(figures) + len(heads)
    loose, tight = (width - sum(figures) - (1 + blank) * columns - 1 for blank in (1, 0))
    blank = 1 if sum(wanted) <= loose else 0
    widths = _narrowed(wanted, least, loose if blank else tight)
    return blank, [(w, _folded(head, w)) for w, head in zip(widths, heads, strict=True)]


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


def _words(head: str) -> list[str]:
    """The pieces between which a key may fold, each with the mark that ends it."""
    return re.findall(r"[^_.]*[_.]|[^_.]+$", head) or [head]


def _folded(head: str, width: int) -> str:
    lines = [""]
    for word in _words(head):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width))
