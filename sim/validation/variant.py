"""How would the same prediction look with something in it put right?

A ``Variant`` is what would have to be changed: blocks of the KV cache, host times of the engine,
speeds of kernels. Seconds; factors multiply a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sim.cost import CostModel
from sim.cost.attention import Attention
from sim.cost.decode_table import Line
from sim.cost.deployment import Deployment
from sim.cost.operators import Amount, Operator, Operators
from sim.engine import EngineSpec
from sim.plan import Chunk
from sim.simulation import Setup


@dataclass(frozen=True, slots=True)
class Factors:
    """What the times of kernels are multiplied by.

    ``tokens`` is about what projections and everything else that grows with the tokens in a pass
    take beyond a pass of one token; ``kernels`` about all kernels, beside the others.
    """

    tokens: float = 1.0
    decode_attention: float = 1.0
    prefill_attention: float = 1.0
    kernels: float = 1.0


@dataclass(frozen=True, slots=True)
class Variant:
    """Changes to a prediction; the times are added to those of the engine preset."""

    num_gpu_blocks: int | None = None
    per_iteration: float = 0.0
    per_sequence: float = 0.0
    per_new_request: float = 0.0
    front_end: float = 0.0
    factors: Factors = Factors()

    def of(self, setup: Setup) -> Setup:
        """``setup`` with the changes made, but for the factors."""
        engine = changed_engine(setup.deployment.engine, self)
        memory = setup.capacity
        if self.num_gpu_blocks is not None:
            memory = replace(memory, num_gpu_blocks=self.num_gpu_blocks, given=True)
        return replace(setup, deployment=replace(setup.deployment, engine=engine), capacity=memory)

    def cost(self, deployment: Deployment) -> CostModel:
        """The prices of ``deployment``, whose engine has been changed already."""
        same = self.factors == Factors()
        return CostModel(deployment) if same else ScaledCost(deployment, self.factors)


def changed_engine(engine: EngineSpec, variant: Variant) -> EngineSpec:
    """``engine`` with its times changed; none becomes negative."""
    return replace(
        engine,
        per_iteration=max(0.0, engine.per_iteration + variant.per_iteration),
        per_sequence=max(0.0, engine.per_sequence + variant.per_sequence),
        per_new_request=max(0.0, engine.per_new_request + variant.per_new_request),
        front_end=max(0.0, engine.front_end + variant.front_end),
    )


class ScaledCost(CostModel):
    """A cost model whose kernels take a multiple of their time."""

    def __init__(self, deployment: Deployment, factors: Factors) -> None:
        super().__init__(deployment)
        self.operators = _ScaledOperators(deployment, factors)
        self.attention = _ScaledAttention(deployment, factors)


class _ScaledOperators(Operators):
    def __init__(self, deployment: Deployment, factors: Factors) -> None:
        super().__init__(deployment)
        self._factors = factors
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
    def __init__(self, deployment: Deployment, factors: Factors) -> None:
        super().__init__(deployment)
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
