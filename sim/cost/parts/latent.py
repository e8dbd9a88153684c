"""Predicts multi-head latent attention (MLA) on one GPU.

For all layers of a group; contexts in tokens, seconds. Every GPU projects all tokens down and keeps
all of the latent cache; the heads are shared out.

Decoding absorbs the projection up into queries and results, prompts project their keys and values
up: products of the same size, which are one operator. Where a prompt comes in chunks, each chunk
projects the latent vectors of all tokens before it up again, as vLLM and SGLang do; that is part of
its attention, with the copies that put each head's key together. The projection up is taken to be
multiplied in 16 bits, as it is in decoding, and in the precision of the other products for the
tokens before a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.cost.decode_table import DecodeTable
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.latent_kernels import LatentDecode, latent_decode, latent_prompts
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.parts.attention import AttentionBase
from sim.cost.rooflines import Rooflines
from sim.iteration import Part
from sim.specs.deployment import Deployment
from sim.specs.latent import WORKSPACE, Latent

STEP = 64
"""Rows between two tabulated products."""


class LatentPart(AttentionBase):
    """Latent attention: from the profile of the GPU where it has it, else by stated defaults."""

    def __init__(self, attention: Latent, layers: int, d: Deployment, kernels: Rooflines) -> None:
        super().__init__(layers, d, kernels)
        self._one = one = attention.share(d.layout.tensor)
        self._gpu, self._kept, self._unit = d.gpu, d.kv_cache, d.unquantised
        queries = one.q_lora_rank
        results = one.num_heads * one.v_head_dim
        self.inputs = (self._hidden, *([] if queries is None else [queries]), results)
        self._pair_flops = one.flops_per_pair()
        self.pair_flops = self._pair_flops * layers
        self._decode_flops = one.absorbed_flops_per_pair()
        self._token_bytes = attention.kv_bytes_per_token(d.kv_cache)
        self._table = DecodeTable(self._decode_kernel(), layers)
        self._up_size = one.num_heads * one.up_size
        self._make_prompts()
        self._prefill_floor = self._floor

    def _decode_kernel(self) -> LatentDecode:
        return latent_decode(self._gpu, self._kept, self._one, self._unit)

    def _make_prompts(self) -> None:
        """Makes the parts for prefill attention."""
        self._prompts: Prompts | SerialPrompts
        self._prompts, self._trust = latent_prompts(self._gpu, self._kept, self._one, self._unit)
        self._floor = self._prompts.floor
        rows = np.maximum(np.arange(0.0, WORKSPACE + 1, STEP), 1.0)
        shape = self._one.kv_lora_rank, self._up_size
        product = self._kernels.projection("kv up projection", 1, rows, *shape)
        # each head's key: its part projected up is read, and written next to the position
        width = self._one.num_heads * (self._one.qk_nope_head_dim + self._one.key_size)
        copied = self._kernels.plain("keys", 1, rows * width * self._kernels.moved)
        self._up: list[float] = np.asarray(product.seconds + copied.memory).tolist()

    def per_token(self, m: Amount) -> list[Operator]:
        """The projections, the norms of latent vectors, rotary positions, and the write to the
        cache."""
        one, kernels, layers = self._one, self._kernels, self._layers
        source, name = (self._hidden, "q projection")
        if one.q_lora_rank is not None:
            source, name = (one.q_lora_rank, "q up projection")
        latents = one.kv_lora_rank + (one.q_lora_rank or 0)
        results = one.num_heads * one.v_head_dim
        gate = [
            kernels.after_norm("gate projection", layers, m, self._hidden, results),
            kernels.plain("output gate", layers, 3 * m * results * kernels.moved),
        ]
        return [
            kernels.after_norm("latent projection", layers, m, self._hidden, one.down_size),
            kernels.moving("norms", "norm", layers, 2 * m * latents * kernels.moved),
            kernels.projection(name, layers, m, source, one.num_heads * one.key_size),
            self._rotary(m),
            kernels.unquantised("kv up projection", layers, m, one.kv_lora_rank, self._up_size),
            *(gate if one.output_gate else []),
            kernels.projection("output projection", layers, m, results, self._hidden),
        ]

    def _rotary(self, m: Amount) -> Operator:
        """Positions of queries and of the one key turned, latent vector and key written."""
        one, moved = self._one, self._kernels.moved
        queries = 2 * one.num_heads * one.qk_rope_head_dim * moved
        kept = one.latent_size * moved + self._token_bytes
        return self._kernels.plain("rotary, KV write", self._layers, m * (queries + kept))

    def _decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        tokens = context + sequences
        return tokens * self._decode_flops, tokens * self._token_bytes + sequences * self._queries()

    def _queries(self) -> float:
        """Bytes of a sequence's queries and results, over latent vectors."""
        widths = self._one.latent_size + self._one.kv_lora_rank
        return self._one.num_heads * widths * self._kernels.moved

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, query-key pairs) of the prefill attention of ``parts``.

        With decoding ``sequences`` it shares their kernel, and the floor is theirs.
        """
        prompts = self._prompts
        if len(parts) == 1 and not parts[0].context:
            total = parts[0].tokens
            pairs = total * (total + 1) / 2
            seconds, past = prompts.alone(total), 0
        else:
            work = longest = reading = writing = pairs = 0.0
            total = past = 0
            for part in parts:
                tokens, context = part.tokens, part.context
                busy, tile, read, written = prompts.work(tokens, context)
                work += busy
                reading += read
                writing += written
                if tile > longest:
                    longest = tile
                total += tokens
                past += context
                pairs += tokens * context + tokens * (tokens + 1) / 2
            seconds = prompts.seconds(work, longest, reading, writing)
            seconds *= prompts.correction(total, len(parts))
        if sequences:
            seconds = max(seconds - self._floor, 0.0)
        if past:
            seconds += self._projected_up(past)
        return seconds * self._layer_seconds, pairs

    def _projected_up(self, tokens: int) -> float:
        """Seconds of one layer to project cached latent vectors up to keys and values."""
        whole, rest = divmod(tokens, WORKSPACE)
        seconds = whole * self._up[-1]
        if rest:
            at = rest // STEP
            left, right = self._up[at], self._up[at + 1]
            seconds += left + (right - left) * (rest % STEP) / STEP
        return seconds

    def _prefill_work(self, prefills: Prefills) -> tuple[Amount, Amount]:
        """FLOP and bytes of one layer for prompts, without what is projected up again."""
        one = self._one
        width = one.num_heads * (one.key_size + one.v_head_dim) * self._kernels.moved
        return self._pair_flops * prefills.pairs, (prefills.keys + prefills.tokens) * width
