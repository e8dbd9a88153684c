"""Predicts the kernels of LoRA adapters: two small products next to each linear module. Seconds.

vLLM zeroes a buffer of 32 bits, multiplies the inputs by A into it (shrink) and adds its product
with B to the outputs (expand): three kernels a module, whatever the number of adapters in the pass
(``lora/ops/triton_ops`` of vLLM 0.33, after Punica, arXiv 2310.18547, and S-LoRA, arXiv
2311.03285). The weights of each different adapter are read once. Arithmetic follows the data sheet,
and traffic and the time to begin are those of a norm, the smallest kernel that profiles have.

No profile has the kernels of adapters, so this is a guess, and likely a low one: vLLM reports 10 us
for the expand of queries, keys and values in small batches (pull request 32425).
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.cost.operators import Amount, Operator, merged
from sim.cost.rooflines import Rooflines
from sim.cost.trust import PROJECTION_ERROR
from sim.specs.deployment import Deployment
from sim.specs.lora import AdaptedModule

ADAPTERS = "adapters"
"""The operator of all these kernels."""

KERNELS = 3
"""Kernels of a module: zero, shrink, expand."""

BUFFER_BYTES = 4.0


class AdapterKernels:
    """The kernels of a deployment's adapters, by the tokens of a pass and its adapters."""

    def __init__(self, d: Deployment, kernels: Rooflines) -> None:
        self._rank, self._modules, self._kernels = 0, d.adapted, kernels
        if d.lora is not None:
            self._rank = d.lora.rank
        self._rate = d.gpu.flops(d.unquantised) * d.gpu.efficiency.compute

    def operators(self, m: Amount, adapters: Amount) -> list[Operator]:
        """One operator for a pass of ``m`` tokens with so many different ``adapters``; none for a
        deployment without."""
        return merged(
            operator for module in self._modules for operator in self._of(module, m, adapters)
        )

    def _of(self, module: AdaptedModule, m: Amount, adapters: Amount) -> Iterator[Operator]:
        moved, rank = self._kernels.moved, self._rank
        buffer = m * rank * module.slices * BUFFER_BYTES
        into, out = module.slices * module.inputs, module.outputs
        yield self._kernel(module, buffer, 0.0)
        shrunk = (adapters * rank * into + m * module.inputs) * moved + buffer
        yield self._kernel(module, shrunk, 2.0 * m * rank * into)
        expanded = (adapters * rank * out + 2 * m * out) * moved + buffer
        yield self._kernel(module, expanded, 2.0 * m * rank * out)

    def _kernel(self, module: AdaptedModule, traffic: Amount, flops: Amount) -> Operator:
        """A kernel that runs once in each layer."""
        times = module.layers
        moving = self._kernels.moving(ADAPTERS, "norm", times, traffic)
        work = flops * times
        return moving._replace(
            flops=work,
            compute=work / self._rate,
            per_batch=True,
            error=PROJECTION_ERROR,
            measured=0.0,
        )
