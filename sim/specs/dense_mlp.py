"""Describes an MLP whose weights every token is multiplied by, and layers that have no MLP."""

from __future__ import annotations

from dataclasses import dataclass

from sim.specs.layers import Weights, require_positive
from sim.specs.layout import ONE_GPU, Layout


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

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The gate (if it has one), up and down projections, and the biases, all shared out."""
        projections = self.mlp_matrices * hidden_size * self.share(layout.tensor)
        found = Weights("MLP", projections, "projections")
        if not self.mlp_bias:
            return (found,)
        biases = (self.mlp_matrices - 1) * self.intermediate_size + hidden_size
        return found, Weights("biases", biases / layout.tensor, "kept")

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight of the projections."""
        return 2.0 * self.mlp_matrices * hidden_size * self.intermediate_size

    def idle_parameters(self, hidden_size: int) -> int:
        """No parameters."""
        return 0

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """The gate and up outputs and their product."""
        return self.mlp_matrices * self.share(layout.tensor)

    def not_shared(self, layout: Layout) -> str | None:
        """Any number of GPUs can."""
        return None

    @property
    def left_out(self) -> str | None:
        """No parts are left out."""
        return None


@dataclass(frozen=True, slots=True)
class NoMlp:
    """No MLP: the next layer's attention follows at once."""

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """No parameters."""
        return ()

    def flops_per_token(self, hidden_size: int) -> float:
        """No FLOP."""
        return 0.0

    def idle_parameters(self, hidden_size: int) -> int:
        """No parameters."""
        return 0

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """No output."""
        return 0.0

    def not_shared(self, layout: Layout) -> str | None:
        """Any number of GPUs can."""
        return None

    @property
    def left_out(self) -> str | None:
        """No parts are left out."""
        return None
