"""Describes LoRA adapters: the modules of a model that they change, and their bytes on one GPU.

An adapter adds to a linear module the product of two small matrices, A (rank x inputs) and B
(outputs x rank), of 16 bits. vLLM sets slots aside for ``max_loras`` of them when it starts
(``create_lora_weights`` in ``lora/layers`` of 0.33), SGLang a memory pool of the same size. Modules
that an engine packs, such as queries, keys and values, have an A for each slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from sim.specs.dense_mlp import DenseMlp, NoMlp
from sim.specs.grouped_query import GroupedQuery
from sim.specs.layers import LayerGroup
from sim.specs.layout import Layout
from sim.specs.model import ModelSpec

Targets = Literal["all", "attention"]


class AdaptedModule(NamedTuple):
    """A linear module on one GPU in each of ``layers``: ``slices`` that read the same ``inputs``,
    and the ``outputs`` of all of them together."""

    layers: int
    slices: int
    inputs: float
    outputs: float

    def parameters(self, rank: int) -> float:
        """Numbers of the A and B of one adapter in all layers."""
        return self.layers * rank * (self.slices * self.inputs + self.outputs)


@dataclass(frozen=True, slots=True)
class Lora:
    """``adapters`` of one ``rank`` for the modules named by ``targets``, of which at most
    ``max_loras`` run in one iteration."""

    adapters: int
    rank: int
    max_loras: int
    targets: Targets = "all"

    @property
    def most(self) -> int:
        """Different adapters that an iteration can have."""
        return min(self.adapters, self.max_loras)

    def modules(self, model: ModelSpec, layout: Layout) -> tuple[AdaptedModule, ...]:
        """The modules of ``model`` that adapters change, as they are on one GPU of ``layout``.

        Tensor ranks share the outputs of queries, keys, values, gate and up, and hold their A
        whole; of the output and down projections they share the inputs, and hold B whole (vLLM
        without ``fully_sharded_loras``). Embedding and LM head are left out. Raises ValueError for
        layers whose adapters are not modelled.
        """
        return tuple(
            module for group in model.layers for module in self._of_group(group, model, layout)
        )

    def _of_group(
        self, group: LayerGroup, model: ModelSpec, layout: Layout
    ) -> tuple[AdaptedModule, ...]:
        attention, mlp, layers = group.attention, group.mlp, group.count
        if not (isinstance(attention, GroupedQuery) and isinstance(mlp, DenseMlp | NoMlp)):
            raise ValueError(
                f"lora: adapters are modelled for grouped-query attention and dense MLPs, which "
                f"not all layers of {model.name} have; leave lora out"
            )
        hidden, gpus = model.hidden_size, layout.tensor
        one = attention.share(gpus)
        projected = AdaptedModule(layers, 2 if one.shared_kv else 3, hidden, one.projected)
        found = (projected, AdaptedModule(layers, 1, one.result_size, hidden))
        if self.targets == "attention" or isinstance(mlp, NoMlp):
            return found
        into, width = mlp.mlp_matrices - 1, mlp.share(gpus)
        up = AdaptedModule(layers, into, hidden, into * width)
        return (*found, up, AdaptedModule(layers, 1, width, hidden))
