"""Predicts layers with a constant state for each sequence on one GPU.

For all layers of a group; seconds. Decoding reads and writes the states of every sequence: a plain
matter of bandwidth, linear in the sequences and flat in their contexts. Nothing of it is shared, so
that a batch amortises the weights only. Short convolutions come before, in a kernel of their own.

A prompt goes through in chunks. With the gated delta rule the fastest kernels give each head of
each prompt to one SM, which takes its chunks one after the other: a prompt lasts as long however
many heads there are, up to one on each SM, and prompts side by side share the SMs. Mamba-2 and
lightning attention take all chunks at once, by arithmetic and traffic. The states themselves are
read and written once.

Errors against published timings of the gated delta rule (vLLM 0.24, aiconfigurator-core tables, 2
to 64 heads on a GPU, batches of 1 to 1,024; median, and what a tenth exceed): decoding H200 5 %,
25 %, H100 4 %, 38 %, B200 16 %, 33 %; prompts H200 10 %, 31 %, H100 9 %, 31 %, B200 28 %, 41 %.
Decoding is 50 % too slow for RTX PRO 6000, whose large L2 cache holds the states of a benchmark;
prompts are off by 31 % there, up to six times too slow with few heads, since its kernel spreads the
chunks of a head. There are no timings of the others' scans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.cost.decode_table import Line
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.parts.attention import AttentionBase
from sim.cost.rooflines import Rooflines
from sim.cost.trust import RECURRENT_ERROR
from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.recurrent import CONV_BYTES, Recurrent

SERIAL_RATE = 3.8e12
"""FLOP/s of an SM over the chunks of a head, which wait for each other: 3.05 us for a chunk of 64
tokens with keys and values of 128 on H100 and H200, half of an SM's 16-bit peak; 2.5 us on B200
(FlashInfer's kernel in vLLM 0.24, aiconfigurator-core tables). At most half of the peak."""

SERIAL_START = 8.7e-6
"""Seconds that an SM takes with a head before its first chunk and after its last (the same)."""


class RecurrentPart(AttentionBase):
    """Linear attention and state-space layers, by the data sheet."""

    pair_flops = 0.0

    def __init__(self, layer: Recurrent, layers: int, d: Deployment, kernels: Rooflines) -> None:
        super().__init__(layers, d, kernels)
        gpu, layout = d.gpu, d.layout
        self._layer, self._into = layer, layer.into(layout)
        self._inner = layer.inner_size / layout.tensor
        self._gates = layer.gates / layout.tensor
        width, made = layer.behind_gates
        self._behind = (width, made / layout.tensor) if made else None
        self.inputs = (self._hidden, self._inner)
        # of a layer's kernels: the convolution and the update
        convolved = layer.conv_kernel > 1
        self._floor = (2 if convolved else 1) * gpu.efficiency.operator_latency
        launched = layer.scans + (1 if convolved else 0)
        self._prefill_floor = launched * gpu.efficiency.operator_latency
        self._heads = layer.heads / layout.tensor
        self._state = layer.state_bytes(layout)
        self._channels = layer.channels_of(layout.tensor)
        moved = layer.chunk_moved() / layout.tensor * kernels.moved
        self._conv_token = 2 * self._channels * CONV_BYTES if convolved else 0.0  # in and out
        conv = 2 * layer.conv_bytes(layout) + self._conv_token
        tokens = self._inner * 2 * kernels.moved
        self._sequence_bytes = 2 * self._state + conv + tokens
        # decay and update of a state, what it holds under the key, and what the query reads
        self._sequence_flops = 8.0 * self._heads * layer.head_state
        reached = gpu.flops(d.unquantised) * gpu.efficiency.compute
        self._step = max(self._sequence_bytes / self._bandwidth, self._sequence_flops / reached)
        self._flops = self._heads * layer.chunk_flops()  # of a token of a prompt
        self._token_bytes = moved + self._conv_token
        self._token_seconds = max(moved / self._bandwidth, self._flops / reached)
        self._conv_seconds = self._conv_token / self._bandwidth
        self._sms = gpu.sms
        on_an_sm = min(SERIAL_RATE, gpu.flops(d.unquantised) / gpu.sms / 2)
        self._chunk_seconds = layer.chunk * layer.chunk_flops() / on_an_sm

    def per_token(self, m: Amount) -> list[Operator]:
        """The projections, and the norm of the results with its gate."""
        h, kernels, layers = self._hidden, self._kernels, self._layers
        operators = [
            kernels.after_norm("state projection", layers, m, h, self._into),
            kernels.plain("state norm", layers, 3 * m * self._inner * kernels.moved),
            kernels.projection("output projection", layers, m, self._inner, h),
        ]
        if self._gates:
            operators.append(kernels.unquantised("state gates", layers, m, h, self._gates))
        if self._behind:
            operators.append(kernels.unquantised("state gates, second", layers, m, *self._behind))
        return operators

    def decode_lines(self, sequences: int) -> list[Line]:
        """Updates of the states of ``sequences``, all layers: flat in their contexts."""
        seconds = (self._floor + sequences * self._step) * self._layer_seconds
        return [(math.inf, seconds, 0.0)]

    def _decoded(self, operator: Operator, sequences: Amount, context: Amount) -> Operator:
        layers, memory = self._layers, sequences * self._sequence_bytes / self._bandwidth
        return operator._replace(
            name="state update",
            compute=np.maximum(sequences * self._step - memory, 0.0) * layers,
            memory=memory * layers,
            latency=self._floor * np.greater(sequences, 0) * layers,
            error=RECURRENT_ERROR,
        )

    def _decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        return sequences * self._sequence_flops, sequences * self._sequence_bytes

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, 0 query-key pairs) of the chunks of ``parts``, next to decoding
        ``sequences`` in kernels of their own."""
        tokens = sum(part.tokens for part in parts)
        seconds = tokens * (self._token_seconds + self._conv_seconds)
        if self._layer.serial:
            seconds = max(seconds, self._serial(parts) + tokens * self._conv_seconds)
        seconds += 2 * len(parts) * self._state / self._bandwidth + self._prefill_floor
        return seconds * self._layer_seconds, 0.0

    def _serial(self, parts: Sequence[Part]) -> float:
        """Seconds of one layer in which the SMs go through the heads of all ``parts``, each from
        its first chunk to its last."""
        chunk, longest, total = self._layer.chunk, 0, 0
        for part in parts:
            chunks = -(-part.tokens // chunk)
            total += chunks
            if chunks > longest:
                longest = chunks
        rounds = math.ceil(len(parts) * self._heads / self._sms)
        chunks_in_turn = max(float(longest), rounds * total / len(parts))
        return rounds * SERIAL_START + chunks_in_turn * self._chunk_seconds

    def _prefill_work(self, prefills: Prefills) -> tuple[Amount, Amount]:
        return self._flops * prefills.tokens, self._token_bytes * prefills.tokens

    def _prefill_trust(self, fresh: Amount) -> tuple[Amount, Amount]:
        return RECURRENT_ERROR, 0.0
