"""Compares the batches of the engine with those of the simulator.

Step by step as long as both agree, then by what batches and memory were on the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.iterations import Ints, ObservedIterations
from calibrate.validation.observed import ObservedRun
from sim.growth.kept_rows import PlanRows
from sim.planning.answers.validated import LevelRow

COLUMNS = ("decode", "padded", "context", "prompts", "prompt tokens")
"""The quantities that agree in two iterations if they are the same."""


class Parting(NamedTuple):
    """Where the sequences part: the iteration, counted from 0, and what each side did there (None:
    it had no further one)."""

    iteration: int
    observed: tuple[int, ...] | None
    predicted: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """``same`` iterations agree from the start; ``parting`` is None where all do."""

    observed: int
    predicted: int
    same: int
    parting: Parting | None

    @property
    def share(self) -> float:
        """The part that agrees, of the longer sequence."""
        return self.same / max(self.observed, self.predicted)


def agreement(iterations: ObservedIterations, plans: PlanRows) -> Agreement:
    """``plans`` are the simulator's rows, one for each iteration."""
    ours = _table(
        iterations.decode,
        iterations.padded,
        iterations.context,
        iterations.prefill_seqs,
        iterations.prefill_tokens,
    )
    theirs = _table(
        plans["decode"],
        plans["computed"] - plans["decode"],
        plans["context"],
        plans["prefill_seqs"],
        plans["prefill_tokens"],
    )
    common = min(len(ours), len(theirs))
    differing = np.flatnonzero((ours[:common] != theirs[:common]).any(axis=1))
    same = int(differing[0]) if len(differing) else common
    parting = None
    if same < max(len(ours), len(theirs)):
        parting = Parting(same, _at(ours, same), _at(theirs, same))
    return Agreement(len(ours), len(theirs), same, parting)


LEVELS = (
    ("iterations", "count", ("batch", "iterations")),
    ("mean running", "number", ("batch", "mean_running")),
    ("peak running", "count", ("batch", "peak_running")),
    ("mean decode batch", "number", ("batch", "mean_decode_batch")),
    ("preemptions", "count", ("preemptions",)),
    ("KV blocks (num_gpu_blocks)", "count", ("kv_cache", "num_gpu_blocks")),
    ("block size", "count", ("kv_cache", "block_size")),
    ("KV used, mean", "share", ("kv_cache", "mean_used")),
    ("KV used, peak", "share", ("kv_cache", "peak_used")),
    ("KV reserved, peak", "share", ("kv_cache", "peak_reserved")),
)
"""Name, how it is written, and where it stands in the summary's own part."""


def levels(run: ObservedRun, predicted: Mapping[str, Any]) -> list[LevelRow]:
    """Batches and memory of both runs."""
    found = []
    for name, kind, path in LEVELS:
        value: Any = predicted["infersim"]
        for key in path:
            value = value[key]
        ours = run.figure(*path)
        found.append(LevelRow(name, kind, ours, None if value is None else float(value)))
    return found


def _table(*columns: Ints) -> NDArray[np.int64]:
    return np.column_stack([np.asarray(column, dtype=np.int64) for column in columns])


def _at(table: NDArray[np.int64], row: int) -> tuple[int, ...] | None:
    return tuple(table[row].tolist()) if row < len(table) else None
