"""Provides what all kinds of attention have in common, from the work of one layer to operators.

A kind says what decoding sequences compute and move in one layer (``_decode_work``), and what
prompts do (``_prefill_work``); it times prompts itself. Decoding is timed by a table of its kernels
(``_table``), unless it says otherwise. FLOP, bytes, seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from sim.cost.decode_table import DecodeTable, Line
from sim.cost.measured import PromptTrust
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.rooflines import Rooflines, measured
from sim.cost.trust import ATTENTION_ERROR
from sim.specs.deployment import Deployment
from sim.specs.window import Window


class AttentionBase(ABC):
    """The attention of so many ``layers`` on one GPU of a deployment."""

    all_reduces = 1
    window: Window | None = None

    _table: DecodeTable | None = None
    _trust = PromptTrust(0.0, False, ATTENTION_ERROR)
    _prefill_floor: float

    def __init__(self, layers: int, d: Deployment, kernels: Rooflines) -> None:
        self._layers, self._kernels, self._hidden = layers, kernels, d.model.hidden_size
        self._slower = d.kernel_time
        self._layer_seconds = layers * d.kernel_time  # seconds of a pass, per one of a layer
        self._bandwidth = d.gpu.bandwidth * d.gpu.attention.bandwidth

    @abstractmethod
    def _decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        """FLOP and bytes of one layer for decoding ``sequences`` that see ``context`` in sum."""

    @abstractmethod
    def _prefill_work(self, prefills: Prefills) -> tuple[Amount, Amount]:
        """FLOP and bytes of one layer for prompts."""

    def decode_lines(self, sequences: int) -> list[Line]:
        """Decode attention of ``sequences``, all layers, as lines in the tokens they see in sum.

        Returns (limit, intercept, slope) in ascending order: ``intercept + slope * context``
        seconds for ``context < limit``. The token that each sequence adds is counted on top of
        ``context``.
        """
        assert self._table is not None
        f = self._slower
        return [(limit, f * a, f * b) for limit, a, b in self._table.lines(sequences)]

    def decode(self, sequences: Amount, context: Amount) -> Operator:
        """Decode attention of ``sequences`` that see ``context`` tokens in sum."""
        work = self.decode_work(sequences, context)
        operator = Operator("decode attention", *work, 0.0, 0.0, 0.0, 0.0, False, ATTENTION_ERROR)
        return self._decoded(operator, sequences, context).slowed(self._slower)

    def _decoded(self, operator: Operator, sequences: Amount, context: Amount) -> Operator:
        """``operator`` of decoding with the time that it takes."""
        assert self._table is not None
        return measured(operator, 1, self._table.timing(sequences, context))

    def decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        """FLOP and bytes of decode attention, all layers."""
        flops, traffic = self._decode_work(sequences, context)
        return flops * self._layers, traffic * self._layers

    def prefill_operator(self, prefills: Prefills) -> Operator:
        """The operator of ``prefills``, of which all but the floor counts as arithmetic."""
        flops, traffic = self._prefill_work(prefills)
        seconds, moved = prefills.seconds, traffic * self._layers
        latency = np.minimum(self._prefill_floor * self._layer_seconds * prefills.passes, seconds)
        compute = seconds - latency
        memory = np.minimum(moved / self._bandwidth * self._slower, compute)
        work = flops * self._layers, moved
        return Operator(
            *("prefill attention", *work, compute, memory, latency, 0.0, False),
            *self._prefill_trust(prefills.fresh),
        )

    def _prefill_trust(self, fresh: Amount) -> tuple[Amount, Amount]:
        """Relative error, and the share measured, where ``fresh`` of the time goes to prompts
        without a context."""
        return self._trust.of(fresh)
