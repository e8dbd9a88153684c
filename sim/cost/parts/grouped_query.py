"""Predicts grouped-query attention on one GPU, multi-head and multi-query included.

For all layers of a group; contexts in tokens, seconds.

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
from collections.abc import Sequence

import numpy as np

from sim.cost.decode_table import DecodeTable, Line
from sim.cost.kernels.lookup import WINDOW
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.kernels.serial_windows import SerialWindowPrompts
from sim.cost.measured import PromptTrust, decode_of, prompts_of
from sim.cost.measured_windows import window_prompts_of
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.parts.attention import AttentionBase
from sim.cost.rooflines import Rooflines
from sim.cost.trust import ATTENTION_ERROR
from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.gpu import GpuSpec
from sim.specs.grouped_query import GroupedQuery
from sim.specs.profile import OLDER, TRITON
from sim.specs.window import NEVER

PREFILL_SHARES = (0.0455, 0.096, 0.185, 0.299, 0.442, 0.533, 0.577, 0.585)
"""Share of the dense bf16 peak that causal prefill attention reaches when a query sees 64, 128, ...
8,192 keys on average: 45, 95, 183, 296, 437, 527, 571 and 579 TFLOP/s at prompts of 128 to 16,384
tokens (H200, vLLM kernels, aiconfigurator-core tables)."""
FIRST_SHARE_LOG2 = 6


class GroupedQueryPart(AttentionBase):
    """Grouped-query attention: from the profile of the GPU where it has it, else as above."""

    def __init__(
        self, attention: GroupedQuery, layers: int, d: Deployment, kernels: Rooflines
    ) -> None:
        super().__init__(layers, d, kernels)
        one, gpu = attention.share(d.layout.tensor), d.gpu
        read = attention.reads(d.kv_cache, d.layout)[0]
        self._query_size, self._kv_size = one.query_size, one.kv_size
        self._result_size = one.result_size
        self._projected, self._gated = one.projected, one.output_gate
        self._sums_squares = one.norm_across_heads and d.layout.tensor > 1
        self.inputs = (self._hidden, self._result_size)
        self.window = window = attention.window
        # tokens of a part and its context that see each other; chunks are cut before
        self._reach = NEVER if window is None or window.chunked else window.size
        self._token_bytes = read.bytes
        # query in, result out
        self._sequence_bytes = (one.query_size + one.result_size) * d.activation_bytes
        self._pair_flops = one.flops_per_pair()
        self.pair_flops = self._pair_flops * layers
        self._peak = gpu.flops("bf16")  # that the shares are of
        reached = gpu.flops(d.unquantised) * gpu.efficiency.compute
        self._fastest = reached if d.unquantised == "fp32" else math.inf
        self._floor = gpu.attention.floor
        self._arithmetic = self._pair_flops / reached  # s per pair
        self._unit = gpu.attention.unit * one.kv_size / one.head_dim / gpu.sms  # s per sequence
        self._older = OLDER if d.engine.older_kernels else ""
        self._triton = d.engine.triton_attention
        self.pads = self._triton and d.engine.pads_extends and self.window is None
        kernel, heads = d.attention_kernel, (one.num_heads, one.num_kv_heads, one.head_dim)
        # whether decoding was timed as it is here, and not over a whole context for a window
        self._timed = True
        self._prompts: Prompts | SerialPrompts | SerialWindowPrompts | None = None
        if kernel is not None:
            self._use_profile(gpu, kernel, heads)
        self._prefill_floor = self._floor

    def _use_profile(self, gpu: GpuSpec, kernel: str, heads: tuple[int, int, int]) -> None:
        """Take what the profile has: kernels through a window where there is one, else those over a
        whole context at what a sequence sees, which are not trusted as much."""
        plain = self.window is None
        decode = decode_of(gpu, kernel, heads, variant=self._older)
        prompts = prompts_of(gpu, kernel, heads)
        if self._reach < NEVER:
            through = decode_of(gpu, kernel, heads, variant=WINDOW, window=self._reach)
            decode = through or decode
            seen = window_prompts_of(gpu, kernel, heads, self._reach)
        else:
            through = seen = None
        self._timed = plain or through is not None
        if decode is not None:
            self._table = DecodeTable(decode, self._layers)
        if seen is not None:
            self._prompts, self._trust = seen
        elif prompts is not None:
            self._prompts, self._trust = prompts
            if not plain:
                self._trust = PromptTrust(0.0, False, max(ATTENTION_ERROR, self._trust.error))
        if self._triton:
            self._use_triton(gpu, kernel, heads)
        if self._prompts is not None:
            self._floor = self._prompts.floor

    def _use_triton(self, gpu: GpuSpec, kernel: str, heads: tuple[int, int, int]) -> None:
        """Take Triton's instead, a window as what a sequence sees of it; a deployment without any
        is refused."""
        decode = decode_of(gpu, kernel, heads, variant=TRITON)
        prompts = prompts_of(gpu, kernel, heads, TRITON)
        assert decode is not None
        assert prompts is not None
        self._table = DecodeTable(decode, self._layers)
        self._prompts, self._trust = prompts
        if self.window is not None:
            self._timed = False
            self._trust = PromptTrust(0.0, False, max(ATTENTION_ERROR, self._trust.error))

    def per_token(self, m: Amount) -> list[Operator]:
        """The projections, the sums that norms over all heads need, rotary positions, the write to
        the cache, and the gate of results."""
        h, q, kv, layers = self._hidden, self._query_size, self._kv_size, self._layers
        kernels, result = self._kernels, self._result_size
        sums = []
        if self._sums_squares:  # of queries and of keys, a number in fp32 for each token
            sums = [kernels.all_reduce(layers, m * 2 * 4)._replace(name="norms: all-reduce")]
        gate = [kernels.plain("output gate", layers, 3 * m * result * kernels.moved)]
        return [
            kernels.after_norm("qkv projection", layers, m, h, self._projected),
            *sums,
            kernels.rotary(layers, m, q, kv),
            *(gate if self._gated else []),
            kernels.projection("output projection", layers, m, result, h),
        ]

    def decode_lines(self, sequences: int) -> list[Line]:
        """Decode attention of ``sequences`` as lines in the tokens they see in sum."""
        if self._table is not None:
            return super().decode_lines(sequences)
        slope = max(self._token_bytes / self._bandwidth, self._arithmetic)
        start = sequences * (slope + self._sequence_bytes / self._bandwidth)
        flat = sequences * self._unit
        layers = self._layer_seconds
        rising = (math.inf, (self._floor + start) * layers, slope * layers)
        if flat <= start:
            return [rising]
        return [((flat - start) / slope, (self._floor + flat) * layers, 0.0), rising]

    def _decoded(self, operator: Operator, sequences: Amount, context: Amount) -> Operator:
        if self._table is not None:
            found = super()._decoded(operator, sequences, context)
            return found if self._timed else unmeasured(found)
        tokens, own = context + sequences, sequences * self._sequence_bytes
        memory = (tokens * self._token_bytes + own) / self._bandwidth
        compute = tokens * self._arithmetic + own / self._bandwidth
        # SMs that have too little to read
        waiting = np.maximum(sequences * self._unit - np.maximum(memory, compute), 0.0)
        return operator._replace(
            compute=compute * self._layers,
            memory=memory * self._layers,
            latency=(self._floor * np.greater(sequences, 0) + waiting) * self._layers,
        )

    def _decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        tokens = context + sequences
        traffic = tokens * self._token_bytes + sequences * self._sequence_bytes
        return self._pair_flops * tokens, traffic

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, query-key pairs) of the prefill attention of ``parts``.

        With decoding ``sequences`` it shares their kernel, and the floor is theirs.
        """
        if self.window is not None and self.window.chunked:
            parts = [
                Part(*part)
                for each in parts
                for part in self.window.parts(each.tokens, each.context)
            ]
        if self._prompts is not None:
            return self._measured_prefill(self._prompts, parts, sequences)
        seconds = 0.0 if sequences else self._floor
        pairs = 0.0
        for part in parts:
            tokens, context = part.tokens, part.context
            seen = tokens * context + tokens * (tokens + 1) / 2
            if context + tokens > self._reach:
                seen, context = self._windowed(tokens, context)
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
        self,
        prompts: Prompts | SerialPrompts | SerialWindowPrompts,
        parts: Sequence[Part],
        sequences: int,
    ) -> tuple[float, float]:
        work = longest = reading = writing = pairs = 0.0
        total = 0
        if len(parts) == 1 and not parts[0].context and parts[0].tokens <= self._reach:
            tokens = parts[0].tokens
            seconds = prompts.alone(tokens)
            pairs = tokens * (tokens + 1) / 2
            if sequences:
                seconds = seconds - self._floor if seconds > self._floor else 0.0
            return seconds * self._layer_seconds, pairs
        for part in parts:
            tokens, context = part.tokens, part.context
            if context + tokens <= self._reach:
                busy, tile, read, written = prompts.work(tokens, context)
                pairs += tokens * context + tokens * (tokens + 1) / 2
            else:
                busy, tile, read, written = prompts.work(tokens, context, self._reach)
                pairs += self._windowed(tokens, context)[0]
            work += busy
            reading += read
            writing += written
            if tile > longest:
                longest = tile
            total += tokens
        seconds = prompts.seconds(work, longest, reading, writing)
        seconds *= prompts.correction(total, len(parts))
        if sequences:
            seconds -= self._floor
            if seconds < 0.0:
                seconds = 0.0
        return seconds * self._layer_seconds, pairs

    def padding(self, parts: Sequence[Part], sequences: int, context: int) -> float:
        """Seconds of all layers for rows that are not there: every prompt, and every decoding
        sequence that runs along, is computed in as many tiles as the longest of ``parts``, each
        over all of its keys (``pads``)."""
        assert self._prompts is not None
        most = max(part.tokens for part in parts)
        work = 0.0
        for part in parts:
            if part.tokens < most:
                whole = part.context + part.tokens
                work += self._prompts.work(most - part.tokens, whole, whole)[0]
        if sequences and most > 1:
            held = max(1, context // sequences)
            work += sequences * self._prompts.work(most - 1, held, held)[0]
        return work * self._layer_seconds

    def _windowed(self, tokens: int, context: int) -> tuple[float, int]:
        """Query-key pairs of ``tokens`` on top of ``context``, and how much of that is read, where
        a window hides some."""
        assert self.window is not None
        return self.window.pairs(tokens, context), self.window.seen(context)

    def _prefill_work(self, prefills: Prefills) -> tuple[Amount, Amount]:
        traffic = prefills.keys * self._token_bytes + prefills.tokens * self._sequence_bytes
        return self._pair_flops * prefills.pairs, traffic


def unmeasured(operator: Operator) -> Operator:
    """The operator through a window, unmeasured: timings of whole contexts say less of it than they
    claim."""
    error = np.maximum(operator.error, ATTENTION_ERROR)
    return operator._replace(error=error, measured=operator.measured * 0.0)


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
