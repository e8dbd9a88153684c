"""Describes multi-head latent attention (MLA), whose cache is one small vector per token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from sim.specs.layers import Kept, Read, Weights, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.precision import precision_bytes
from sim.specs.window import Window

WORKSPACE = 65536
"""Tokens before a chunk that are projected up at once, for contexts of 8,192 tokens and more (vLLM
0.32, chunked prefill workspace)."""


@dataclass(frozen=True, slots=True)
class Latent:
    """Attention whose keys and values are projected up from one latent vector per token.

    A token keeps ``kv_lora_rank`` numbers, and ``qk_rope_head_dim`` of its position, for all
    ``num_heads`` together; a key is ``qk_nope_head_dim`` and the position wide, a value
    ``v_head_dim``. Queries come from the hidden state, or from ``q_lora_rank`` numbers where that
    is given. ``attention_bias`` puts biases on the projections down and on the output projection;
    ``output_gate`` multiplies each element of the result by a gate made from the hidden state.
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.) Raises ValueError for an impossible shape.
    """

    num_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    attention_bias: bool = False
    output_gate: bool = False

    def __post_init__(self) -> None:
        require_positive(self, "num_heads", "kv_lora_rank", "qk_nope_head_dim")
        require_positive(self, "qk_rope_head_dim", "v_head_dim")
        if self.q_lora_rank is not None and self.q_lora_rank < 1:
            raise ValueError(f"q_lora_rank: got {self.q_lora_rank}, expected at least 1 or null")

    @property
    def window(self) -> Window | None:
        """No window: attention sees the whole context."""
        return None

    @property
    def latent_size(self) -> int:
        """Numbers that a token keeps."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def key_size(self) -> int:
        """Width of one head's key, and of its query."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def up_size(self) -> int:
        """Width of one head's part of a key and its value, which are projected up."""
        return self.qk_nope_head_dim + self.v_head_dim

    @property
    def down_size(self) -> int:
        """Width of what one token is projected down to: its latent vector, and that of its queries
        where they have one. Every GPU computes it whole."""
        return self.latent_size + (self.q_lora_rank or 0)

    def share(self, gpus: int) -> Self:
        """The heads of one of ``gpus``."""
        return replace(self, num_heads=self.num_heads // gpus)

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The projections down, which every GPU has whole; those of its heads; the norms of the
        latent vectors, and the biases."""
        return (
            Weights("attention: down", hidden_size * self.down_size, "projections"),
            Weights("attention", self._per_head(hidden_size) / layout.tensor, "projections"),
            Weights("attention's norms and biases", self._kept(hidden_size), "kept"),
        )

    def _per_head(self, hidden_size: int) -> int:
        """Weights of all heads: up to queries, up to keys and values, output, and its gate."""
        queries = self.key_size * (self.q_lora_rank or hidden_size)
        up = self.kv_lora_rank * self.up_size
        output = (2 if self.output_gate else 1) * self.v_head_dim * hidden_size
        return self.num_heads * (queries + up + output)

    def _kept(self, hidden_size: int) -> int:
        norms = self.kv_lora_rank + (self.q_lora_rank or 0)
        return norms + (self.down_size + hidden_size if self.attention_bias else 0)

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """The latent vector and the position. All heads need it, so every GPU has a copy."""
        return self.latent_size * precision_bytes(precision)

    def kept(self, precision: str, layout: Layout = ONE_GPU) -> Kept:
        """Bytes kept of every token."""
        return Kept(self.kv_bytes_per_token(precision, layout))

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """Everything that is kept."""
        return (Read(self.kv_bytes_per_token(precision, layout)),)

    def flops_per_pair(self) -> float:
        """Two for each element of keys and values that are projected up, as for prompts."""
        return 2.0 * self.num_heads * (self.key_size + self.v_head_dim)

    def absorbed_flops_per_pair(self) -> float:
        """FLOP of a pair over latent vectors, as in decoding: scores over all of one, values over
        the latent numbers."""
        return 2.0 * self.num_heads * (self.latent_size + self.kv_lora_rank)

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight. Absorbing the up-projection into queries and results takes as many
        as projecting the token's own key and value up."""
        return 2.0 * (hidden_size * self.down_size + self._per_head(hidden_size))

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """The latent vectors, and queries, keys, values and results of the GPU's heads."""
        heads = self.num_heads / layout.tensor
        return self.down_size + heads * 2 * (self.key_size + self.v_head_dim)

    def copies(self, layout: Layout) -> float:
        """The projection up, once more as decoding absorbs it (vLLM 0.32, SGLang 0.5)."""
        return self.num_heads / layout.tensor * self.kv_lora_rank * self.up_size

    def workspace(self, layout: Layout) -> float:
        """Latent vectors of tokens before a chunk, gathered, and projected up."""
        up = self.num_heads / layout.tensor * self.up_size
        return WORKSPACE * (self.latent_size + up)

    def not_shared(self, layout: Layout) -> str | None:
        """Heads are shared out; the latent cache is copied."""
        gpus = layout.tensor
        if self.num_heads % gpus:
            return f"tensor_parallel: {gpus} GPUs cannot share the {self.num_heads} attention heads"
        return None

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """One latent vector and position, on every GPU."""
        return (
            f"{layers} layers x ({self.kv_lora_rank} latent + {self.qk_rope_head_dim} rotary) x "
            f"{precision_bytes(precision):g} B{copied(layout)}"
        )

    @property
    def operators(self) -> tuple[str, str]:
        """Latent attention's."""
        return "mla_decode", "mla_prefill"

    @property
    def left_out(self) -> str | None:
        """No parts are left out."""
        return None


def copied(layout: Layout) -> str:
    """A word on the copies that tensor parallelism makes of a latent cache."""
    return ", copied on every GPU" if layout.tensor > 1 else ""
