"""Provides the MLPs of layers: dense ones, and mixtures of experts."""

from __future__ import annotations

from calibrate.bench.by_expert import ExpertWeights, routed
from calibrate.engine.arithmetic import Arithmetic
from calibrate.engine.layer_pass import PassPart
from calibrate.engine.weights import EngineWeights
from calibrate.lazy_torch import Tensor, torch
from sim.specs.dense_mlp import DenseMlp
from sim.specs.experts import MixtureOfExperts


class DenseBlock:
    """Gate and up as one matrix, and down."""

    def __init__(self, spec: DenseMlp, arithmetic: Arithmetic, draw: EngineWeights) -> None:
        inner, biased = spec.intermediate_size, spec.mlp_bias
        self._arithmetic = arithmetic
        self.gate_up = draw.matrix(2 * inner, draw.hidden)
        self.down = draw.out(draw.hidden, inner)
        self.gate_up_bias = draw.bias(2 * inner) if biased else None
        self.down_bias = draw.out_bias(draw.hidden) if biased else None

    def forward(self, seen: Tensor, part: PassPart) -> Tensor:
        """The term that the MLP adds to the hidden state, from the normed one."""
        linear = torch.nn.functional.linear
        part("gate and up")
        wide = linear(seen, self.gate_up, self.gate_up_bias)
        part("activation")
        inner = self._arithmetic.activate(wide)
        part("down")
        return linear(inner, self.down, self.down_bias)


class ExpertsBlock:
    """A router, the experts that it chooses from, and those that every token goes through."""

    def __init__(self, spec: MixtureOfExperts, arithmetic: Arithmetic, draw: EngineWeights) -> None:
        hidden, inner, number = draw.hidden, spec.moe_intermediate_size, spec.num_experts
        self._arithmetic = arithmetic
        self._choices = spec.experts_per_token
        self.router = draw.small(number, hidden)
        self.router_bias = draw.bias(number) if spec.router_bias else None
        self.experts = ExpertWeights(
            gate_up=draw.matrix(number, 2 * inner, hidden),
            down=draw.out(number, hidden, inner),
            gate_up_bias=draw.bias(number, 2 * inner) if spec.mlp_bias else None,
            down_bias=draw.out_bias(number, hidden) if spec.mlp_bias else None,
        )
        shared = spec.shared_intermediate_size
        own = DenseMlp(shared, spec.mlp_bias) if shared else None
        self.shared = None if own is None else DenseBlock(own, arithmetic, draw)
        self.shared_gate = draw.small(1, hidden) if spec.shared_gate else None

    def forward(self, seen: Tensor, part: PassPart) -> Tensor:
        """The term that the experts add to the hidden state, from the normed one."""
        linear = torch.nn.functional.linear
        part("router")
        routes = linear(seen, self.router)
        part("choice of experts")
        chosen, shares = self._arithmetic.choose(routes, self.router_bias, self._choices)
        part("experts")
        mixed = routed(seen, chosen, shares, self.experts, self._arithmetic.activate)
        if self.shared is None:
            return mixed
        every = self.shared.forward(seen, lambda name: part(f"shared experts: {name}"))
        if self.shared_gate is not None:
            part("shared experts: gate")
            every = every * torch.sigmoid(linear(seen, self.shared_gate))
        return mixed + every
