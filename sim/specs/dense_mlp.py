"""Describes an MLP whose weights every token is multiplied by."""

from __future__ import annotations

from dataclasses import dataclass

from sim.specs.layers import require_positive


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
