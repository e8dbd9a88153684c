"""What attention takes on one GPU, for all layers of a pass. Contexts in tokens, times in seconds.

Decode attention reads the KV cache of every sequence (nothing is shared, so a batch amortises
nothing): a floor, then a rate that grows with the bytes read. It is kept piecewise linear in the
context, because a leap needs the price of many iterations at once. Prefill attention is arithmetic
over the causal query-key pairs, at a rate that grows with the number of keys each query sees.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from sim.cost.deployment import Deployment
from sim.cost.operators import ACTIVATION_BYTES, Amount, Operator
from sim.model import precision_bytes
from sim.plan import Chunk

DECODE_KNOTS = (
    (0.0, 12e-6),
    (3.16e6, 19.8e-6),
    (31.6e6, 28.7e-6),
    (316e6, 109e-6),
    (3.16e9, 752e-6),
)
"""(bytes of KV read, seconds) of one layer's decode attention on an H200: the floor, then the
middle of each decade at its median rate, 0.16, 1.1, 2.9 and 4.2 TB/s (vLLM kernels with bf16 KV,
aiconfigurator-core tables). On other GPUs what lies above the floor scales with the bandwidth."""
DECODE_LAST_RATE = 4.2e12  # bytes/s beyond the last knot
H200_BANDWIDTH = 4.8e12 * 0.82  # bytes/s reached in streaming weights, same tables

GROUP_RATES = (3.6, 2.9)
"""TB/s of H200 decode attention with 1 and with 16 query heads per KV head (same tables); in
between it falls with the logarithm, and the knots are taken to stand for the middle, 4."""

PREFILL_SHARES = (0.0455, 0.096, 0.185, 0.299, 0.442, 0.533, 0.577, 0.585)
"""Share of the dense bf16 peak that causal prefill attention reaches when a query sees 64, 128, ...
8,192 keys on average: 45, 95, 183, 296, 437, 527, 571 and 579 TFLOP/s at prompts of 128 to 16,384
tokens (H200, vLLM kernels, aiconfigurator-core tables)."""
FIRST_SHARE_LOG2 = 6


class Attention:
    """Attention of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        d, gpu = deployment, deployment.gpu
        self._layers = d.model.num_layers
        self._token_bytes = 2.0 * d.kv_size * precision_bytes(d.kv_cache)
        self._sequence_bytes = 2.0 * d.query_size * ACTIVATION_BYTES  # the query in, the result out
        self._pair_flops = 4.0 * d.query_size
        self._peak = gpu.flops("bf16")
        self._compute = self._peak * gpu.efficiency.compute
        self._latency = gpu.efficiency.operator_latency
        self._bandwidth = gpu.bandwidth * gpu.efficiency.bandwidth
        self._lines = self._decode_lines(d.model.num_heads / d.model.num_kv_heads)

    def _decode_lines(self, group: float) -> list[tuple[float, float, float]]:
        """One layer's decode attention as lines in the bytes read: (limit, intercept, slope)."""
        alone, grouped = GROUP_RATES
        rate = alone - (alone - grouped) * min(math.log2(group), 4.0) / 4.0
        scale = H200_BANDWIDTH / self._bandwidth * ((alone + grouped) / 2) / rate
        arithmetic = self._pair_flops / self._compute / self._token_bytes  # s per byte of KV
        lines: list[tuple[float, float, float]] = []
        at, seconds = DECODE_KNOTS[0]
        for (size, t), (next_size, next_t) in pairwise(DECODE_KNOTS):
            slope = max((next_t - t) / (next_size - size) * scale, arithmetic)
            lines.append((next_size, seconds - slope * at, slope))
            seconds += slope * (next_size - at)
            at = next_size
        slope = max(scale / DECODE_LAST_RATE, arithmetic)
        lines.append((math.inf, seconds - slope * at, slope))
        return lines

    def decode_lines(self, sequences: int) -> list[tuple[float, float, float]]:
        """Decode attention of ``sequences``, all layers, as lines in the tokens they hold in sum.

        Returns (limit, intercept, slope) in ascending order: ``intercept + slope * context``
        seconds for ``context < limit``. The token that each sequence adds is counted on top of
        ``context``.
        """
        fixed = sequences * (self._sequence_bytes + self._token_bytes)
        lines = []
        for limit, intercept, slope in self._lines:
            if limit > fixed:
                lines.append(
                    (
                        (limit - fixed) / self._token_bytes,
                        (intercept + slope * fixed) * self._layers,
                        slope * self._token_bytes * self._layers,
                    )
                )
        return lines

    def decode(self, sequences: Amount, context: Amount) -> Operator:
        """Decode attention of ``sequences`` that hold ``context`` tokens in sum."""
        runs = np.greater(sequences, 0)
        size = context * self._token_bytes + sequences * (self._sequence_bytes + self._token_bytes)
        limits, intercepts, slopes = np.array(self._lines).T
        line = np.searchsorted(limits, size, side="right")
        floor = DECODE_KNOTS[0][1]
        roof = (intercepts[line] - floor + slopes[line] * size) * self._layers * runs
        flops = self._pair_flops * (context + sequences) * self._layers
        compute = np.minimum(flops / self._compute, roof)
        latency = floor * self._layers * runs
        return Operator(
            "decode attention", flops, size * self._layers, compute, roof, latency, 0.0, False
        )

    def prefill_seconds(self, chunks: list[Chunk]) -> tuple[float, float]:
        """(seconds of all layers, query-key pairs) of the prefill attention of ``chunks``."""
        seconds = pairs = 0.0
        for chunk in chunks:
            tokens, context = chunk.tokens, chunk.context
            seen = tokens * context + tokens * (tokens + 1) / 2
            arithmetic = self._pair_flops * seen / (prefill_share(seen / tokens) * self._peak)
            traffic = (context + tokens) * self._token_bytes + tokens * self._sequence_bytes
            seconds += max(arithmetic, traffic / self._bandwidth)
            pairs += seen
        return (seconds + self._latency) * self._layers, pairs

    def prefill(self, chunks: list[Chunk]) -> Operator:
        """Prefill attention of ``chunks``."""
        seconds, pairs = self.prefill_seconds(chunks)
        tokens = sum(chunk.tokens for chunk in chunks)
        context = sum(chunk.context for chunk in chunks) + tokens
        return self.prefill_operator(seconds, pairs, tokens, context)

    def prefill_operator(
        self, seconds: float, pairs: float, tokens: float, context: float
    ) -> Operator:
        """Prefill attention that takes ``seconds`` for ``pairs``, queries of ``tokens`` over keys
        of
        ``context`` tokens; every operand is read or written once."""
        flops = self._pair_flops * pairs * self._layers
        traffic = (context * self._token_bytes + tokens * self._sequence_bytes) * self._layers
        latency = min(self._latency * self._layers, seconds)
        roof = seconds - latency
        memory = min(traffic / self._bandwidth, roof)
        return Operator("prefill attention", flops, traffic, roof, memory, latency, 0.0, False)


def prefill_share(keys: float) -> float:
    """Share of the bf16 peak that prefill attention reaches at ``keys`` keys per query.

    >>> prefill_share(512), prefill_share(1), prefill_share(1e6)
    (0.299, 0.0455, 0.585)
    """
    place = math.log2(keys) - FIRST_SHARE_LOG2
    if place <= 0:
        return PREFILL_SHARES[0]
    left = int(place)
    if left >= len(PREFILL_SHARES) - 1:
        return PREFILL_SHARES[-1]
    rest = place - left
    return PREFILL_SHARES[left] * (1 - rest) + PREFILL_SHARES[left + 1] * rest
