"""Draws a series in one line of text.

Each value is one character, as high as its share of the largest: the largest is a full block,
anything above zero is visible, and zero is a dot on the ground. Where a terminal has no blocks,
digits from 1 to 8 count eighths of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.text import Text

from sim.metrics.latency.timeline import Timeline
from sim.units import show_time

BLOCKS, DIGITS = "·▁▂▃▄▅▆▇█", ".12345678"
"""The marks of zero to eight eighths."""

NARROWEST = 16
"""Characters of a timeline at least."""

STYLES = {"running": "cyan", "waiting": "yellow"}


def sparkline(values: Sequence[float], most: float, *, blocks: bool = True) -> str:
    """A character for each of ``values``, from 0 to ``most``.

    >>> sparkline([0, 1, 100, 400, 800], 800)
    '·▁▁▄█'
    >>> sparkline([0, 1, 100, 400, 800], 800, blocks=False)
    '.1148'
    >>> sparkline([3, 3], 3), sparkline([0, 0], 0), sparkline([], 1)
    ('██', '··', '')
    """
    marks = BLOCKS if blocks else DIGITS
    return "".join(marks[math.ceil(8 * value / most) if value else 0] for value in values)


def shows_blocks(encoding: str) -> bool:
    """Whether text of this ``encoding`` can have the blocks in it.

    >>> shows_blocks("utf-8"), shows_blocks("cp1252"), shows_blocks("no such encoding")
    (True, False, False)
    """
    try:
        BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class Sparks:
    """A line for the running requests and one for the waiting ones, as wide as there is room;
    nothing where nothing is known or no time passed. ``of_first``: of several repetitions.

    Each line is as high as its peak, but a queue that is shorter than the batch is drawn in the
    scale of the batch, so that one that hardly matters does not look like a mountain range.
    """

    def __init__(self, timeline: Timeline, *, of_first: bool = False) -> None:
        self._timeline, self._of_first = timeline, of_first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """One line that names the span, then the lines."""
        seen, blocks = self._timeline, shows_blocks(options.encoding)
        span = seen.end - seen.start
        levels = {"running": seen.running, "waiting": seen.waiting}
        known = {name: level for name, level in levels.items() if level is not None}
        if span <= 0 or not any(len(level.times) for level in known.values()):
            return
        peaks = {name: level.most(seen.start, seen.end, 1)[0] for name, level in known.items()}
        tails = {name: f"  peak {peak:,.0f}" for name, peak in peaks.items()}
        room = options.max_width - len("running  ") - max(map(len, tails.values()))
        columns, batch = max(NARROWEST, room), peaks.get("running", 0.0)
        yield Text(self._span(span, columns, blocks, peaks.get("waiting", 0.0) < batch))
        for name, level in known.items():
            most = level.most(seen.start, seen.end, columns)
            marks = sparkline(most, max(peaks[name], batch), blocks=blocks)
            yield Text.assemble(f"{name}  ", (marks, STYLES[name]), tails[name], no_wrap=True)

    def _span(self, span: float, columns: int, blocks: bool, one_scale: bool) -> str:
        told = f"Over {show_time(span)}, the most in each {show_time(span / columns)}"
        if (number := self._timeline.replicas) > 1:
            told += f" on {'both' if number == 2 else f'all {number:,}'} replicas"
        if self._of_first:
            told += ", first repetition"
        if not blocks:
            told += ", in eighths of the " + ("peak of running" if one_scale else "peak")
        elif one_scale and self._timeline.waiting is not None:
            told += ", both in one scale"
        return f"{told}:"
