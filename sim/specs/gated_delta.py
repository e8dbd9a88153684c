"""Describes linear attention by the gated delta rule, as in Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.specs.layers import require_positive
from sim.specs.layout import Layout
from sim.specs.recurrent import Recurrent


@dataclass(frozen=True, slots=True)
class GatedDelta(Recurrent):
    """The gated delta rule: a token decays each head's state, corrects what it holds under the
    token's key, and reads it by the token's query.

    Groups of the ``linear_value_heads`` share a query and a key of ``linear_key_dim`` each, of
    ``linear_key_heads``; a state is ``linear_key_dim`` x ``linear_value_dim``. The convolution goes
    over queries, keys and values. (Gated Delta Networks, arXiv 2412.06464.) Raises ValueError for
    an impossible shape.
    """

    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    conv_kernel: int = 4
    state_precision: str = "fp32"

    chunk: ClassVar[int] = 64
    serial: ClassVar[bool] = True
    scans: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require_positive(self, "linear_key_heads", "linear_value_heads")
        require_positive(self, "linear_key_dim", "linear_value_dim")
        if self.linear_value_heads % self.linear_key_heads:
            raise ValueError(
                f"linear_key_heads: got {self.linear_key_heads}, expected a divisor of the "
                f"{self.linear_value_heads} value heads"
            )
        self._check()

    @property
    def heads(self) -> int:
        """Value heads."""
        return self.linear_value_heads

    @property
    def key_size(self) -> int:
        """Width of all keys; the queries are as wide again."""
        return self.linear_key_heads * self.linear_key_dim

    @property
    def inner_size(self) -> int:
        """Width of all values."""
        return self.linear_value_heads * self.linear_value_dim

    @property
    def channels(self) -> int:
        """Queries, keys and values."""
        return 2 * self.key_size + self.inner_size

    @property
    def head_state(self) -> int:
        """A value for each element of the key."""
        return self.linear_key_dim * self.linear_value_dim

    @property
    def gates(self) -> int:
        """How much each head decays, and how much it writes."""
        return 2 * self.linear_value_heads

    @property
    def small(self) -> int:
        """Decay and its bias of each head, and the norm of a head's result."""
        return 2 * self.linear_value_heads + self.linear_value_dim

    def chunk_flops(self) -> float:
        """Within a chunk: keys by keys, the two products with the inverse of that, queries by keys
        and their product with values, all as wide as the chunk is long. With the state: what it
        holds under the keys, the update, and what queries read. (The chunkwise form of Yang et al.,
        arXiv 2406.06484, section 3, and 2412.06464, section 3.3; the inversion itself is left out.)

        >>> GatedDelta(16, 32, 128, 128).chunk_flops()
        180224.0
        """
        keys, values = self.linear_key_dim, self.linear_value_dim
        inside = 2.0 * self.chunk * (3 * keys + 2 * values)
        return inside + 3 * 2.0 * keys * values

    def chunk_moved(self) -> float:
        """Queries, keys and values in, results out."""
        return self.channels + self.inner_size

    def channels_of(self, gpus: int) -> float:
        """An equal share."""
        return self.channels / gpus

    def not_shared(self, layout: Layout) -> str | None:
        """Key heads and value heads are shared out."""
        for heads, kind in ((self.linear_key_heads, "key"), (self.linear_value_heads, "value")):
            if heads % layout.tensor:
                return (
                    f"tensor_parallel: {layout.tensor} GPUs cannot share the {heads} {kind} heads "
                    "of linear attention"
                )
        return None
