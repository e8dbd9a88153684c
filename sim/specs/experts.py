"""Describes a mixture of experts: an MLP of which each token goes through a few parts.

Sizes are of one layer. Which experts a token chooses is independent of other tokens, and without a
``skew`` uniform, which is the most even case: where some experts are popular (``popularity``) a few
tokens touch fewer experts and many tokens wait for the busiest one. Where GPUs hold whole experts,
a layer lasts as long as the busiest of them (``routing``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sim.specs import routing
from sim.specs.layers import Weights, require_positive
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.routing import Busiest

MARLIN = ("mxfp4", "int4", "int4-group", "int4-group64", "int4-group32")
"""Formats of stored experts that the library Marlin multiplies with 16-bit inputs."""

PADDED = (256, 128)
"""Multiples to which hidden sizes, and widths of an expert on a GPU, are padded where Marlin
multiplies mxfp4 (vLLM, model_executor/layers/quantization/mxfp4.py)."""


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """``num_experts`` small MLPs, of which a router chooses ``experts_per_token`` for each token.

    ``moe_intermediate_size`` is the width of one expert. Every token also goes through the shared
    experts, which are one MLP of ``shared_intermediate_size`` together (0 for none).
    ``mlp_matrices`` is 3 for gated experts (gate, up, down), 2 for experts of up and down;
    ``mlp_bias`` puts biases on all of them, ``router_bias`` one number per expert on the router.
    ``router_fp32`` says that engines multiply the router in fp32, whatever else they multiply in.
    ``shared_gate`` multiplies the result of the shared experts by one number for each token, which
    is projected from the hidden state. With a ``latent_size`` the experts, but not the shared ones,
    work on that many numbers, which one product makes of the hidden state and another takes back;
    every GPU has both whole. ``skew`` is the exponent of the power law by which experts
    are chosen, 0 for equally often: no checkpoint says it, a scenario does.
    Raises ValueError for an impossible shape.
    """

    num_experts: int
    experts_per_token: int
    moe_intermediate_size: int
    shared_intermediate_size: int = 0
    mlp_matrices: int = 3
    mlp_bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    router_fp32: bool = False
    skew: float = 0.0
    latent_size: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "num_experts", "experts_per_token", "moe_intermediate_size")
        if self.experts_per_token > self.num_experts:
            raise ValueError(
                f"experts_per_token: got {self.experts_per_token}, expected at most the "
                f"{self.num_experts} experts there are"
            )
        if self.shared_intermediate_size < 0:
            raise ValueError(
                f"shared_intermediate_size: got {self.shared_intermediate_size}, expected 0 or more"
            )
        if self.mlp_matrices not in (2, 3):
            raise ValueError(f"mlp_matrices: got {self.mlp_matrices}, expected 2 or 3")
        if self.shared_gate and not self.shared_intermediate_size:
            raise ValueError("shared_gate: there are no shared experts")
        if self.latent_size is not None:
            require_positive(self, "latent_size")
        if self.skew < 0:
            raise ValueError(f"skew: got {self.skew}, expected 0 or more")

    def expert_hidden(self, hidden_size: int) -> int:
        """Width of what goes into an expert, and of its result."""
        return self.latent_size or hidden_size

    def expert_parameters(self, hidden_size: int) -> int:
        """Weights of one expert, without biases."""
        return self.mlp_matrices * self.expert_hidden(hidden_size) * self.moe_intermediate_size

    def weights(self, hidden_size: int, layout: Layout = ONE_GPU) -> tuple[Weights, ...]:
        """The experts of one group of GPUs, or of each expert a part; the router, which every GPU
        has whole; the shared experts, cut like any MLP, but whole on tensor ranks that have a share
        of the tokens each."""
        held, width = self.held(layout), layout.expert_width
        experts = held * self.expert_parameters(hidden_size) / width
        router = self.num_experts * (hidden_size + (1 if self.router_bias else 0))
        found = [Weights("experts", experts, "experts"), Weights("router", router, "kept")]
        if self.latent_size:
            found.append(
                Weights("experts' latent", 2 * hidden_size * self.latent_size, "projections")
            )
        if self.shared_intermediate_size:
            shared = self.mlp_matrices * hidden_size * self.shared_intermediate_size
            found.append(Weights("shared experts", shared / self._cut(layout), "projections"))
        if self.shared_gate:
            found.append(Weights("shared experts' gate", hidden_size, "kept"))
        biases = held * self._expert_biases(hidden_size) / width
        biases += self._biases(hidden_size, self.shared_intermediate_size) / self._cut(layout)
        if biases:
            found.append(Weights("experts' biases", biases, "kept"))
        return tuple(found)

    def held(self, layout: Layout) -> int:
        """Experts, whole or in part, on the GPU that has most of them."""
        return -(-self.num_experts // layout.expert)

    def idle_parameters(self, hidden_size: int) -> int:
        """Parameters of the experts that a token does not choose."""
        one = self.expert_parameters(hidden_size) + self._expert_biases(hidden_size)
        return (self.num_experts - self.experts_per_token) * one

    def flops_per_token(self, hidden_size: int) -> float:
        """Two for each weight of the router, the chosen experts and the shared ones."""
        chosen = self.experts_per_token * self.expert_parameters(hidden_size)
        routes = self.num_experts + (1 if self.shared_gate else 0) + 2 * (self.latent_size or 0)
        shared = self.mlp_matrices * self.shared_intermediate_size
        return 2.0 * (chosen + hidden_size * (routes + shared))

    def touched(self, tokens: Any) -> Any:
        """Distinct experts that this many tokens choose, on average: a number, or an array of them.

        >>> [round(MixtureOfExperts(128, 8, 768).touched(t), 2) for t in (1, 2, 16, 64)]
        [8.0, 15.5, 82.42, 125.94]
        """
        if not self.skew:
            return routing.touched(self.num_experts, self.experts_per_token, tokens)
        from sim.specs import popularity  # noqa: PLC0415 - it imports numpy

        found = popularity.chances(self.num_experts, self.experts_per_token, self.skew)
        return popularity.touched(found, tokens)

    def busiest(self, tokens: Any, layout: Layout) -> Busiest:
        """The load of the busiest GPU from ``tokens`` of all data ranks together."""
        experts, chosen = self.num_experts, self.experts_per_token
        if not self.skew:
            return routing.busiest(experts, chosen, layout.expert, self.held(layout), tokens)
        from sim.specs import popularity  # noqa: PLC0415 - it imports numpy

        return popularity.busiest(experts, chosen, self.skew, layout.expert, tokens)

    def widest(self, hidden_size: int, layout: Layout) -> float:
        """For each chosen expert, what goes in or comes out of a product (one buffer serves the
        wider of the gate and up outputs and the result) and the product of gate and up. With data
        ranks there are as many tokens on every GPU, and their inputs and sums."""
        inner, latent = self.moe_intermediate_size / layout.expert_width, self.latent_size or 0
        hidden = self.expert_hidden(hidden_size)
        routed = max((self.mlp_matrices - 1) * inner, hidden) + inner
        shared = self.mlp_matrices * self.shared_intermediate_size / layout.tensor
        gathered = 2 * hidden * layout.data if layout.data > 1 else 0
        return self.experts_per_token * routed * layout.data + gathered + shared + 2 * latent

    def not_shared(self, layout: Layout) -> str | None:
        """Whole experts, or every expert cut along its width; shared experts are always cut."""
        if layout.expert > self.num_experts:
            return (
                f"expert_parallel: {layout.expert} GPUs cannot share the {self.num_experts} experts"
            )
        for width, gpus in (
            (self.moe_intermediate_size, layout.expert_width),
            (self.shared_intermediate_size, layout.tensor),
        ):
            if width % gpus:
                key = "tensor_parallel" if layout.data == 1 else "tensor_parallel x data_parallel"
                return f"{key}: {gpus} GPUs cannot share the {width:,} columns of an expert"
        return None

    @property
    def left_out(self) -> str | None:
        """Skew, unless it is given."""
        return None if self.skew else "Every expert is taken to be chosen equally often."

    def _cut(self, layout: Layout) -> int:
        """GPUs that share the width of the shared experts: those with the same tokens."""
        return 1 if layout.shares_tokens else layout.tensor

    def _expert_biases(self, hidden_size: int) -> int:
        return self._biases(self.expert_hidden(hidden_size), self.moe_intermediate_size)

    def _biases(self, hidden_size: int, width: int) -> int:
        if not self.mlp_bias or not width:
            return 0
        return (self.mlp_matrices - 1) * width + hidden_size
