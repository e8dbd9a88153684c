"""Defines what a model computes that its shape leaves open, and that its speed hardly depends on.

The engine's weights are random, so any choice is as good as another; those of published models are
here so that they can be compared with other implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calibrate.bench.elementwise import gated
from calibrate.lazy_torch import Tensor, torch

ROTARY_BASE = 500_000.0
"""Llama 3's."""

SHARPNESS, LIMIT = 1.702, 7.0
"""Of gpt-oss's activation: its sigmoid's factor, and what gate and up are cut to."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The choices of one model.

    ``activation`` is that of the gate: SiLU, GELU by tanh, or gpt-oss's, which cuts gate and up.
    ``scores`` turns a router's results into shares of the experts: over all of them, or each for
    itself; with ``renormalise`` those of the chosen ones are divided by their sum, and ``scale``
    multiplies all. With ``bias_chooses`` the router's bias counts for the choice and not for the
    shares. ``rotary_base`` is of layers that see everything, ``local_base`` of those with a window
    (None: the same). ``embedding_scale`` multiplies what is looked up.
    """

    activation: Literal["silu", "gelu", "cut"] = "silu"
    scores: Literal["softmax", "sigmoid"] = "softmax"
    renormalise: bool = True
    scale: float = 1.0
    bias_chooses: bool = False
    rotary_base: float = ROTARY_BASE
    local_base: float | None = None
    embedding_scale: float = 1.0

    def activate(self, wide: Tensor) -> Tensor:
        """Gate and up, side by side, as one."""
        if self.activation == "silu":
            return gated(wide)
        gate, up = wide.chunk(2, dim=-1)
        if self.activation == "gelu":
            return torch.nn.functional.gelu(gate, approximate="tanh") * up
        gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
        return (up + 1) * gate * torch.sigmoid(SHARPNESS * gate)

    def choose(self, routes: Tensor, bias: Tensor | None, choices: int) -> tuple[Tensor, Tensor]:
        """The experts chosen by the router's results (row x expert), and their shares (both row x
        choice)."""
        if bias is not None and not self.bias_chooses:
            routes = routes + bias
        wide = routes.to(torch.promote_types(routes.dtype, torch.float32))
        scores = wide.softmax(-1) if self.scores == "softmax" else wide.sigmoid()
        ranked = scores + bias if bias is not None and self.bias_chooses else scores
        chosen = ranked.topk(choices, dim=-1).indices
        shares = scores.gather(1, chosen)
        if self.renormalise:
            shares = shares / shares.sum(-1, keepdim=True)
        return chosen, (self.scale * shares).to(routes.dtype)


USUAL = Arithmetic()
"""Llama's, and for experts Mixtral's."""
