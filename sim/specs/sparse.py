"""Describes latent attention to the few tokens that an indexer chooses (DSA)."""

from __future__ import annotations

from dataclasses import dataclass

from sim.specs.latent import Latent, copied
from sim.specs.layers import Read, Weights, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.precision import precision_bytes

SCALE_BYTES = 4.0
SCALED = 128
"""Numbers in 8 bits that share one scale of 32 bits in the caches of sparse attention."""

ROPE_BYTES = 2.0
"""Of a number of a position there: they stay at 16 bits."""


@dataclass(frozen=True, slots=True)
class SparseLatent(Latent):
    """Latent attention to the ``index_topk`` tokens of a context that an indexer rates highest.

    The indexer has ``index_n_heads`` queries of ``index_head_dim`` and keeps one key of that size
    for each token, in 8 bits with a scale; it rates every token of the context. A layer with
    ``index_shared`` has none and attends to what an earlier layer chose. Queries are those of the
    latent vector, so ``q_lora_rank`` is needed. (DeepSeek-V3.2-Exp report, section 1.) Raises
    ValueError for an impossible shape.
    """

    index_n_heads: int = 64
    index_head_dim: int = 128
    index_topk: int = 2048
    index_shared: bool = False

    def __post_init__(self) -> None:
        Latent.__post_init__(self)
        require_positive(self, "index_n_heads", "index_head_dim", "index_topk")
        if self.q_lora_rank is None:
            raise ValueError("q_lora_rank: is needed by the indexer, whose queries come from it")

    @property
    def index_size(self) -> int:
        """Width of the indexer's queries together."""
        return self.index_n_heads * self.index_head_dim

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """Also the indexer's, which every GPU has whole: its queries; at 16 bits its key, the
        weights of its heads and the norm of its key, which has a bias (as in vLLM 0.32)."""
        found = Latent.weights(self, hidden_size, layout)
        if self.index_shared:
            return found
        queries, kept = self._indexer(hidden_size)
        return (
            *found,
            Weights("indexer's queries", queries, "projections"),
            Weights("indexer's key and heads", kept + 2 * self.index_head_dim, "kept"),
        )

    def _indexer(self, hidden_size: int) -> tuple[int, int]:
        """Weights of its queries, and of its key and its heads."""
        kept = hidden_size * (self.index_head_dim + self.index_n_heads)
        return (self.q_lora_rank or 0) * self.index_size, kept

    def latent_bytes(self, precision: str) -> float:
        """Bytes of a token's latent vector and position. In 8 bits with scales, as the sparse
        kernels have it: 656 of DeepSeek-V3.2 (vLLM's ``fp8_ds_mla``)."""
        if precision_bytes(precision) >= ROPE_BYTES:
            return self.latent_size * precision_bytes(precision)
        scales = self.kv_lora_rank / SCALED * SCALE_BYTES
        kept = self.kv_lora_rank * precision_bytes(precision)
        return kept + scales + self.qk_rope_head_dim * ROPE_BYTES

    @property
    def index_bytes(self) -> float:
        """Bytes of a token's key of the indexer."""
        if self.index_shared:
            return 0.0
        return self.index_head_dim + self.index_head_dim / SCALED * SCALE_BYTES

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """The latent vector, the position, and the indexer's key, on every GPU."""
        return self.latent_bytes(precision) + self.index_bytes

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """The chosen tokens' latent vectors, and the indexer's key of every token."""
        chosen = Read(self.latent_bytes(precision), self.index_topk)
        return (chosen,) if self.index_shared else (chosen, Read(self.index_bytes))

    def flops_per_pair(self) -> float:
        """Over latent vectors, for prompts, too: each query attends to other tokens."""
        return Latent.absorbed_flops_per_pair(self)

    def index_flops_per_pair(self) -> float:
        """FLOP of the indexer for one query token and one token that it rates."""
        return 0.0 if self.index_shared else 2.0 * self.index_size

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight."""
        flops = Latent.flops_per_token(self, hidden_size)
        if self.index_shared:
            return flops
        return flops + 2.0 * sum(self._indexer(hidden_size))

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """Latent vectors, and queries and results over them, before and after the up-projection."""
        heads = self.num_heads / layout.tensor
        inner = self.latent_size + self.kv_lora_rank + self.key_size + self.v_head_dim
        return self.down_size + heads * inner + (0 if self.index_shared else self.index_size)

    def workspace(self, layout: Layout) -> float:
        """No numbers: no latent vector is projected up."""
        return 0.0

    @property
    def operators(self) -> tuple[str, str]:
        """Sparse attention's."""
        return "dsa_decode", "dsa_prefill"

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """Latent vectors, and the indexer's keys."""
        kept = f"{self.latent_bytes(precision):g} B latent"
        if not self.index_shared:
            kept += f" + {self.index_bytes:g} B indexer"
        return f"{layers} layers x ({kept}){copied(layout)}"
