"""Describes lightning attention, as in MiniMax-Text-01 and M1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.specs.layers import require_positive
from sim.specs.recurrent import Recurrent


@dataclass(frozen=True, slots=True)
class Lightning(Recurrent):
    """Linear attention in which each head's state decays by a constant of its own.

    ``lightning_heads`` of ``lightning_head_dim`` have a query, a key and a value each, and an
    output gate; there is no convolution. (Lightning Attention-2, arXiv 2401.04658; MiniMax-01,
    arXiv 2501.08313.) Raises ValueError for an impossible shape.
    """

    lightning_heads: int
    lightning_head_dim: int
    state_precision: str = "fp32"
    conv_kernel: int = 1

    chunk: ClassVar[int] = 256
    serial: ClassVar[bool] = False
    scans: ClassVar[int] = 4

    def __post_init__(self) -> None:
        require_positive(self, "lightning_heads", "lightning_head_dim")
        if self.conv_kernel != 1:
            raise ValueError(f"conv_kernel: got {self.conv_kernel}, expected 1: it has none")
        self._check()

    @property
    def heads(self) -> int:
        """All of them."""
        return self.lightning_heads

    @property
    def inner_size(self) -> int:
        """Width of all values."""
        return self.lightning_heads * self.lightning_head_dim

    @property
    def channels(self) -> int:
        """Queries, keys and values."""
        return 3 * self.inner_size

    @property
    def head_state(self) -> int:
        """A value for each element of the key."""
        return self.lightning_head_dim**2

    @property
    def gates(self) -> int:
        """No gates."""
        return 0

    @property
    def small(self) -> int:
        """The norm of the results."""
        return self.inner_size

    def chunk_flops(self) -> float:
        """Within a chunk: queries by keys, and the product of that with values, as wide as the
        chunk is long. With the state: the update, and what queries read. (Lightning Attention-2,
        section 3.)

        >>> Lightning(64, 128).chunk_flops()
        196608.0
        """
        inside = 2 * 2.0 * self.chunk * self.lightning_head_dim
        return inside + 2 * 2.0 * self.head_state

    def chunk_moved(self) -> float:
        """Queries, keys and values twice (for what is within a chunk, and for the states), results
        once, and the states of each chunk written and read in 32 bits."""
        states = 2 * 2 * self.lightning_heads * self.head_state / self.chunk
        return 2 * self.channels + self.inner_size + states

    def channels_of(self, gpus: int) -> float:
        """An equal share."""
        return self.channels / gpus
