"""Predicts attention's time on one GPU, for all layers of a pass. Contexts in tokens, seconds.

Decode attention reads the KV cache of every sequence; nothing is shared, so a batch amortises
nothing. One layer takes a floor, and then the longer of two things: the bytes over the bandwidth,
and the work of an SM per sequence and KV head over the number of SMs, which binds for many short
contexts. That is a flat and a rising line in the context, and it has to be made of lines, because a
leap needs the times of many iterations at once. Prefill attention is arithmetic over the causal
query-key pairs, at a rate that grows with the number of keys each query sees; in fp32 up to what
products in fp32 reach.
"""

from __future__ import annotations

import math

import numpy as np

from sim.cost.decode_table import DecodeTable, Line
from sim.cost.deployment import Deployment
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.measured import PromptTrust, decode_of, prompts_of
from sim.cost.operators import Amount, Operator, measured
from sim.cost.trust import ATTENTION_ERROR
from sim.model import precision_bytes
from sim.plans import Chunk

PREFILL_SHARES = (0.0455, 0.096, 0.185, 0.299, 0.442, 0.533, 0.577, 0.585)
"""Share of the dense bf16 peak that causal prefill attention reaches when a query sees 64, 128, ...
8,192 keys on average: 45, 95, 183, 296, 437, 527, 571 and 579 TFLOP/s at prompts of 128 to 16,384
tokens (H200, vLLM kernels, aiconfigurator-core tables)."""
FIRST_SHARE_LOG2 = 6


class Attention:
    """Attention of one deployment: from the profile of the GPU where it has it, else as above."""

    def __init__(self, deployment: Deployment) -> None:
        d, gpu = deployment, deployment.gpu
        self._layers = d.model.num_layers
        self._slower = d.kernel_time
        self._layer_seconds = self._layers * d.kernel_time  # seconds of a pass, per one of a layer
        self._token_bytes = 2.0 * d.kv_size * precision_bytes(d.kv_cache)
        self._sequence_bytes = 2.0 * d.query_size * d.activation_bytes  # query in, result out
        self._pair_flops = 4.0 * d.query_size
        self._peak = gpu.flops("bf16")  # that the shares are of
        reached = gpu.flops(d.unquantised) * gpu.efficiency.compute
        self._fastest = reached if d.unquantised == "fp32" else math.inf
        self._floor = gpu.attention.floor
        self._bandwidth = gpu.bandwidth * gpu.attention.bandwidth
        self._arithmetic = self._pair_flops / reached  # s per pair
        self._unit = gpu.attention.unit * d.kv_size / d.model.head_dim / gpu.sms  # s per sequence
        heads = (d.query_size // d.model.head_dim, d.kv_size // d.model.head_dim, d.model.head_dim)
        group = heads[0] // heads[1]
        rereads = d.engine.rereads(group)
        self._read_bytes = self._token_bytes * (1 + rereads * (group - 1))
        kernel = d.attention_kernel
        decode = None if kernel is None else decode_of(gpu, kernel, heads, rereads)
        self._table = None if decode is None else DecodeTable(decode, self._layers)
        self._prompts: Prompts | SerialPrompts | None = None
        self._trust = PromptTrust(0.0, False, ATTENTION_ERROR)
        prompts = None if kernel is None else prompts_of(gpu, kernel, heads)
        if prompts is not None:
            self._prompts, self._trust = prompts
            self._floor = self._prompts.floor

    def decode_lines(self, sequences: int) -> list[Line]:
        """Decode attention of ``sequences``, all layers, as lines in the tokens they hold in sum.

        Returns (limit, intercept, slope) in ascending order: ``intercept + slope * context``
        seconds for ``context < limit``. The token that each sequence adds is counted on top of
        ``context``.
        """
        if self._table is not None:
            f = self._slower
            return [(limit, f * a, f * b) for limit, a, b in self._table.lines(sequences)]
        slope = max(self._read_bytes / self._bandwidth, self._arithmetic)
        start = sequences * (slope + self._sequence_bytes / self._bandwidth)
        flat = sequences * self._unit
        layers = self._layer_seconds
        rising = (math.inf, (self._floor + start) * layers, slope * layers)
        if flat <= start:
            return [rising]
        return [((flat - start) / slope, (self._floor + flat) * layers, 0.0), rising]

    def decode(self, sequences: Amount, context: Amount) -> Operator:
        """Decode attention of ``sequences`` that hold ``context`` tokens in sum."""
        tokens = context + sequences
        traffic = tokens * self._read_bytes + sequences * self._sequence_bytes
        memory = traffic / self._bandwidth
        compute = tokens * self._arithmetic + sequences * self._sequence_bytes / self._bandwidth
        waiting = np.maximum(sequences * self._unit - np.maximum(memory, compute), 0.0)
        operator = Operator(
            "decode attention",
            self._pair_flops * tokens * self._layers,
            traffic * self._layers,
            compute * self._layers,
            memory * self._layers,
            # SMs that have too little to read
            (self._floor * np.greater(sequences, 0) + waiting) * self._layers,
            0.0,
            False,
            ATTENTION_ERROR,
        )
        if self._table is not None:
            operator = measured(operator, 1, self._table.timing(sequences, context))
        return operator.slowed(self._slower)

    def prefill_seconds(self, chunks: list[Chunk], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, query-key pairs) of the prefill attention of ``chunks``.

        With decoding ``sequences`` it shares their kernel, and the floor is theirs.
        """
        if self._prompts is not None:
            return self._measured_prefill(self._prompts, chunks, sequences)
        seconds = 0.0 if sequences else self._floor
        pairs = 0.0
        for chunk in chunks:
            tokens, context = chunk.tokens, chunk.context
            seen = tokens * context + tokens * (tokens + 1) / 2
            rate = prefill_share(seen / tokens) * self._peak
            if rate > self._fastest:
                rate = self._fastest
            arithmetic = self._pair_flops * seen / rate
            traffic = (context + tokens) * self._token_bytes + tokens * self._sequence_bytes
            memory = traffic / self._bandwidth
            seconds += arithmetic if arithmetic > memory else memory
            pairs += seen
        return seconds * self._layer_seconds, pairs

    def _measured_prefill(
        self, prompts: Prompts | SerialPrompts, chunks: list[Chunk], sequences: int
    ) -> tuple[float, float]:
        work = longest = reading = writing = pairs = 0.0
        total = 0
        if len(chunks) == 1 and not chunks[0].context:
            tokens = chunks[0].tokens
            seconds = prompts.alone(tokens)
            pairs = tokens * (tokens + 1) / 2
            if sequences:
                seconds = seconds - self._floor if seconds > self._floor else 0.0
            return seconds * self._layer_seconds, pairs
        for chunk in chunks:
            tokens, context = chunk.tokens, chunk.context
            busy, tile, read, written = prompts.work(tokens, context)
            work += busy
            reading += read
            writing += written
            if tile > longest:
                longest = tile
            total += tokens
            pairs += tokens * context + tokens * (tokens + 1) / 2
        seconds = prompts.seconds(work, longest, reading, writing)
        seconds *= prompts.correction(total, len(chunks))
        if sequences:
            seconds -= self._floor
            if seconds < 0.0:
                seconds = 0.0
        return seconds * self._layer_seconds, pairs

    def prefill(self, chunks: list[Chunk], sequences: int) -> Operator:
        """Prefill attention of ``chunks`` in a pass with decoding ``sequences``."""
        seconds, pairs = self.prefill_seconds(chunks, sequences)
        tokens = sum(chunk.tokens for chunk in chunks)
        context = sum(chunk.context for chunk in chunks) + tokens
        passes = 0 if sequences else 1
        fresh = float(context == tokens)
        return self.prefill_operator(seconds, pairs, tokens, context, passes, fresh)

    def prefill_operator(
        self,
        seconds: float,
        pairs: float,
        tokens: float,
        context: float,
        passes: float,
        fresh: float,
    ) -> Operator:
        """Prefill attention that takes ``seconds`` for ``pairs``.

        ``tokens`` are the queries, ``context`` the keys, ``passes`` how often the floor is paid,
        ``fresh`` the share of the time for prompts with nothing cached before them. All but the
        floor counts as arithmetic.
        """
        flops = self._pair_flops * pairs * self._layers
        traffic = (context * self._token_bytes + tokens * self._sequence_bytes) * self._layers
        latency = min(self._floor * self._layer_seconds * passes, seconds)
        compute = seconds - latency
        memory = min(traffic / self._bandwidth * self._slower, compute)
        return Operator(
            *("prefill attention", flops, traffic, compute, memory, latency, 0.0, False),
            *self._trust.of(fresh),
        )


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
