"""Words why continuous batching may have a longer TPOT than another policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sim.metrics.engine.decode_pace import DecodePace
from sim.schedulers import ChunkedPrefill
from sim.units import show_time

LONGER = 1.05
"""How many times as long a mean TPOT is that asks for a reason."""


class PacedRun(NamedTuple):
    """A run of a variant: its policy, its mean TPOT (s), and how it decodes."""

    label: str
    batching: str
    tpot: float | None
    pace: DecodePace | None

    @classmethod
    def of_plans(cls, label: str, batching: str, tpot: float, plans: Any) -> PacedRun:
        """A run with this table of plans (``timeseries.parquet``)."""
        decode, prefill, iterations, start, end = (
            np.asarray(plans[name])
            for name in ("decode_seqs", "prefill_tokens", "iterations", "start_s", "end_s")
        )
        return cls(label, batching, tpot, DecodePace.of(decode, prefill, iterations, end - start))


class TpotReason(NamedTuple):
    """Why one TPOT is longer than another: whole, and as first lines have it."""

    text: str
    brief: str


def longer_tpot(runs: Sequence[PacedRun]) -> Iterator[TpotReason]:
    """Why continuous batching has a longer TPOT than another policy, where its batches and its
    prefills explain it; in brief by the prefills alone, if they are a reason."""
    mine = [each for each in runs if each.batching == ChunkedPrefill.name]
    others = [each for each in runs if each.batching != ChunkedPrefill.name]
    for one, other in product(mine, others):
        slow, fast = one.pace, other.pace
        if slow is None or fast is None or not one.tpot or not other.tpot:
            continue
        causes = _causes(slow, fast)
        if causes and one.tpot > LONGER * other.tpot:
            told = f"{show_time(one.tpot)} instead of {show_time(other.tpot)}"
            head = f"TPOT of {one.label} is {told} ({other.label}): "
            yield TpotReason(f"{head}{'; '.join(causes)}.", f"{head}{causes[-1]}.")


def _causes(slow: DecodePace, fast: DecodePace) -> list[str]:
    causes = []
    if slow.batch > fast.batch and slow.alone > fast.alone:
        causes.append(
            f"its batches are fuller: {slow.batch:.3g} requests decode at once instead of "
            f"{fast.batch:.3g}, and one of their steps takes {show_time(slow.alone)} instead "
            f"of {show_time(fast.alone)}"
        )
    if slow.mixed_share > fast.mixed_share and slow.mixed > slow.alone:
        causes.append(
            f"prefills join between decode steps: {slow.mixed_share:.0%} of its iterations "
            f"prefill too, and take {show_time(slow.mixed)}"
        )
    return causes
