"""Defines what decoding sequences see of their contexts through the windows of a model. Tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sim.specs.window import NEVER, Window


class WindowReads(NamedTuple):
    """The tokens that sequences see of those they hold: a number for each window of a model.

    ``tokens`` they see in sum before an iteration, ``growing`` of them see one more with each
    iteration, for ``left`` iterations.
    """

    tokens: tuple[int, ...]
    growing: tuple[int, ...]
    left: int


def seen_by_equals(windows: Sequence[Window], sequences: int, context: int) -> WindowReads:
    """Reads of ``sequences`` that hold ``context`` tokens in sum, equally many each."""
    held, rest = divmod(context, max(sequences, 1))
    turns = [window.turns(held) for window in windows]
    rises = [turn < NEVER for turn in turns]
    sums = [window.seen(held) * sequences for window in windows]
    return WindowReads(
        tuple(seen + rest * rise for seen, rise in zip(sums, rises, strict=True)),
        tuple(sequences * rise for rise in rises),
        min(turns, default=NEVER),
    )


ALL = WindowReads((), (), NEVER)
"""Of a model without windows."""
