"""Describes Kimi Delta Attention, linear attention with a decay for each element of a key."""

from __future__ import annotations

from dataclasses import dataclass

from sim.specs.gated_delta import GatedDelta
from sim.specs.layers import require_positive
from sim.specs.layout import Layout


@dataclass(frozen=True, slots=True)
class KimiDelta(GatedDelta):
    """The gated delta rule with a decay for each element of a head's key, not one for the head.

    Two products, over ``gate_rank`` numbers in between, make the decays of a token; two more make
    the gate of the results, or one with ``full_gate``. Its kernels are taken to last as long as
    those of the gated delta rule. (Kimi Linear, arXiv 2510.26692.) Raises ValueError for an
    impossible shape.
    """

    gate_rank: int = 128
    full_gate: bool = False

    def __post_init__(self) -> None:
        GatedDelta.__post_init__(self)
        require_positive(self, "gate_rank")

    @property
    def gates(self) -> int:
        """How much each head writes, and the numbers that decays and the gate of the results come
        from."""
        return self.linear_value_heads + self.gate_rank * (1 if self.full_gate else 2)

    def into(self, layout: Layout) -> float:
        """What the convolution goes over; with ``full_gate`` the gate of the results, too."""
        gate = self.inner_size / layout.tensor if self.full_gate else 0.0
        return self.channels_of(layout.tensor) + gate

    @property
    def behind_gates(self) -> tuple[int, int]:
        """Decays and, unless there is a ``full_gate``, the gate of the results."""
        return self.gate_rank, self.key_size + (0 if self.full_gate else self.inner_size)

    @property
    def _second(self) -> int:
        width, made = self.behind_gates
        return width * made

    @property
    def small(self) -> int:
        """Decay of each head, its bias for each element of a key, the norm of a head's result, and
        the second products of the gates."""
        decays = self.linear_value_heads + self.key_size
        return decays + self.linear_value_dim + self._second

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight of the projections and of the gates."""
        gate = self.inner_size if self.full_gate else 0
        wide = self.channels + gate + self.inner_size + self.gates
        return 2.0 * (hidden_size * wide + self._second)
