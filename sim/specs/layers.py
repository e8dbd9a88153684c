"""Describes the layers of a model: groups of equal ones, each an attention and an MLP of some kind.

A kind is a frozen record that satisfies ``Attention`` or ``Mlp``: it says what one layer of it
weighs, keeps in the KV cache and reads from there; ``sim.cost.parts`` has a file per kind that
predicts its time. All sizes are of one layer; ``gpus`` share a layer by tensor parallelism, and the
size is then that of one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from sim.specs.precision import precision_bytes


class Read(NamedTuple):
    """Bytes that a decoding sequence reads for each token of its context, at most for ``cap``."""

    bytes: float
    cap: float = math.inf


class Attention(Protocol):
    """What every kind of attention says about one layer of it."""

    def linear_parameters(self, hidden_size: int) -> int:
        """Weights of its projections: the part that quantisation shrinks."""

    def small_parameters(self, hidden_size: int) -> int:
        """Its biases and inner norms, which stay at 16 bits or more."""

    def kv_bytes_per_token(self, precision: str, gpus: int = 1) -> float:
        """Bytes of KV cache that one token of context takes."""

    def reads(self, precision: str, gpus: int = 1) -> tuple[Read, ...]:
        """What a decoding sequence reads of its context: the sum of these."""

    def flops_per_pair(self) -> float:
        """FLOP of scores and weighted values for one query token and one token that it sees, on
        all GPUs together."""

    def flops_per_token(self, hidden_size: int) -> float:
        """FLOP of its projections for one token, on all GPUs together."""

    def widest(self, hidden_size: int, gpus: int) -> float:
        """Numbers per token that its intermediate results take at their largest."""

    def not_shared(self, gpus: int) -> str | None:
        """Why so many GPUs cannot share it equally, as a verb and its object; None if they can."""

    def kv_arithmetic(self, layers: int, gpus: int) -> str:
        """The numbers that a token takes in so many layers as a product."""

    @property
    def left_out(self) -> str | None:
        """A sentence on what predictions leave out of this attention; None for nothing."""


class Mlp(Protocol):
    """What every kind of MLP says about one layer of it."""

    def linear_parameters(self, hidden_size: int) -> int:
        """Weights of its projections: the part that quantisation shrinks."""

    def flops_per_token(self, hidden_size: int) -> float:
        """FLOP of its projections for one token, on all GPUs together."""

    def small_parameters(self, hidden_size: int) -> int:
        """Its biases, which stay at 16 bits or more."""

    def idle_parameters(self, hidden_size: int) -> int:
        """Parameters, biases included, that the product with one token leaves out."""

    def widest(self, hidden_size: int, gpus: int) -> float:
        """Numbers per token that its intermediate results take at their largest."""

    def not_shared(self, gpus: int) -> str | None:
        """Why so many GPUs cannot share it equally, as a verb and its object; None if they can."""

    @property
    def left_out(self) -> str | None:
        """A sentence on what predictions leave out of this MLP; None for nothing."""


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """Attention in which groups of query heads share a key and a value head each.

    As many KV heads as query heads are multi-head attention, one KV head is multi-query attention.
    ``attention_bias`` puts biases on the query, key and value projections, ``output_bias`` one on
    the output projection; ``qk_norm`` adds one RMS norm over the head size for queries and one for
    keys. ``sliding_window`` is the number of tokens attention looks back, None for all; times and
    memory count the full length either way. Raises ValueError for an impossible shape.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_bias: bool
    qk_norm: bool
    sliding_window: int | None = None
    output_bias: bool = False

    def __post_init__(self) -> None:
        require_positive(self, "num_heads", "num_kv_heads", "head_dim")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads: got {self.num_kv_heads}, expected a divisor of the "
                f"{self.num_heads} attention heads"
            )
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

    def share(self, gpus: int) -> GroupedQuery:
        """The heads of one of ``gpus``; with more GPUs than KV heads, these are copied."""
        heads, kv_heads = self.num_heads // gpus, max(1, self.num_kv_heads // gpus)
        return replace(self, num_heads=heads, num_kv_heads=kv_heads)

    def linear_parameters(self, hidden_size: int) -> int:
        """Weights of the query, key, value and output projections."""
        return hidden_size * (2 * self.query_size + 2 * self.kv_size)

    def small_parameters(self, hidden_size: int) -> int:
        """The query and key norms, and the biases."""
        count = 2 * self.head_dim if self.qk_norm else 0
        if self.attention_bias:
            count += self.query_size + 2 * self.kv_size
        if self.output_bias:
            count += hidden_size
        return count

    def kv_bytes_per_token(self, precision: str, gpus: int = 1) -> float:
        """One key and one value for each KV head (not for each query head)."""
        kv_size = max(1, self.num_kv_heads // gpus) * self.head_dim
        return 2 * kv_size * precision_bytes(precision)

    def reads(self, precision: str, gpus: int = 1) -> tuple[Read, ...]:
        """Everything that is kept."""
        return (Read(self.kv_bytes_per_token(precision, gpus)),)

    def flops_per_pair(self) -> float:
        """Two for each element of the query heads, in the scores and in the weighted values."""
        return 4.0 * self.query_size

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight."""
        return 2.0 * self.linear_parameters(hidden_size)

    def widest(self, hidden_size: int, gpus: int) -> float:
        """Queries, keys, values and the result."""
        one = self.share(gpus)
        return 2 * one.query_size + 2 * one.kv_size

    def not_shared(self, gpus: int) -> str | None:
        """Query heads are shared out; KV heads are shared out or copied."""
        if self.num_heads % gpus:
            return f"cannot share the {self.num_heads} attention heads"
        if self.num_kv_heads % gpus and gpus % self.num_kv_heads:
            return f"can neither share nor copy the {self.num_kv_heads} KV heads"
        return None

    def kv_arithmetic(self, layers: int, gpus: int) -> str:
        """Keys and values of the KV heads."""
        heads = max(1, self.num_kv_heads // gpus)
        return f"2 (K, V) x {layers} layers x {heads} heads x {self.head_dim}"

    @property
    def left_out(self) -> str | None:
        """A window."""
        if self.sliding_window is None:
            return None
        return "The sliding window is not modelled: attention and KV count the full length."


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """An MLP whose weights every token is multiplied by.

    ``mlp_matrices`` is 3 for a gated MLP (gate, up, down), 2 for one of up and down; ``mlp_bias``
    puts biases on all of them. Raises ValueError for an impossible shape.
    """

    intermediate_size: int
    mlp_bias: bool = False
    mlp_matrices: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "intermediate_size")
        if self.mlp_matrices not in (2, 3):
            raise ValueError(f"mlp_matrices: got {self.mlp_matrices}, expected 2 or 3")

    def share(self, gpus: int) -> float:
        """Width of the part of it on one of ``gpus``."""
        return self.intermediate_size / gpus

    def linear_parameters(self, hidden_size: int) -> int:
        """Weights of the gate (if it has one), up and down projections."""
        return self.mlp_matrices * hidden_size * self.intermediate_size

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight."""
        return 2.0 * self.linear_parameters(hidden_size)

    def small_parameters(self, hidden_size: int) -> int:
        """The biases."""
        if not self.mlp_bias:
            return 0
        return (self.mlp_matrices - 1) * self.intermediate_size + hidden_size

    def idle_parameters(self, hidden_size: int) -> int:
        """None."""
        return 0

    def widest(self, hidden_size: int, gpus: int) -> float:
        """The gate and up outputs and their product."""
        return self.mlp_matrices * self.share(gpus)

    def not_shared(self, gpus: int) -> str | None:
        """Any number of GPUs can."""
        return None

    @property
    def left_out(self) -> str | None:
        """Nothing."""
        return None


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """``count`` layers of a model that are all alike.

    With ``parallel_mlp`` attention and MLP read the same normed input, so that a layer has one
    norm, not two.
    """

    count: int
    attention: Attention
    mlp: Mlp
    parallel_mlp: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"num_layers: got {self.count}, expected at least 1")

    @property
    def norms(self) -> int:
        """Norms of the hidden state in one layer."""
        return 1 if self.parallel_mlp else 2

    def linear_parameters(self, hidden_size: int) -> int:
        """Weights of one layer's projections, without biases and norms."""
        attention = self.attention.linear_parameters(hidden_size)
        return attention + self.mlp.linear_parameters(hidden_size)


def require_positive(record: object, *names: str) -> None:
    """ValueError, naming the field, if one of those in ``record`` is below 1."""
    for name in names:
        value = getattr(record, name)
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected at least 1")
