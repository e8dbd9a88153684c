"""Scales predicted kernel times by the multiples that an engine was found to take.

The multiples are the engine's (``sim.engine.Factors``). Seconds.
"""

from __future__ import annotations

import numpy as np

from sim.cost.attention import Attention
from sim.cost.decode_table import Line
from sim.cost.deployment import Deployment
from sim.cost.operators import Amount, Operator, Operators
from sim.engine import AS_PRICED
from sim.plans import Chunk


def operators_of(deployment: Deployment) -> Operators:
    """The operators of ``deployment``, at its engine's multiples."""
    same = deployment.engine.factors == AS_PRICED
    return Operators(deployment) if same else _ScaledOperators(deployment)


def attention_of(deployment: Deployment) -> Attention:
    """The attention of ``deployment``, at its engine's multiples."""
    same = deployment.engine.factors == AS_PRICED
    return Attention(deployment) if same else _ScaledAttention(deployment)


class _ScaledOperators(Operators):
    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._factors = deployment.engine.factors
        self._one = super().per_token(1.0)

    def per_token(self, m: Amount) -> list[Operator]:
        """What depends on the number of tokens in the pass."""
        growth, kernels = self._factors.tokens, self._factors.kernels
        operators = super().per_token(m)
        scaled = []
        for operator, one in zip(operators, self._one, strict=True):
            beyond = 1.0 - one.seconds / np.maximum(operator.seconds, 1e-30)
            scaled.append(_times(operator, kernels * (1.0 + (growth - 1.0) * beyond)))
        return scaled

    def per_output(self, rows: Amount) -> list[Operator]:
        """What depends on the number of positions that sample a token."""
        return [_times(operator, self._factors.kernels) for operator in super().per_output(rows)]


class _ScaledAttention(Attention):
    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        factors = deployment.engine.factors
        self._decode = factors.decode_attention * factors.kernels
        self._prefill = factors.prefill_attention * factors.kernels

    def decode_lines(self, sequences: int) -> list[Line]:
        """Decode attention of ``sequences`` as lines in the tokens they hold."""
        factor = self._decode
        return [
            (limit, intercept * factor, slope * factor)
            for limit, intercept, slope in super().decode_lines(sequences)
        ]

    def decode(self, sequences: Amount, context: Amount) -> Operator:
        """Decode attention of ``sequences`` that hold ``context`` tokens in sum."""
        return _times(super().decode(sequences, context), self._decode)

    def prefill_seconds(self, chunks: list[Chunk], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, query-key pairs) of the prefill attention of ``chunks``."""
        seconds, pairs = super().prefill_seconds(chunks, sequences)
        return seconds * self._prefill, pairs


def _times(operator: Operator, factor: Amount) -> Operator:
    return operator._replace(
        compute=operator.compute * factor,
        memory=operator.memory * factor,
        latency=operator.latency * factor,
        communication=operator.communication * factor,
    )
