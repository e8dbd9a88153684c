"""Describes the layers of a model: groups of equal ones, each an attention and an MLP of some kind.

A kind is a frozen record that satisfies ``Attention`` or ``Mlp``: it says what one layer of it
weighs, keeps in the KV cache and reads from there; ``sim.cost.parts`` has a file per kind that
predicts its time. All sizes are of one layer; ``gpus`` share a layer by tensor parallelism, and the
size is then that of one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

from sim.specs.layout import ONE_GPU, Layout
from sim.specs.window import Window


class Read(NamedTuple):
    """Bytes that a decoding sequence reads for each token of its context, at most for ``cap``."""

    bytes: float
    cap: float = math.inf


Role = Literal["projections", "experts", "vocabulary", "kept"]
"""The purpose of weights, which decides their stored format: the projections of attention and of
MLPs that every token goes through, the experts that a router chooses from, embedding and LM head,
and what stays at 16 bits or more (norms, biases, routers)."""


class CachePage(NamedTuple):
    """A page of a layer's cache that is of a size of its own: ``bytes`` for ``block`` tokens, kept
    of those that the ``window`` shows (None: of all)."""

    bytes: float
    block: int
    window: Window | None


class Kept(NamedTuple):
    """A layer's memory for a sequence on one GPU: bytes for each ``token`` that its ``window``
    shows (None: for all), and bytes of ``state`` that stay the same however long it is. Where a
    layer keeps several things in ``pages`` of different sizes, these say all, and ``token`` is what
    grows with the sequence."""

    token: float
    window: Window | None = None
    state: float = 0.0
    pages: tuple[CachePage, ...] = ()


class Weights(NamedTuple):
    """Some of the weights that one GPU holds: what they are called, how many, and their role."""

    name: str
    parameters: float
    role: Role


class Attention(Protocol):
    """The properties of one layer of every kind of attention."""

    @property
    def window(self) -> Window | None:
        """How far back it looks; None for all of the context."""

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The weights of it on one GPU, copies included."""

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """Bytes of KV cache that one token of context takes on one GPU."""

    def kept(self, precision: str, layout: Layout = ONE_GPU) -> Kept:
        """The memory that one GPU keeps for a sequence."""

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """Reads by one GPU of a decoding sequence's context: the sum of these."""

    def flops_per_pair(self) -> float:
        """FLOP of scores and weighted values for one query token and one token that it sees, on
        all GPUs together."""

    def flops_per_token(self, hidden_size: int) -> float:
        """FLOP of its projections for one token, on all GPUs together."""

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """Numbers per token that its intermediate results take on one GPU at their largest."""

    def copies(self, layout: Layout) -> float:
        """Numbers of 16 bits that engines keep on one GPU of its weights in another form."""

    def workspace(self, layout: Layout) -> float:
        """Numbers that its intermediate results take on one GPU beyond those of each token."""

    def not_shared(self, layout: Layout) -> str | None:
        """Why the GPUs of a layout cannot share it: the key, how many GPUs, a verb and its object,
        such as ``tensor_parallel: 3 GPUs cannot share the 32 attention heads``; None if they
        can."""

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """The bytes that a token takes in that many layers on one GPU as a product."""

    @property
    def operators(self) -> tuple[str, str]:
        """The profile names of its decoding and its prompts."""

    @property
    def left_out(self) -> str | None:
        """A sentence on what predictions leave out of this attention; None for nothing."""


class Mlp(Protocol):
    """The properties of one layer of every kind of MLP."""

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The weights of it on one GPU, copies included; of experts, the GPU that holds most."""

    def flops_per_token(self, hidden_size: int) -> float:
        """FLOP of its projections for one token, on all GPUs together."""

    def idle_parameters(self, hidden_size: int) -> int:
        """Parameters, biases included, that the product with one token leaves out."""

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """Numbers per token that its intermediate results take on one GPU at their largest."""

    def not_shared(self, layout: Layout) -> str | None:
        """Why the GPUs of a layout cannot share it: the key, how many GPUs, a verb and its object,
        such as ``tensor_parallel: 3 GPUs cannot share the 32 attention heads``; None if they
        can."""

    @property
    def left_out(self) -> str | None:
        """A sentence on what predictions leave out of this MLP; None for nothing."""


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """``count`` layers of a model that are all alike.

    With ``parallel_mlp`` attention and MLP read the same normed input, so that a layer has one
    norm, not two; with ``post_norms`` the results of both are normed as well. ``places`` are where
    in the model they are, counted from 0; empty: behind those of the groups before.
    """

    count: int
    attention: Attention
    mlp: Mlp
    parallel_mlp: bool = False
    post_norms: bool = False
    places: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"num_layers: got {self.count}, expected at least 1")
        if self.places and len(self.places) != self.count:
            raise ValueError(f"places: got {len(self.places)} of {self.count} layers")

    @property
    def norms(self) -> int:
        """Norms of the hidden state in one layer."""
        return (1 if self.parallel_mlp else 2) + (2 if self.post_norms else 0)

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The weights of one layer on one GPU, without the norms of the hidden state."""
        attention = self.attention.weights(hidden_size, layout)
        return attention + self.mlp.weights(hidden_size, layout)

    def linear_parameters(self, hidden_size: int) -> int:
        """Weights of one layer's projections and experts, without biases and norms."""
        return counted(self.weights(hidden_size), "projections", "experts")


def spread(many: LayerGroup, few: LayerGroup, first: int = 0) -> tuple[LayerGroup, LayerGroup]:
    """The two groups with their places, from layer ``first`` on: those of ``few`` as far apart as
    it goes, each behind its share of ``many``.

    >>> class Any: pass
    >>> [each.places for each in spread(LayerGroup(4, Any(), Any()), LayerGroup(2, Any(), Any()))]
    [(0, 1, 3, 4), (2, 5)]
    """
    layers = many.count + few.count
    rare = {first + (at + 1) * layers // few.count - 1 for at in range(few.count)}
    others = [at for at in range(first, first + layers) if at not in rare]
    return replace(many, places=tuple(others)), replace(few, places=tuple(sorted(rare)))


def counted(weights: Iterable[Weights], *roles: Role) -> int:
    """Parameters of the ``weights`` in these roles, where none are parts of one.

    >>> counted([Weights("router", 64.0, "kept"), Weights("experts", 512.0, "experts")], "kept")
    64
    """
    return int(sum(each.parameters for each in weights if each.role in roles))


def require_positive(record: object, *names: str) -> None:
    """ValueError, naming the field, if one of those in ``record`` is below 1."""
    for name in names:
        value = getattr(record, name)
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected at least 1")
