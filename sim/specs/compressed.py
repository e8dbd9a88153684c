"""Describes latent attention to rows that each stand for several tokens, next to a window (CSA and
HCA of DeepSeek V4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from sim.specs.latent import copied
from sim.specs.layers import CachePage, Kept, Read, Weights, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.precision import precision_bytes
from sim.specs.sparse import ROPE_BYTES, SCALE_BYTES, SCALED
from sim.specs.window import Window

BLOCK = 256
"""Tokens of a block of compressed rows (vLLM 0.20 to 0.33, ``get_supported_kernel_block_sizes`` of
models/deepseek_v4/sparse_mla.py)."""

WINDOW_BLOCK = 64
"""Tokens of a block of the window's rows (``DeepseekV4SWACache`` of vLLM 0.20 to 0.33)."""

STATE_BLOCK = 8
"""Tokens of a block of a compressor's inputs; half as many where they overlap
(``CompressorStateCache`` of vLLM 0.20 to 0.33)."""

ALIGNED, WIDE = 576, 512
"""Bytes of which pages are a multiple, in 8 bits and in 16 (``alignment`` there)."""

SHARED = 64
"""Numbers in 8 bits that share one scale of 8 bits in a row; the scales of a row are padded to a
multiple of 8 bytes (``DeepseekCompressor``: 7 and 1)."""

STATE_BYTES = 4.0
"""Of a number that waits to be compressed."""


@dataclass(frozen=True, slots=True)
class CompressedLatent:
    """Attention to the last ``sliding_window`` tokens and to rows that stand for the tokens before.

    Keys and values are one and the same vector of ``head_dim`` numbers for all ``num_heads``
    together, of which the last ``qk_rope_head_dim`` say the position. Queries come from
    ``q_lora_rank`` numbers; results leave in ``o_groups`` groups of heads by ``o_lora_rank``
    numbers each. A row is the weighted sum of ``compress_ratio`` tokens (0: there are no rows).
    With an ``index_topk`` an indexer with ``index_n_heads`` queries of ``index_head_dim`` rates all
    rows by keys made likewise, and attention is to the best so many; rows then overlap: each is
    made of the tokens of the row before, too. Without, it is to all rows. Each head has a sink.
    (DeepSeek-V4's inference/model.py on Hugging Face.) Raises ValueError for an impossible shape.
    """

    num_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    sliding_window: int = 128
    compress_ratio: int = 0
    index_topk: int | None = None
    index_n_heads: int = 64
    index_head_dim: int = 128

    def __post_init__(self) -> None:
        require_positive(self, "num_heads", "head_dim", "qk_rope_head_dim", "q_lora_rank")
        require_positive(self, "o_groups", "o_lora_rank", "sliding_window", "index_n_heads")
        require_positive(self, "index_head_dim")
        if self.qk_rope_head_dim > self.head_dim:
            raise ValueError(f"qk_rope_head_dim: got {self.qk_rope_head_dim} of {self.head_dim}")
        if self.num_heads % self.o_groups:
            raise ValueError(f"o_groups: {self.o_groups} do not divide {self.num_heads} heads")
        if self.compress_ratio < 0 or self.compress_ratio == 1:
            raise ValueError(f"compress_ratio: got {self.compress_ratio}, expected 0 or 2 and more")
        if self.index_topk is not None:
            require_positive(self, "index_topk")
            if not self.compress_ratio:
                raise ValueError("index_topk: there are no rows to choose from (compress_ratio)")

    @property
    def window(self) -> Window | None:
        """The window of a layer without rows; None where rows stand for the whole context."""
        return None if self.compress_ratio else Window(self.sliding_window)

    @property
    def overlap(self) -> int:
        """Rows in which each token takes part."""
        return 1 if self.index_topk is None else 2

    @property
    def down_size(self) -> int:
        """Width of what one token is projected down to, which every GPU computes whole."""
        return self.q_lora_rank + self.head_dim

    @property
    def query_size(self) -> int:
        """Width of all query heads together, and of their results."""
        return self.num_heads * self.head_dim

    @property
    def grouped_size(self) -> int:
        """Width of the results of all groups."""
        return self.o_groups * self.o_lora_rank

    @property
    def index_size(self) -> int:
        """Width of the indexer's queries together; 0 without."""
        return 0 if self.index_topk is None else self.index_n_heads * self.index_head_dim

    @property
    def compressed_size(self) -> int:
        """Width of what one token is projected to for its rows and their keys of the indexer: a
        vector and its weights, for each row in which it takes part. Whole on every GPU, at 16 bits
        or more."""
        index = 0 if self.index_topk is None else self.index_head_dim
        return 2 * self.overlap * (self.head_dim + index) if self.compress_ratio else 0

    def share(self, gpus: int) -> Self:
        """The heads of one of ``gpus``."""
        return replace(self, num_heads=self.num_heads // gpus, o_groups=self.o_groups // gpus)

    @property
    def most_rows(self) -> float:
        """Rows that a query attends to at most."""
        return math.inf if self.index_topk is None else float(self.index_topk)

    # -- the protocol of attention ---------------------------------------------------------------

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The projections down and those of the indexer's queries, which every GPU has whole; those
        of its heads; the compressors, norms and sinks, at 16 bits or more."""
        tensor = layout.tensor
        found = [
            Weights("attention: down", hidden_size * self.down_size, "projections"),
            Weights("attention", self._of_heads(hidden_size) / tensor, "projections"),
            Weights(
                "attention's norms and sinks", self.down_size + self.num_heads / tensor, "kept"
            ),
        ]
        if self.compress_ratio:
            found.append(Weights("compressors", self._compressors(hidden_size), "kept"))
        if self.index_topk is not None:
            queries = self.q_lora_rank * self.index_size
            found.append(Weights("indexer's queries", queries, "projections"))
            heads = hidden_size * self.index_n_heads
            found.append(Weights("indexer's heads", heads, "kept"))
        return tuple(found)

    def _of_heads(self, hidden_size: int) -> int:
        """Weights up to the queries, of the groups, and from these to the hidden state."""
        queries = self.q_lora_rank * self.query_size
        return queries + self.query_size * self.o_lora_rank + self.grouped_size * hidden_size

    def _compressors(self, hidden_size: int) -> int:
        """Weights of the compressors: the products, a number for each place in a row that is added
        to the weights, and a norm of the rows."""
        norms = self.head_dim + (0 if self.index_topk is None else self.index_head_dim)
        places = self.compress_ratio * self.compressed_size // 2
        return hidden_size * self.compressed_size + places + norms

    def row_bytes(self, precision: str) -> float:
        """Bytes of a vector in the cache: in 8 bits, with scales and a position in 16 bits, 584 of
        DeepSeek V4 (``state_content_bytes`` in vLLM's models/deepseek_v4/attention.py)."""
        if precision_bytes(precision) >= ROPE_BYTES:
            return self.head_dim * precision_bytes(precision)
        narrow = self.head_dim - self.qk_rope_head_dim
        scales = math.ceil(narrow / SHARED / 8) * 8
        return narrow * precision_bytes(precision) + scales + self.qk_rope_head_dim * ROPE_BYTES

    @property
    def index_bytes(self) -> float:
        """Bytes of a row's key of the indexer: 8 bits and a scale; 0 without."""
        if self.index_topk is None:
            return 0.0
        return self.index_head_dim + self.index_head_dim / SCALED * SCALE_BYTES

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """A token's part of a row and of the key of the indexer, or its own vector in a layer
        without rows, on every GPU. The window's vectors next to rows are not in it: they are as
        many however long a context is."""
        if not self.compress_ratio:
            return self.row_bytes(precision)
        return (self.row_bytes(precision) + self.index_bytes) / self.compress_ratio

    def kept(self, precision: str, layout: Layout = ONE_GPU) -> Kept:
        """Rows, the vectors of the window, and what waits to be compressed, in pages of their
        own."""
        token = self.kv_bytes_per_token(precision, layout)
        return Kept(token, self.window, pages=self._pages(precision))

    def _pages(self, precision: str) -> tuple[CachePage, ...]:
        step = ALIGNED if precision_bytes(precision) < ROPE_BYTES else WIDE
        row = self.row_bytes(precision)
        found = [(WINDOW_BLOCK * row, WINDOW_BLOCK, self.sliding_window)]
        ratio, together = self.compress_ratio, self.overlap * self.compress_ratio
        for width, kept in ((self.head_dim, row), (self.index_head_dim, self.index_bytes)):
            if ratio and kept:
                block = STATE_BLOCK // self.overlap
                waiting = block * 2 * self.overlap * width * STATE_BYTES
                found += [(BLOCK // ratio * kept, BLOCK, 0), (waiting, block, together)]
        return tuple(
            CachePage(
                math.ceil(size / step) * step,
                block,
                Window(window) if window else None,
            )
            for size, block, window in found
        )

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """The window's vectors, the rows that are attended to, and the keys of all rows."""
        row, ratio = self.row_bytes(precision), self.compress_ratio
        found = [Read(row, self.sliding_window)]
        if ratio:
            found.append(Read(row / ratio, self.most_rows * ratio))
        if self.index_topk is not None:
            found.append(Read(self.index_bytes / ratio))
        return tuple(found)

    def flops_per_pair(self) -> float:
        """Two for each element of the query heads, in the scores and in the weighted values, for
        each vector that is attended to."""
        return 4.0 * self.query_size

    def index_flops_per_row(self) -> float:
        """FLOP of the indexer for one query token and one row that it rates."""
        return 2.0 * self.index_size

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight."""
        index = self.q_lora_rank * self.index_size
        if self.index_topk is not None:
            index += hidden_size * self.index_n_heads
        down = hidden_size * (self.down_size + self.compressed_size)
        return 2.0 * (down + self._of_heads(hidden_size) + index)

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """What a token is projected down to, queries and results of the GPU's heads and groups, and
        the indexer's queries."""
        heads = (2 * self.query_size + self.grouped_size) / layout.tensor
        return self.down_size + self.compressed_size + heads + self.index_size

    def copies(self, layout: Layout) -> float:
        """No numbers."""
        return 0.0

    def workspace(self, layout: Layout) -> float:
        """No numbers."""
        return 0.0

    def not_shared(self, layout: Layout) -> str | None:
        """Groups of heads are shared out; the cache is copied."""
        gpus, which = layout.tensor, f"tensor_parallel: {layout.tensor} GPUs cannot share the"
        if self.num_heads % gpus:
            return f"{which} {self.num_heads} attention heads"
        if self.o_groups % gpus:
            return f"{which} {self.o_groups} groups of attention heads"
        return None

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """A token's part of a row, and of its key of the indexer."""
        kept = f"{self.row_bytes(precision):g} B"
        if self.index_bytes:
            kept = f"({kept} row + {self.index_bytes:g} B indexer)"
        rows = f" / {self.compress_ratio} tokens" if self.compress_ratio else ""
        return f"{layers} layers x {kept}{rows}{copied(layout)}"

    @property
    def operators(self) -> tuple[str, str]:
        """Names of what no profile has yet."""
        return "compressed_decode", "compressed_prefill"

    @property
    def left_out(self) -> str | None:
        """No parts are left out."""
        return None
