"""Describes attention in which groups of query heads share keys and values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sim.specs.layers import Kept, Read, Weights, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.precision import precision_bytes
from sim.specs.window import Window


@dataclass(frozen=True, slots=True)
class GroupedQuery:
    """Attention in which groups of query heads share a key and a value head each.

    As many KV heads as query heads are multi-head attention, one KV head is multi-query attention.
    ``attention_bias`` puts biases on the query, key and value projections, ``output_bias`` one on
    the output projection; ``qk_norm`` adds one RMS norm over the head size for queries and one for
    keys; with ``norm_across_heads`` each is over all heads together, so that tensor ranks, which
    have some of them, sum squares. ``sliding_window`` is the number of tokens attention looks back,
    the query's own included; with ``attention_chunk`` it looks back to the last multiple of that
    instead; None for all. ``sinks`` adds a number to each query head, which takes part in the
    softmax and keeps nothing. ``softcap`` says that scores are squashed before the softmax,
    ``shared_kv`` that one projection makes both keys and values (which are kept apart).
    ``output_gate`` multiplies each element of the result by a gate that is projected like queries.
    Values are as wide as keys unless ``v_head_dim`` says otherwise.
    Raises ValueError for an impossible shape.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_bias: bool
    qk_norm: bool
    sliding_window: int | None = None
    output_bias: bool = False
    attention_chunk: int | None = None
    sinks: bool = False
    softcap: bool = False
    shared_kv: bool = False
    output_gate: bool = False
    norm_across_heads: bool = False
    v_head_dim: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "num_heads", "num_kv_heads", "head_dim")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads: got {self.num_kv_heads}, expected a divisor of the "
                f"{self.num_heads} attention heads"
            )
        for name in ("sliding_window", "attention_chunk", "v_head_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1 or null")
        if self.sliding_window is not None and self.attention_chunk is not None:
            raise ValueError("attention_chunk: a layer has this or a sliding_window, not both")

    @property
    def window(self) -> Window | None:
        """How far back it looks."""
        if self.attention_chunk is not None:
            return Window(self.attention_chunk, chunked=True)
        return None if self.sliding_window is None else Window(self.sliding_window)

    @property
    def query_size(self) -> int:
        """Width of all query heads together, which need not equal the hidden size."""
        return self.num_heads * self.head_dim

    @property
    def projected(self) -> int:
        """Width of queries, keys, values and gates as they come from the hidden state."""
        return self._query_and_gate + self.kv_size + (0 if self.shared_kv else self.values_size)

    @property
    def _query_and_gate(self) -> int:
        return (2 if self.output_gate else 1) * self.query_size

    @property
    def kv_size(self) -> int:
        """Width of all key heads together."""
        return self.num_kv_heads * self.head_dim

    @property
    def values_size(self) -> int:
        """Width of all value heads together."""
        return self.num_kv_heads * (self.v_head_dim or self.head_dim)

    @property
    def result_size(self) -> int:
        """Width of the results of all query heads together."""
        return self.num_heads * (self.v_head_dim or self.head_dim)

    def share(self, gpus: int) -> GroupedQuery:
        """The heads of one of ``gpus``; with more GPUs than KV heads, these are copied."""
        heads, kv_heads = self.num_heads // gpus, max(1, self.num_kv_heads // gpus)
        return replace(self, num_heads=heads, num_kv_heads=kv_heads)

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The query, key, value and output projections; the query and key norms, sinks and biases.

        Those are shared out though every GPU has some of them whole: they are few.
        """
        one = self.share(layout.tensor)
        projections = hidden_size * (one.result_size + one.projected)
        found = Weights("attention", projections, "projections")
        small = self._norms_and_biases(hidden_size) / layout.tensor
        return (
            (found, Weights("attention's norms and biases", small, "kept")) if small else (found,)
        )

    def _norms_and_biases(self, hidden_size: int) -> int:
        count = 2 * self.head_dim if self.qk_norm else 0
        if self.attention_bias:
            count += self._query_and_gate + self.kv_size + self.values_size
        if self.output_bias:
            count += hidden_size
        if self.sinks:
            count += self.num_heads
        return count

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """One key and one value for each KV head (not for each query head)."""
        one = self.share(layout.tensor)
        return (one.kv_size + one.values_size) * precision_bytes(precision)

    def kept(self, precision: str, layout: Layout = ONE_GPU) -> Kept:
        """Keys and values of the tokens in the window."""
        return Kept(self.kv_bytes_per_token(precision, layout), self.window)

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """Everything that it sees."""
        cap = math.inf if self.window is None else self.window.size
        return (Read(self.kv_bytes_per_token(precision, layout), cap),)

    def flops_per_pair(self) -> float:
        """Two for each element of the query heads, in the scores and in the weighted values."""
        return 2.0 * (self.query_size + self.result_size)

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight of the projections."""
        return 2.0 * hidden_size * (self.result_size + self.projected)

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """Queries, gates, keys, values and the result."""
        one = self.share(layout.tensor)
        return one._query_and_gate + one.result_size + one.kv_size + one.values_size

    def copies(self, layout: Layout) -> float:
        """No numbers."""
        return 0.0

    def workspace(self, layout: Layout) -> float:
        """No numbers."""
        return 0.0

    def not_shared(self, layout: Layout) -> str | None:
        """Query heads are shared out; KV heads are shared out or copied."""
        gpus, which = layout.tensor, f"tensor_parallel: {layout.tensor} GPUs"
        if self.num_heads % gpus:
            return f"{which} cannot share the {self.num_heads} attention heads"
        if self.num_kv_heads % gpus and gpus % self.num_kv_heads:
            return f"{which} can neither share nor copy the {self.num_kv_heads} KV heads"
        return None

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """Keys and values of the KV heads."""
        heads, kept = self.share(layout.tensor).num_kv_heads, precision_bytes(precision)
        if self.v_head_dim not in (None, self.head_dim):
            widths = f"({self.head_dim} + {self.v_head_dim})"
            return f"{layers} layers x {heads} heads x {widths} x {kept:g} B"
        return f"2 (K, V) x {layers} layers x {heads} heads x {self.head_dim} x {kept:g} B"

    @property
    def operators(self) -> tuple[str, str]:
        """Decode and prefill attention."""
        return "decode_attention", "prefill_attention"

    @property
    def left_out(self) -> str | None:
        """The soft cap."""
        if not self.softcap:
            return None
        return "The soft cap on attention's scores is not timed: no kernel timings have it."
