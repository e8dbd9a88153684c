"""Predicts grouped-query attention to the tokens that an indexer chooses on one GPU.

As ``sim.cost.parts.grouped_query`` over the chosen tokens, counted for the mean context of the
batch, and before it the indexer: one more kernel, which reads its keys of all tokens. No kernels of
this kind were timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.cost.decode_table import Line
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.parts.grouped_query import GroupedQueryPart, unmeasured
from sim.cost.rooflines import Rooflines
from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.sparse_grouped import SparseGrouped
from sim.specs.window import Window


class SparseGroupedPart(GroupedQueryPart):
    """Attention over chosen tokens, and the indexer by the data sheet."""

    def __init__(
        self, attention: SparseGrouped, layers: int, d: Deployment, kernels: Rooflines
    ) -> None:
        super().__init__(attention, layers, d, kernels)
        one, gpu = attention.share(d.layout.tensor), d.gpu
        self._chosen = Window(attention.index_topk)
        self._reach = attention.index_topk
        self._timed = False
        self._index_bytes = attention.index_bytes
        self._index_flops = one.index_flops_per_pair()
        reached = gpu.flops(d.unquantised) * gpu.efficiency.compute
        self._index_arithmetic = self._index_flops / reached
        self._index_memory = self._index_bytes / self._bandwidth
        self._index_seconds = max(self._index_arithmetic, self._index_memory)  # of a rated token
        self._index_floor = gpu.efficiency.operator_latency

    def decode_lines(self, sequences: int) -> list[Line]:
        """Lines up to as many tokens as are chosen, and one behind them."""
        full, lines = float(sequences * (self._reach - 1)), super().decode_lines(sequences)
        rising = [line for line in lines if line[0] < full]
        _, intercept, slope = lines[len(rising)]
        capped = [*rising, (full, intercept, slope), (math.inf, intercept + slope * full, 0.0)]
        rated = self._index_seconds * self._layer_seconds
        start = self._index_floor * self._layer_seconds + sequences * rated
        return [(limit, at + start, slope + rated) for limit, at, slope in capped]

    def _seen(self, sequences: Amount, context: Amount) -> Amount:
        """Chosen tokens of sequences that hold ``context`` in sum, without the new ones."""
        return np.minimum(context, sequences * (self._reach - 1))

    def _decoded(self, operator: Operator, sequences: Amount, context: Amount) -> Operator:
        found = unmeasured(super()._decoded(operator, sequences, self._seen(sequences, context)))
        tokens, layers = context + sequences, self._layers
        compute = found.compute + tokens * self._index_arithmetic * layers
        memory = found.memory + tokens * self._index_memory * layers
        floor = self._index_floor * np.greater(sequences, 0) * layers
        seconds = found.roof + tokens * self._index_seconds * layers
        hidden = seconds - np.maximum(compute, memory)
        latency = found.latency + floor + hidden
        return found._replace(compute=compute, memory=memory, latency=latency)

    def _decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        flops, traffic = super()._decode_work(sequences, self._seen(sequences, context))
        tokens = context + sequences
        return flops + tokens * self._index_flops, traffic + tokens * self._index_bytes

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, pairs of queries and chosen tokens) of the prefill attention of
        ``parts``, and of rating all tokens before it."""
        seconds, pairs = super().prefill_seconds(parts, sequences)
        rated = 0.0
        for part in parts:
            rated += part.tokens * part.context + part.tokens * (part.tokens + 1) / 2
        rating = self._index_floor + rated * self._index_arithmetic
        return seconds + rating * self._layer_seconds, pairs

    def _windowed(self, tokens: int, context: int) -> tuple[float, int]:
        """Pairs of ``tokens`` and what is chosen for them; all of the context is read."""
        return self._chosen.pairs(tokens, context), context

    def _prefill_work(self, prefills: Prefills) -> tuple[Amount, Amount]:
        """FLOP and bytes of one layer for prompts; the indexer's FLOP are left out."""
        flops, traffic = super()._prefill_work(prefills)
        return flops, traffic + prefills.keys * self._index_bytes
