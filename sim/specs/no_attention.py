"""Describes layers without attention, which are an MLP alone."""

from __future__ import annotations

from dataclasses import dataclass

from sim.specs.layers import Kept, Read, Weights
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.window import Window


@dataclass(frozen=True, slots=True)
class NoAttention:
    """No attention: the MLP of the layer follows that of the layer before."""

    @property
    def window(self) -> Window | None:
        """No window."""
        return None

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """No parameters."""
        return ()

    def kv_bytes_per_token(self, precision: str, layout: Layout = ONE_GPU) -> float:
        """No bytes."""
        return 0.0

    def kept(self, precision: str, layout: Layout = ONE_GPU) -> Kept:
        """No bytes."""
        return Kept(0.0)

    def reads(self, precision: str, layout: Layout = ONE_GPU) -> tuple[Read, ...]:
        """No reads."""
        return ()

    def flops_per_pair(self) -> float:
        """No FLOP."""
        return 0.0

    def flops_per_token(self, hidden_size: int) -> float:
        """No FLOP."""
        return 0.0

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """No output."""
        return 0.0

    def copies(self, layout: Layout) -> float:
        """No numbers."""
        return 0.0

    def workspace(self, layout: Layout) -> float:
        """No numbers."""
        return 0.0

    def not_shared(self, layout: Layout) -> str | None:
        """Any number of GPUs can."""
        return None

    def kv_arithmetic(self, layers: int, precision: str, layout: Layout) -> str:
        """No text."""
        return ""

    @property
    def operators(self) -> tuple[str, str]:
        """Names of what no profile has."""
        return "no_attention", "no_attention"

    @property
    def left_out(self) -> str | None:
        """No parts are left out."""
        return None
