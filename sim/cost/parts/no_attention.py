"""Predicts layers without attention: no work."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.cost.decode_table import Line
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.rooflines import Rooflines
from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.no_attention import NoAttention
from sim.specs.window import Window


class NoAttentionPart:
    """The part of layers without attention."""

    all_reduces = 0
    inputs: tuple[float, ...] = ()
    pair_flops = 0.0
    window: Window | None = None

    def __init__(
        self, attention: NoAttention, layers: int, d: Deployment, kernels: Rooflines
    ) -> None:
        pass

    def per_token(self, m: Amount) -> list[Operator]:
        """No operators."""
        return []

    def decode_lines(self, sequences: int) -> list[Line]:
        """No time, whatever the context."""
        return [(math.inf, 0.0, 0.0)]

    def decode(self, sequences: Amount, context: Amount) -> Operator:
        """An operator without work."""
        return _nothing("decode attention", sequences * 0.0)

    def decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        """No FLOP and no bytes."""
        return sequences * 0.0, sequences * 0.0

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """No time and no pairs."""
        return 0.0, 0.0

    def prefill_operator(self, prefills: Prefills) -> Operator:
        """An operator without work."""
        return _nothing("prefill attention", prefills.tokens * 0.0)


def _nothing(name: str, zero: Amount) -> Operator:
    return Operator(name, zero, zero, zero, zero, zero, 0.0, False)
