"""Describes gated short convolutions that stand in the place of attention, as in LFM2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sim.specs.layers import require_positive
from sim.specs.layout import Layout
from sim.specs.recurrent import CONV_BYTES, Recurrent


@dataclass(frozen=True, slots=True)
class ShortConvolution(Recurrent):
    """A convolution over the last ``conv_kernel`` tokens, ``conv_size`` wide, with a gate before it
    and one behind it.

    A sequence keeps the inputs of the convolution and no other state. ``conv_bias`` puts biases on
    it and on the projections. (LFM2, arXiv 2511.23404.) Raises ValueError for an impossible shape.
    """

    conv_size: int
    conv_kernel: int = 3
    conv_bias: bool = False
    state_precision: str = "bf16"

    chunk: ClassVar[int] = 1
    serial: ClassVar[bool] = False
    scans: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require_positive(self, "conv_size")
        self._check()

    @property
    def heads(self) -> int:
        """Channels, each of which is apart from the others."""
        return self.conv_size

    @property
    def inner_size(self) -> int:
        """Width of the results."""
        return self.conv_size

    @property
    def channels(self) -> int:
        """Width of the convolution."""
        return self.conv_size

    @property
    def head_state(self) -> int:
        """No state besides the inputs of the convolution."""
        return 0

    @property
    def gates(self) -> int:
        """No gates apart: both come with the inputs."""
        return 0

    def into(self, layout: Layout) -> float:
        """The inputs of the convolution and both gates."""
        return 3 * self.channels_of(layout.tensor)

    @property
    def small(self) -> int:
        """Biases."""
        return 5 * self.conv_size if self.conv_bias else 0

    def chunk_flops(self) -> float:
        """No FLOP worth counting."""
        return 0.0

    def chunk_moved(self) -> float:
        """Inputs and gates in, results out."""
        return 4.0 * self.conv_size

    def channels_of(self, gpus: int) -> float:
        """An equal share."""
        return self.conv_size / gpus

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight of the projections."""
        return 2.0 * hidden_size * 4 * self.conv_size

    def state_arithmetic(self, layers: int, layout: Layout) -> str:
        """The bytes that one sequence keeps in that many layers on one GPU as a product."""
        width = self.channels_of(layout.tensor)
        return f"{layers} layers x {width:,.0f} x {self.conv_kernel - 1} x {CONV_BYTES:g} B"
