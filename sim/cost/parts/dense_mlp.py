"""Predicts an MLP whose weights every token is multiplied by, and the lack of one."""

from __future__ import annotations

from sim.cost.operators import Amount, Operator
from sim.cost.rooflines import Rooflines
from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.deployment import Deployment


class DenseMlpPart:
    """Gate and up in one product, the activation, and down."""

    all_reduces = 1

    def __init__(
        self,
        mlp: DenseMlp,
        layers: int,
        d: Deployment,
        kernels: Rooflines,
        gpus: int | None = None,
    ) -> None:
        """``gpus`` share its width: by default the tensor ranks."""
        self._layers, self._kernels = layers, kernels
        self._hidden, self._matrices = d.model.hidden_size, mlp.mlp_matrices
        self._inner = mlp.share(gpus or d.layout.tensor)
        self.inputs = (self._hidden, self._inner)

    def per_token(self, m: Amount) -> list[Operator]:
        """Operators that depend only on the number of tokens in the pass."""
        h, i, layers, kernels = self._hidden, self._inner, self._layers, self._kernels
        moved = self._matrices * m * i * kernels.moved
        return [
            kernels.after_norm("gate and up projection", layers, m, h, (self._matrices - 1) * i),
            kernels.moving("activation", "activation", layers, moved),
            kernels.projection("down projection", layers, m, i, h),
        ]

    def of_all_ranks(self, m: Amount) -> list[Operator]:
        """No operator: every data rank has an MLP of its own."""
        return []


class NoMlpPart:
    """The part of layers without an MLP."""

    all_reduces = 0
    inputs: tuple[float, ...] = ()

    def __init__(self, mlp: NoMlp, layers: int, d: Deployment, kernels: Rooflines) -> None:
        pass

    def per_token(self, m: Amount) -> list[Operator]:
        """No operators."""
        return []

    def of_all_ranks(self, m: Amount) -> list[Operator]:
        """No operators."""
        return []
