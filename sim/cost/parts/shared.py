"""Predicts what every model has around the attention and the MLP of its layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.cost.operators import Amount, Operator
from sim.cost.rooflines import Rooflines
from sim.cost.sorting import sorting
from sim.specs.deployment import Deployment

LOGIT_BYTES = 4.0


class Shared:
    """Embedding, norms, quantisation, all-reduces, LM head and sampling of one deployment."""

    def __init__(self, d: Deployment, kernels: Rooflines) -> None:
        self._kernels, self._gpus = kernels, d.layout.tensor
        self._hidden, self._vocabulary = d.model.hidden_size, d.model.vocab_size
        self._embeds, self._predicts = d.model.embeds, d.model.predicts
        self._norms = sum(group.count * group.norms for group in d.model.layers)
        self._sorts, self._sms = d.sorts, d.gpu.sms
        self._states, self._mixes = d.model.hyper_connections, d.model.mixes
        self._mixed = 2 * d.model.num_layers  # attentions and MLPs

    def before(self, m: Amount, sums: int) -> list[Operator]:
        """The embedding, and the norms of all layers, as many as have ``sums`` before them."""
        h, kernels = self._hidden, self._kernels
        norms = [self._normed(m, sums), *self._mixing(m)]
        if not self._embeds:
            return norms
        return [kernels.moving("embedding", "embedding", 1, m * h * 2 * kernels.moved), *norms]

    def _mixing(self, m: Amount) -> list[Operator]:
        """Hyper-connections of all layers; none where there is a residual.

        What the states are mixed by is a product of all of them, whose weights every GPU reads
        whole. Before attention or MLP all are read and one written; behind it all and the result
        are read, and all written. Against vLLM 0.24's kernels on H200, H100 and B200
        (aiconfigurator-core tables, hidden sizes of 4,096 and 7,168) a layer is 4 % off in the
        median; a few tokens on B200 come out up to 32 % too fast.
        """
        if not self._mixes:
            return []
        h, kernels, times = self._hidden, self._kernels, self._mixed
        wide = self._states * h
        moved = m * kernels.moved
        return [
            kernels.unquantised("hyper-connections: weights", times, m, wide, self._mixes),
            kernels.plain("hyper-connections: in", times, (wide + h) * moved),
            kernels.plain("hyper-connections: out", times, (2 * wide + h) * moved),
        ]

    def _normed(self, m: Amount, sums: int) -> Operator:
        """The norms of all layers: each adds the residual, two reads and two writes; with
        hyper-connections, which do that themselves, one each.

        The kernel of a fused sum has what it adds up at hand and does not write it, which leaves a
        norm the residual, read and written: its result takes the place of the sum's. It takes as
        long to begin as a kernel of its own: 72 KiB over two H100 take FlashInfer 7.0 us with the
        norm (vLLM 0.28, FlagGems-vllm pull request 773) and 3.0 without.
        """
        kernels = self._kernels
        passes: Amount = 2.0 if self._mixes else 4.0
        if kernels.fuses:
            fused = min(1.0, (sums + self._embeds) / self._norms)
            passes = np.where(kernels.fused(m), 4.0 - 2.0 * fused, 4.0)
        traffic = passes * m * self._hidden * kernels.moved
        return kernels.moving("norms", "norm", self._norms, traffic)

    def quantised(self, m: Amount, layers: int, inputs: Sequence[float]) -> list[Operator]:
        """The inputs of the products of ``layers``, if they have to be quantised."""
        return [self._kernels.quantise(layers, m, inputs)] if self._kernels.quantises else []

    def summed(self, m: Amount, times: int) -> list[Operator]:
        """All-reduces of the hidden state: ``times`` in the layers, and that of the embedding."""
        if self._gpus == 1:
            return []
        times += self._embeds
        state = m * self._hidden * self._kernels.moved
        return [self._kernels.all_reduce(times, state, self._kernels.fused(m))]

    def sent(self, m: Amount) -> list[Operator]:
        """Transfers from each pipeline stage to the next; empty where there is one stage."""
        return self._kernels.send(m)

    def per_output(self, rows: Amount) -> list[Operator]:
        """Operators that depend on the number of positions that sample a token."""
        if not self._predicts:
            return []
        kernels, vocabulary = self._kernels, self._vocabulary
        head = kernels.head(rows, vocabulary / self._gpus)
        # softmax and choice read and write the logits once more in 32 bits
        sampling = kernels.moving("sampling", "sampling", 1, rows * vocabulary * 2 * LOGIT_BYTES)
        sampled = [sampling]
        if self._sorts:
            sampled.append(sorting(rows, vocabulary, self._sms))
        if self._gpus == 1:
            return [head, *sampled]
        gather = kernels.all_gather(
            "logits all-gather", 1, rows * vocabulary * kernels.moved, self._gpus
        )
        return [head, gather, *sampled]
