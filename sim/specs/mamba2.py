"""Describes the state-space layers of Mamba-2, as in Nemotron-H."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.specs.layers import require_positive
from sim.specs.layout import Layout
from sim.specs.recurrent import Recurrent


@dataclass(frozen=True, slots=True)
class Mamba2(Recurrent):
    """Mamba-2: a token decays each head's state by one factor and adds the outer product of its
    input and of what its group of heads writes (B); the result reads the state by C.

    ``mamba_heads`` of ``mamba_head_dim``; ``mamba_groups`` have a B and a C of ``state_size`` each.
    The convolution goes over inputs, B and C, and has a bias with ``conv_bias``. (Dao and Gu, arXiv
    2405.21060.) Raises ValueError for an impossible shape.
    """

    mamba_heads: int
    mamba_head_dim: int
    state_size: int
    mamba_groups: int = 8
    conv_kernel: int = 4
    conv_bias: bool = True
    state_precision: str = "fp32"

    chunk: ClassVar[int] = 128
    serial: ClassVar[bool] = False
    scans: ClassVar[int] = 5

    def __post_init__(self) -> None:
        require_positive(self, "mamba_heads", "mamba_head_dim", "state_size", "mamba_groups")
        if self.mamba_heads % self.mamba_groups:
            raise ValueError(
                f"mamba_groups: got {self.mamba_groups}, expected a divisor of the "
                f"{self.mamba_heads} heads"
            )
        self._check()

    @property
    def heads(self) -> int:
        """All of them."""
        return self.mamba_heads

    @property
    def inner_size(self) -> int:
        """Width of the inputs of all heads."""
        return self.mamba_heads * self.mamba_head_dim

    @property
    def channels(self) -> int:
        """Inputs, and B and C of each group."""
        return self.inner_size + 2 * self.mamba_groups * self.state_size

    @property
    def head_state(self) -> int:
        """``state_size`` numbers for each element of a head's input."""
        return self.mamba_head_dim * self.state_size

    @property
    def gates(self) -> int:
        """No gates apart: the step of each head comes with the rest."""
        return 0

    def into(self, layout: Layout) -> float:
        """With the step of each head."""
        rest = self.inner_size + self.mamba_heads
        return self.channels_of(layout.tensor) + rest / layout.tensor

    @property
    def small(self) -> int:
        """Decay, bias of the step and passed-on input of each head, the norm of the results, and
        the convolution's bias."""
        bias = self.channels if self.conv_bias else 0
        return 3 * self.mamba_heads + self.inner_size + bias

    def chunk_flops(self) -> float:
        """Within a chunk: C by B, once for a group, and the product of that with the inputs, as
        wide as the chunk is long. With the state: the update, and what C reads. (Dao and Gu,
        section 6.)

        >>> Mamba2(64, 64, 128).chunk_flops()
        53248.0
        """
        grouped = 2.0 * self.chunk * self.state_size * self.mamba_groups / self.mamba_heads
        return grouped + 2.0 * self.chunk * self.mamba_head_dim + 2 * 2.0 * self.head_state

    def chunk_moved(self) -> float:
        """Traffic of its five kernels: inputs twice, B and C twice, results once, C by B in 32 bits
        written and read, and the states of each chunk, in 32 bits, four times (written by the first
        kernel, read and written as they are passed on, read by the last)."""
        groups = self.mamba_groups
        states = 4 * 2 * self.mamba_heads * self.head_state / self.chunk
        inside = 2 * 2 * groups * self.chunk
        return 3 * self.inner_size + 4 * groups * self.state_size + inside + states

    def channels_of(self, gpus: int) -> float:
        """Heads are shared out; so are groups, or copied where there are more GPUs."""
        groups = max(1.0, self.mamba_groups / gpus)
        return self.inner_size / gpus + 2 * groups * self.state_size
