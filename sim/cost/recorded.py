"""Makes single batches again from what was recorded of them, and times them.

A summary times the passes of a run as columns (``Batches.of``). Where each pass counts by itself,
with other prompts than it had, or as a real engine ran it, its batch is made here and nowhere else.
Seconds, tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.growth.kept_rows import PlanRows
from sim.growth.leaps import ADAPTERS, CHECKED, DRAFTED, seen_before
from sim.iteration import Batch, Part, PassConditions, Timer

Prompts = Iterable[tuple[int, int]]
"""The prompts of one pass: tokens computed before it, and tokens computed in it."""

Rows = NDArray[np.integer[Any]]


def remade(
    sequences: Sequence[int],
    context: Sequence[int],
    prompts: Sequence[Prompts],
    admitted: Sequence[int],
    seen: Sequence[tuple[int, ...]],
) -> list[Batch]:
    """The batches of which each field is given as a column.

    >>> remade([2], [300], [[]], [0], [()])
    [Batch(sequences=2, context=300, parts=(), admitted=0, seen=())]
    """
    columns = zip(sequences, context, prompts, admitted, seen, strict=True)
    return [
        Batch(decoding, held, tuple(Part(tokens, before) for before, tokens in parts), new, through)
        for decoding, held, parts, new, through in columns
    ]


def batches_of(
    plans: PlanRows,
    rows: Rows,
    prompts: Sequence[Prompts] | None = None,
    admitted: Sequence[int] | None = None,
) -> list[Batch]:
    """The batch of each of some ``rows`` of recorded ``plans``: its decoding sequences, and these
    ``prompts`` of requests of which so many are ``admitted``; none where they are not given."""
    computed, context = (plans[name][rows].tolist() for name in ("computed", "context"))
    prompts = [()] * len(rows) if prompts is None else prompts
    admitted = [0] * len(rows) if admitted is None else admitted
    return remade(computed, context, prompts, admitted, seen_before(plans, rows))


def seconds_of(
    timer: Timer,
    plans: PlanRows,
    rows: Rows,
    prompts: Sequence[Prompts] | None = None,
    admitted: Sequence[int] | None = None,
) -> list[float]:
    """Times that ``timer`` predicts for the same batches (s)."""
    timers = _timers_of(timer, plans, rows)
    batches = batches_of(plans, rows, prompts, admitted)
    return [own.seconds(batch) for own, batch in zip(timers, batches, strict=True)]


def _timers_of(timer: Timer, plans: PlanRows, rows: Rows) -> list[Timer]:
    """The timer of each of the ``rows``, with its adapters, or the drafts that it checked and
    made."""
    names = plans.dtype.names or ()
    if ADAPTERS in names:
        return [timer.under(PassConditions(adapters=n)) for n in plans[ADAPTERS][rows].tolist()]
    if CHECKED not in names:
        return [timer] * len(rows)
    drafts = zip(*(plans[name][rows].tolist() for name in (CHECKED, DRAFTED)), strict=True)
    return [timer.under(PassConditions(drafts=each)) for each in drafts]
