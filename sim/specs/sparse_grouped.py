"""Describes grouped-query attention to the blocks of tokens that an indexer chooses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import Read, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.precision import precision_bytes

INDEX_BYTES = 2.0
"""Bytes of a number of the indexer's keys, whatever the format of the cache."""


@dataclass(frozen=True, slots=True)
class SparseGrouped(GroupedQuery):
    """Grouped-query attention to the ``index_topk`` tokens of a context that an indexer rates
    highest, in whole blocks.

    The indexer has ``index_n_heads`` queries of ``index_head_dim``, one for each KV head, which are
    shared out with these, and one key of that size for each token. Queries and keys come from the
    hidden state. (MiniMax-M3, ``sparse_attention_config``.) Raises ValueError for an impossible
    shape.
    """

    index_n_heads: int = 4
    index_head_dim: int = 128
    index_topk: int = 2048

    def __post_init__(self) -> None:
        GroupedQuery.__post_init__(self)
        require_positive(self, "index_n_heads", "index_head_dim", "index_topk")
        if self.window is not None:
            raise ValueError("sliding_window: an indexer chooses from the whole context")

    def share(self, gpus: int) -> SparseGrouped:
        """The heads of one of ``gpus``; with more GPUs than KV heads, these are copied."""
        heads, kv_heads = self.num_heads // gpus, max(1, self.num_kv_heads // gpus)
        index = max(1, self.index_n_heads // gpus)
        return replace(self, num_heads=heads, num_kv_heads=kv_heads, index_n_heads=index)

    @property
    def projected(self) -> int:
        """Width of queries, keys and values, those of the indexer included."""
        values = 0 if self.shared_kv else self.values_size
        plain = self._query_and_gate + self.kv_size + values
        return plain + (self.index_n_heads + 1) * self.index_head_dim

    def _norms_and_biases(self, hidden_size: int) -> int:
        norms = 2 * self.index_head_dim if self.qk_norm else 0
        return GroupedQuery._norms_and_biases(self, hidden_size) + norms

    @property
    def index_bytes(self) -> float:
        """Bytes of a token's key of the indexer, which every GPU has whole."""
        return INDEX_BYTES * self.index_head_dim

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """Keys and values, and the indexer's key."""
        return GroupedQuery.kv_bytes_per_token(self, precision, layout) + self.index_bytes

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """The chosen tokens' keys and values, and the indexer's key of every token."""
        chosen = GroupedQuery.kv_bytes_per_token(self, precision, layout)
        return Read(chosen, self.index_topk), Read(self.index_bytes)

    def index_flops_per_pair(self) -> float:
        """FLOP of the indexer for one query token and one token that it rates, on all GPUs."""
        return 2.0 * self.index_n_heads * self.index_head_dim

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """Keys and values of the KV heads, and the indexer's keys."""
        heads, kept = self.share(layout.tensor).num_kv_heads, precision_bytes(precision)
        each = f"2 (K, V) x {heads} heads x {self.head_dim} x {kept:g} B"
        return f"{layers} layers x ({each} + {self.index_bytes:g} B indexer)"
