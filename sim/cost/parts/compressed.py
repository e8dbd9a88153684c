"""Predicts latent attention to compressed rows and a window (DeepSeek V4's CSA and HCA) on one GPU.

Every GPU projects all tokens down, keeps all of the cache and runs the compressors and the whole
indexer; the heads are shared out, in groups. A query attends to the vectors of its window and to
rows, all of them or the ones that the indexer chooses: vectors together, which are counted for the
mean context of the batch (``sim.cost.compressed_kernels``). A row is taken to come a little with
each of its tokens. vLLM runs compressors and indexer next to the queries' projection on streams of
their own; here they are summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.cost.compressed_kernels import FLOOR, CompressedKernels
from sim.cost.decode_table import DecodeTable, Line
from sim.cost.kernels.sparse_attention import pairs
from sim.cost.measured import PromptTrust
from sim.cost.operators import Amount, Operator, Prefills
from sim.cost.parts.attention import AttentionBase
from sim.cost.rooflines import Rooflines, measured
from sim.cost.trust import COMPRESSED_ERROR
from sim.iteration import Part
from sim.specs.compressed import STATE_BYTES, CompressedLatent
from sim.specs.deployment import Deployment
from sim.specs.window import Window


class _Segment(NamedTuple):
    """Contexts up to ``limit`` tokens of each sequence, its new one counted, that are ``first +
    each * tokens`` vectors."""

    limit: float
    first: float
    each: float


class CompressedPart(AttentionBase):
    """Attention to rows and a window, by stated defaults."""

    def __init__(
        self, attention: CompressedLatent, layers: int, d: Deployment, kernels: Rooflines
    ) -> None:
        super().__init__(layers, d, kernels)
        self._one = one = attention.share(d.layout.tensor)
        self.window = attention.window
        self.inputs = (self._hidden, one.q_lora_rank, one.query_size, one.grouped_size)
        self._pair_flops = one.flops_per_pair()
        self.pair_flops = self._pair_flops * layers
        self._row_bytes, self._index_bytes = one.row_bytes(d.kv_cache), one.index_bytes
        self._timed = CompressedKernels(d.gpu, one, self._row_bytes, d.unquantised)
        self._table = DecodeTable(self._timed, layers)
        self._trust = PromptTrust(0.0, False, COMPRESSED_ERROR)
        self._prefill_floor = FLOOR
        ratio, size = one.compress_ratio, one.sliding_window
        self._rate = 1.0 / ratio if ratio else 0.0
        self._segments = [_Segment(math.inf, 0.0, 1.0)]
        if ratio:
            self._segments = [
                _Segment(float(size), 0.0, 1.0 + self._rate),
                _Segment(math.inf, float(size), self._rate),
            ]

    def per_token(self, m: Amount) -> list[Operator]:
        """The projections, norms, rotary positions, the compressors and the indexer's inputs."""
        one, kernels, layers, h = self._one, self._kernels, self._layers, self._hidden
        own = one.query_size // one.o_groups  # of a group; one kernel multiplies all groups
        operators = [
            kernels.after_norm("latent projection", layers, m, h, one.down_size),
            kernels.moving("norms", "norm", layers, 2 * m * one.down_size * kernels.moved),
            kernels.projection("q up projection", layers, m, one.q_lora_rank, one.query_size),
            self._rotary(m),
            *self._compressed(m),
            kernels.projection("group projection", layers, m, own, one.grouped_size),
            kernels.projection("output projection", layers, m, one.grouped_size, h),
        ]
        if one.index_topk is None:
            return operators
        queries = (one.index_size + one.index_head_dim) * (kernels.moved + 1)
        return [
            *operators,
            kernels.projection("indexer: queries", layers, m, one.q_lora_rank, one.index_size),
            kernels.unquantised("indexer: heads", layers, m, h, one.index_n_heads),
            kernels.plain("indexer: rotary, quantise", layers, m * queries),
        ]

    def _rotary(self, m: Amount) -> Operator:
        """Queries normed and turned, one kernel with the write of the window's vector; and the
        results turned back."""
        one, moved = self._one, self._kernels.moved
        queries = 2 * one.query_size * moved + 2 * one.num_heads * one.qk_rope_head_dim * moved
        kept = one.head_dim * moved + self._row_bytes
        return self._kernels.plain("rotary, KV write", self._layers, m * (queries + kept))

    def _compressed(self, m: Amount) -> list[Operator]:
        """What makes rows and keys of tokens: their product at 16 bits; its result put aside, and
        read again for as many rows as it takes part in, of which one in so many tokens is done."""
        one, kernels, layers = self._one, self._kernels, self._layers
        if not one.compress_ratio:
            return []
        aside = one.compressed_size * STATE_BYTES
        kept = (self._row_bytes + self._index_bytes) * self._rate
        return [
            kernels.unquantised("compressors", layers, m, self._hidden, one.compressed_size),
            kernels.plain("rows made", layers, m * (3 * aside + kept)),
        ]

    # -- decoding --------------------------------------------------------------------------------

    def decode_lines(self, sequences: int) -> list[Line]:
        """The lines of a table in vectors, as lines in tokens."""
        assert self._table is not None
        f, found, start = self._slower, list[Line](), -math.inf
        lines = self._table.lines(sequences)
        for limit, first, each in self._segments:
            # vectors but the last of each sequence = before + each * context
            before, most = sequences * (first + each - 1.0), sequences * (limit - 1.0)
            for held, intercept, slope in lines:
                until = min((held - before) / each, most)
                if until > start:
                    line = (until, f * (intercept + slope * before), f * slope * each)
                    found.append(line)
                    start = until
        return found

    def _vectors(self, sequences: Amount, context: Amount) -> Amount:
        """Vectors in the cache of ``sequences`` that hold ``context`` in sum, before the choice."""
        tokens = context + sequences
        if not self._rate:
            return tokens
        return np.minimum(tokens, sequences * self._one.sliding_window) + tokens * self._rate

    def _decoded(self, operator: Operator, sequences: Amount, context: Amount) -> Operator:
        assert self._table is not None
        held = np.maximum(self._vectors(sequences, context) - sequences, 0.0)
        return measured(operator, 1, self._table.timing(sequences, held))

    def _decode_work(self, sequences: Amount, context: Amount) -> tuple[Amount, Amount]:
        one, tokens = self._one, context + sequences
        rows = tokens * self._rate
        chosen = self._vectors(sequences, context) - rows
        chosen = chosen + (
            rows if one.index_topk is None else np.minimum(rows, sequences * one.index_topk)
        )
        flops = chosen * self._pair_flops + rows * one.index_flops_per_row()
        traffic = chosen * self._row_bytes + rows * self._index_bytes
        return flops, traffic + sequences * self._queries()

    def _queries(self) -> float:
        """Bytes of a sequence's queries and results."""
        return 2 * self._one.query_size * self._kernels.moved

    # -- prompts ---------------------------------------------------------------------------------

    def prefill_seconds(self, parts: Sequence[Part], sequences: int) -> tuple[float, float]:
        """(seconds of all layers, pairs of queries and vectors that they attend to) of the prefill
        attention of ``parts``. Its kernels are not those of decoding ``sequences``."""
        one, rate = self._one, self._rate
        window, most = Window(one.sliding_window), one.most_rows * one.compress_ratio
        seen = rated = 0.0
        total = choosing = 0
        for part in parts:
            tokens, context = part.tokens, part.context
            seen += window.pairs(tokens, context)
            total += tokens
            if not rate:
                continue
            whole = tokens * context + tokens * (tokens + 1) / 2
            if one.index_topk is None:
                seen += whole * rate
                continue
            seen += pairs(tokens, context, most) * rate
            rated += whole * rate
            choosing += min(tokens, max(0, int(tokens + context - most)))
        seconds = self._timed.prompts(seen, rated, total, choosing)
        return seconds * self._layer_seconds, seen

    def _prefill_work(self, prefills: Prefills) -> tuple[Amount, Amount]:
        """FLOP and bytes of one layer for prompts. The indexer's FLOP are left out, and of what is
        read all but each token's vector and row once."""
        kept = self._row_bytes + (self._row_bytes + self._index_bytes) * self._rate
        traffic = prefills.keys * kept + prefills.tokens * self._queries()
        return self._pair_flops * prefills.pairs, traffic
