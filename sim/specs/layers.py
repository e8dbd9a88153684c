"""Describes the layers of a model: groups of equal ones, each an attention and an MLP of some kind.

A kind is a frozen record that satisfies ``Attention`` or ``Mlp``: it says what one layer of it
weighs, keeps in the KV cache and reads from there; ``sim.cost.parts`` has a file per kind that
predicts its time. All sizes are of one layer; ``gpus`` share a layer by tensor parallelism, and the
size is then that of one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol


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
