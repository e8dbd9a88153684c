"""Predicts attention over drafts where kernels take one sequence after the other. Seconds, tokens.

A paged kernel of a GPU reads the cache of a sequence once for all its tokens in the pass, so that
checking drafts is decoding with more arithmetic (``passes``). The kernels of a CPU compute several
tokens of a sequence as a chunk of a prompt on top of its cache, under a mask; so what a check takes
is what such a chunk was timed at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.cost.decode_table import KNOTS, Line
from sim.cost.kernels import serial
from sim.cost.operators import Amount, Operator, Prefills, merged
from sim.cost.parts import AttentionPart
from sim.iteration import Part
from sim.specs.deployment import Deployment

PROMPTS = ("prefill_attention", "mla_prefill")
"""Operators that compute chunks of prompts."""


def by_sequence(deployment: Deployment) -> bool:
    """Whether the profile's kernels take one sequence after the other."""
    profile = deployment.gpu.profile
    if profile is None:
        return False
    fits = [fit for name in PROMPTS for fit in profile.kernels.get(name, {}).values()]
    return any(fit.form == serial.NAME for fit in fits)


class ChunkChecks:
    """Attention of ``kinds`` over sequences with several tokens each, as chunks; ``factor`` is the
    engine's on chunks. Sequences of one batch are taken to hold equally much."""

    def __init__(self, kinds: Sequence[AttentionPart], factor: float) -> None:
        self._kinds, self._factor = kinds, factor
        self._tables: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def lines(self, sequences: int, width: int) -> list[Line]:
        """Lines in the tokens that ``sequences`` hold in sum, ``width`` more of each in the
        pass."""
        floors, each = self._table(width)
        seconds = (floors + sequences * each).tolist()
        held = (KNOTS - 1.0) * sequences
        slopes = (np.diff(seconds) / np.diff(held)).tolist()
        ends = [*held[1:-1].tolist(), math.inf]
        return [
            (end, at - slope * start, slope)
            for end, at, slope, start in zip(ends, seconds, slopes, held.tolist(), strict=False)
        ]

    def operator(self, sequences: Amount, context: Amount, width: Amount) -> Operator:
        """The checks of arrays of sequences as an operator; nothing for no sequences."""
        sequences, context, width = np.broadcast_arrays(
            *(np.asarray(given, dtype=np.float64) for given in (sequences, context, width))
        )
        running = sequences > 0
        held = context / np.maximum(sequences, 1.0)
        seconds = np.zeros(sequences.shape)
        for size in np.unique(width[running]).tolist():
            chosen = running & (width == size)
            floors, each = self._table(int(size))
            one = [np.interp(held[chosen] + 1.0, KNOTS, column) for column in (floors, each)]
            seconds[chosen] = one[0] + sequences[chosen] * one[1]
        tokens = sequences * width
        pairs = tokens * held + sequences * width * (width + 1) / 2
        keys = context + tokens
        passes = running.astype(np.float64)
        share = seconds / len(self._kinds)
        (operator,) = merged(
            kind.prefill_operator(Prefills(share, pairs, tokens, keys, passes, np.zeros(())))
            for kind in self._kinds
        )
        return operator._replace(name="decode attention")

    def _table(self, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """At each of ``KNOTS``: what a pass takes once, and what each sequence takes."""
        known = self._tables.get(width)
        if known is None:
            chunks = [[Part(width, int(knot) - 1)] for knot in KNOTS]
            alone, among = (
                np.array([sum(k.prefill_seconds(c, more)[0] for k in self._kinds) for c in chunks])
                for more in (0, 1)
            )
            # a longer context never takes less
            each = np.maximum.accumulate(among) * self._factor
            known = self._tables[width] = ((alone - among) * self._factor, each)
        return known
