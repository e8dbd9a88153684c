"""Computes what a dense decoder-only transformer weighs and computes, from its shape alone.

Covers the Llama, Mistral, Qwen2 and Qwen3 dense families: rotary positions (no parameters), RMS
norms, grouped-query attention and a gated MLP of three matrices; and GPT-J, whose MLP has two
matrices and runs parallel to attention. Sizes are in bytes, work in FLOP, and one multiply-add
counts as two FLOP. Each formula says what it counts and what it ignores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PRECISION_BYTES: Mapping[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
}
"""Bytes of one number stored in each precision, without the scales that quantisation adds."""

_SIZES = (
    "hidden_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)


def precision_bytes(precision: str) -> float:
    """Bytes of one number in ``precision``; ValueError, naming the known ones, if it is not known.

    >>> precision_bytes("int4")
    0.5
    """
    if precision not in PRECISION_BYTES:
        raise ValueError(f"unknown precision {precision!r}; known: {', '.join(PRECISION_BYTES)}")
    return PRECISION_BYTES[precision]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The shape of one model; counts are of elements, lengths are in tokens.

    ``attention_bias`` puts biases on the query, key and value projections, ``output_bias`` one on
    the attention's output projection, ``mlp_bias`` biases on the MLP matrices, ``norm_bias`` on the
    norms, ``head_bias`` on the LM head; ``qk_norm`` adds one RMS norm over the head size for
    queries and one for keys. ``mlp_matrices`` is 3 for a gated MLP (gate, up, down), 2 for one of
    up and down. With ``parallel_mlp`` attention and MLP read the same normed input, so that a layer
    has one norm, not two. ``sliding_window`` is the number of tokens attention looks back, None for
    all. Raises ValueError for an impossible shape.
    """

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    attention_bias: bool
    qk_norm: bool
    sliding_window: int | None
    source: str
    output_bias: bool = False
    mlp_bias: bool = False
    mlp_matrices: int = 3
    parallel_mlp: bool = False
    norm_bias: bool = False
    head_bias: bool = False

    def __post_init__(self) -> None:
        for field in _SIZES:
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: got {getattr(self, field)}, expected at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads: got {self.num_kv_heads}, expected a divisor of the "
                f"{self.num_heads} attention heads"
            )
        if self.mlp_matrices not in (2, 3):
            raise ValueError(f"mlp_matrices: got {self.mlp_matrices}, expected 2 or 3")
        if self.tie_word_embeddings and self.head_bias:
            raise ValueError("head_bias: a head tied to the embedding has no bias of its own")
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ValueError(
                f"sliding_window: got {self.sliding_window}, expected at least 1 or null"
            )

    @property
    def query_size(self) -> int:
        """Width of all query heads together, which need not equal the hidden size."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together; the value heads are as wide again."""
        return self.num_kv_heads * self.head_dim

    def attention_parameters(self) -> int:
        """Weights of one layer's query, key, value and output projections, without biases."""
        return self.hidden_size * (2 * self.query_size + 2 * self.kv_size)

    def mlp_parameters(self) -> int:
        """Weights of one layer's gate (if it has one), up and down projections, without biases."""
        return self.mlp_matrices * self.hidden_size * self.intermediate_size

    def linear_parameters(self) -> int:
        """Weights that every token is multiplied by in one layer: attention's four and the MLP's.

        This is the part that quantisation shrinks; biases, norms, embedding and head are not in it.
        """
        return self.attention_parameters() + self.mlp_parameters()

    def small_parameters(self) -> int:
        """One layer's norms (of the hidden size, the query and key norms) and biases."""
        count = self._norm_parameters() * (1 if self.parallel_mlp else 2)
        if self.qk_norm:
            count += 2 * self.head_dim
        if self.attention_bias:
            count += self.query_size + 2 * self.kv_size
        if self.output_bias:
            count += self.hidden_size
        if self.mlp_bias:
            count += (self.mlp_matrices - 1) * self.intermediate_size + self.hidden_size
        return count

    def layer_parameters(self) -> int:
        """All parameters of one transformer layer: projections, biases and norms."""
        return self.linear_parameters() + self.small_parameters()

    def embedding_parameters(self) -> int:
        """The token embedding: vocabulary times hidden size."""
        return self.vocab_size * self.hidden_size

    def head_parameters(self) -> int:
        """What the LM head holds of its own: nothing when it is tied to the embedding."""
        if self.tie_word_embeddings:
            return 0
        return self.embedding_parameters() + (self.vocab_size if self.head_bias else 0)

    @property
    def parameters(self) -> int:
        """Every parameter once: layers, final norm, embedding, and the LM head unless tied."""
        layers = self.num_layers * self.layer_parameters()
        vocabulary = self.embedding_parameters() + self.head_parameters()
        return layers + self._norm_parameters() + vocabulary

    def weight_bytes(self, precision: str, *, embedding_precision: str | None = None) -> float:
        """Bytes of GPU memory that the whole model's weights take, on however many GPUs.

        Counts the layers' projections in ``precision``, and embedding and LM head (once when tied)
        in ``embedding_precision``; None means as engines do: left in bf16 with fp8, int8 or int4
        projections, otherwise the same precision. Norms and biases stay at 16 bits or more.
        Ignores quantisation scales (a 16-bit scale per 128 int4 weights adds 3 % to the
        projections) and buffers such as rotary tables. ValueError for an unknown precision.
        """
        unquantised = precision if precision_bytes(precision) >= 2 else "bf16"
        vocabulary = self.embedding_parameters() + self.head_parameters()
        small = self.num_layers * self.small_parameters() + self._norm_parameters()
        return (
            self.num_layers * self.linear_parameters() * precision_bytes(precision)
            + vocabulary * precision_bytes(embedding_precision or unquantised)
            + small * precision_bytes(unquantised)
        )

    def kv_bytes_per_token(self, precision: str) -> float:
        """Bytes of KV cache that one token of context takes, on however many GPUs.

        Counts one key and one value per KV head (not per query head) and layer. Ignores block
        rounding, fp8 scales, a sliding window (a windowed model keeps at most
        ``sliding_window`` tokens), and the copies that tensor parallelism makes when it exceeds
        ``num_kv_heads``. ValueError for an unknown precision.
        """
        return 2 * self.num_layers * self.kv_size * precision_bytes(precision)

    def linear_flops_per_token(self) -> float:
        """FLOP of all layers' projections for one token: two per weight.

        Ignores biases, norms, activations, rotary, embedding look-up, and the LM head, which only
        positions that produce a token go through.
        """
        return 2.0 * self.num_layers * self.linear_parameters()

    def head_flops_per_token(self) -> float:
        """FLOP of the LM head for one position that produces a token, tied or not."""
        return 2.0 * self.embedding_parameters()

    def attention_flops_per_token(self, context: float) -> float:
        """FLOP of scores and weighted values for one query token over ``context`` tokens, itself
        included.

        Counts every query head in every layer; ignores the softmax and a sliding window.
        """
        return 4.0 * self.num_layers * self.query_size * context

    def _norm_parameters(self) -> int:
        """One norm of the hidden size: a weight for each element, and a bias if norms have one."""
        return self.hidden_size * (2 if self.norm_bias else 1)
