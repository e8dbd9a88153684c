"""Predicts latent attention to the tokens that an indexer chooses (DSA) on one GPU.

As ``sim.cost.parts.latent``, except that prompts, too, attend over latent vectors, so that nothing
is projected up again, and that every GPU runs the whole indexer. A decoding sequence reads at most
the chosen tokens, counted for the mean context of the batch, and the indexer's keys of all tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.cost.kernels.sparse_attention import pairs
from sim.cost.latent_kernels import LatentDecode, sparse_decode, sparse_prompts
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.parts.latent import LatentPart
from sim.cost.rooflines import Rooflines
from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.sparse import SparseLatent


class SparseLatentPart(LatentPart):
    """Sparse attention: from the profile of the GPU where it has it, else by stated defaults."""

    _one: SparseLatent

    def __init__(
        self, attention: SparseLatent, layers: int, d: Deployment, kernels: Rooflines
    ) -> None:
        super().__init__(attention, layers, d, kernels)
        self._latent_bytes = attention.latent_bytes(d.kv_cache)

    def _decode_kernel(self) -> LatentDecode:
        return sparse_decode(self._gpu, self._kept, self._one, self._unit)

    def _make_prompts(self) -> None:
        found = sparse_prompts(self._gpu, self._kept, self._one, self._unit)
        self._rates, self._trust = found
        self._floor = self._rates.floor

    def per_token(self, m: Amount) -> list[Operator]:
        """Also the indexer's projections, and its key written in 8 bits."""
        operators = super().per_token(m)
        one, kernels, layers = self._one, self._kernels, self._layers
        if one.index_shared:
            return operators
        queries = one.q_lora_rank or 0, one.index_size
        key = self._hidden, one.index_head_dim + one.index_n_heads
        moved = (one.index_size + one.index_head_dim) * (kernels.moved + 1)
        return [
            *operators,
            kernels.projection("indexer: queries", layers, m, *queries),
            kernels.unquantised("indexer: key and heads", layers, m, *key),
            kernels.plain("indexer: rotary, quantise", layers, m * moved),
        ]

    def _decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        one, tokens = self._one, context + sequences
        chosen = np.minimum(tokens, sequences * one.index_topk)
        flops = chosen * self._decode_flops + tokens * one.index_flops_per_pair()
        traffic = chosen * self._latent_bytes + tokens * one.index_bytes
        return flops, traffic + sequences * self._queries()

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, pairs of queries and chosen tokens) of the prefill attention of
        ``parts``. Its kernels are not those of decoding ``sequences``."""
        rates, most = self._rates, self._one.index_topk
        chosen = rated = 0.0
        total = 0
        for part in parts:
            tokens, context = part.tokens, part.context
            chosen += pairs(tokens, context, most)
            rated += tokens * context + tokens * (tokens + 1) / 2
            total += tokens
        seconds = rates.floor + chosen * rates.chosen + rated * rates.rated + total * rates.token
        return max(seconds, rates.host) * self._layer_seconds, chosen

    def _prefill_work(self, prefills: Prefills) -> tuple[Amount, Amount]:
        """FLOP and bytes of one layer for prompts. The indexer's FLOP are left out, and of what is
        read all but each token's vector once."""
        traffic = prefills.keys * self._token_bytes + prefills.tokens * self._queries()
        return self._pair_flops * prefills.pairs, traffic
