"""Predicts a mixture of experts, whole on GPUs or cut along their width among them.

A pass of ``m`` tokens multiplies ``m * experts_per_token`` rows, and reads the weights of the
experts that it touches, once: few for one token, all of them for many. Experts are chosen equally
often unless the model has a skew; GPUs that hold whole experts wait for the busiest of them.

Tensor ranks have the same tokens, so that their experts' results are summed by an all-reduce. With
data ranks an all-gather brings the tokens of all of them together, and a reduce-scatter the sums
back, as vLLM does by default (``allgather_reducescatter``) and TensorRT-LLM within a node, which
quantises tokens before they leave (``gathers_quantised`` of an engine); or DeepEP's kernels
exchange the tokens (``kernels.all_to_all``). Where the GPU's profile has experts in
the precision, they are one operator; otherwise the data sheet's rates apply, with errors of their
own (``sim.cost.trust``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.cost.kernels import all_to_all
from sim.cost.measured_experts import MeasuredExperts, fit_for
from sim.cost.operators import Amount, Operator
from sim.cost.parts.dense_mlp import DenseMlpPart
from sim.cost.rooflines import Rooflines, measured
from sim.cost.trust import EXPERTS_ERROR
from sim.specs.dense_mlp import DenseMlp
from sim.specs.deployment import Deployment
from sim.specs.experts import MixtureOfExperts
from sim.specs.layout import DEFAULT_BACKEND
from sim.specs.precision import precision_bytes

ROUTING_FLOOR = 24e-6
"""Seconds of one layer's routing however few its tokens: choosing experts, sorting the rows by
expert, summing the results. With the latencies of its other three kernels it makes the 33 to 35 us
that an otherwise empty call takes on H100 and H200 (vLLM 0.24, aiconfigurator-core tables)."""

INTO, OUT = "experts: gate and up", "experts: down"
WHOLE = "experts"
"""All of the routed experts as one operator, as a profile has them."""

GATHERED: Mapping[str, float] = {"fp8": 1.0, "nvfp4": precision_bytes("nvfp4")}
"""Bytes of a number that is quantised before it is gathered, by the format that experts are stored
and multiplied in; others leave as they are (NVIDIA/TensorRT-LLM, _torch/modules/fused_moe/
fused_moe_cutlass.py)."""

CHOICE = 8.0
"""Bytes of an expert's number and its weight, as they are gathered there."""

ROUTED = (INTO, OUT, WHOLE)
"""The operators that read the weights of the experts that a pass touches."""


class MixtureOfExpertsPart:
    """The router, the routing, the chosen experts as grouped products, and the shared experts."""

    def __init__(
        self, mlp: MixtureOfExperts, layers: int, d: Deployment, kernels: Rooflines
    ) -> None:
        self._mlp, self._layers, self._kernels, self._layout = mlp, layers, kernels, d.layout
        self._hidden = d.model.hidden_size
        self._expert_hidden = mlp.expert_hidden(self._hidden)
        self._inner = mlp.moe_intermediate_size / d.layout.expert_width
        found = fit_for(d)
        self._measured = (
            None
            if found is None
            else MeasuredExperts(
                found,
                d.gpu,
                self._expert_hidden,
                mlp,
                d.layout,
                exchanged=d.all2all != DEFAULT_BACKEND,
            )
        )
        self._quantised = precision_bytes(d.arithmetic_of("experts")) < 2 and not d.static
        self._shared: DenseMlpPart | None = None
        if mlp.shared_intermediate_size:
            shared = DenseMlp(mlp.shared_intermediate_size, mlp.mlp_bias, mlp.mlp_matrices)
            gpus = 1 if d.layout.shares_tokens else d.layout.tensor
            self._shared = DenseMlpPart(shared, layers, d, kernels, gpus)
        # tensor ranks that bring a share of their tokens each get those of the others back
        self._among = d.layout.tensor if d.layout.shares_tokens else 1
        widths = () if self._shared is None else self._shared.inputs
        self.inputs = tuple(width / self._among for width in widths)
        spread = d.layout.expert > 1 and d.layout.data > 1
        self._exchanging = d.layout.ranks if spread else d.layout.data
        self._stride = 1 if spread else d.layout.tensor
        self._backend = all_to_all.BACKENDS.get(d.all2all)
        self._width = kernels.moved
        if self._quantised:  # before the tokens leave
            self._width = all_to_all.WIDTHS.get(d.arithmetic_of("experts"), kernels.moved)
        self._gathered, self._choice = kernels.moved, mlp.num_experts * kernels.moved
        if d.engine.gathers_quantised:
            stored, computed = d.formats["experts"], d.arithmetic_of("experts")
            if stored == computed:
                self._gathered = GATHERED.get(stored, kernels.moved)
            self._choice = mlp.experts_per_token * CHOICE
        self.all_reduces = 0 if spread else 1

    def per_token(self, m: Amount) -> list[Operator]:
        """Operators that depend only on the number of tokens in the pass."""
        h, layers, kernels = self._hidden, self._layers, self._kernels
        own = m / self._among
        routes = kernels.in_fp32 if self._mlp.router_fp32 else kernels.unquantised
        operators = [routes("router", layers, own, h, self._mlp.num_experts)]
        if self._among > 1:
            whole = m * h * kernels.moved
            operators.append(kernels.all_gather("experts: tokens back", layers, whole, self._among))
        if self._mlp.latent_size:
            latent = self._mlp.latent_size
            operators += [
                kernels.projection("experts: into latent", layers, own, h, latent),
                kernels.projection("experts: out of latent", layers, own, latent, h),
            ]
        if self._shared is not None:
            shared = self._shared.per_token(own)
            operators += [o._replace(name=f"shared experts: {o.name}") for o in shared]
        if self._mlp.shared_gate:
            scaled = 2 * m * h * kernels.moved
            operators += [
                kernels.unquantised("shared experts: gate", layers, m, h, 1),
                kernels.plain("shared experts: gated", layers, scaled),
            ]
        return operators

    def of_all_ranks(self, m: Amount) -> list[Operator]:
        """The experts, and bringing the tokens of all data ranks there and back."""
        h, layers, kernels = self._expert_hidden, self._layers, self._kernels
        operators = self._by_data_sheet(m) if self._measured is None else self._by_profile(m)
        if self._exchanging == 1:
            return operators
        if self._backend is not None:
            own, chosen = m / self._layout.ranks, self._mlp.experts_per_token
            there, back = (f"{self._backend}_{phase}" for phase in all_to_all.PHASES)
            return [
                kernels.exchange("experts: dispatch", there, layers, own, self._width, chosen),
                *operators,
                kernels.exchange("experts: combine", back, layers, own, kernels.moved, chosen),
            ]
        among = (self._exchanging, self._stride)
        gathered, summed = m * (h * self._gathered + self._choice), m * h * kernels.moved
        return [
            kernels.all_gather("experts: all-gather", layers, gathered, *among),
            *operators,
            kernels.all_gather("experts: reduce-scatter", layers, summed, *among, scatters=True),
        ]

    def _by_profile(self, m: Amount) -> list[Operator]:
        """The experts of a GPU as they were timed: routing, products and quantisation together."""
        assert self._measured is not None
        layers, (flops, moved) = self._layers, self._measured.work(m)
        whole = Operator(WHOLE, flops * layers, moved * layers, 0.0, 0.0, 0.0, 0.0, True)
        return [measured(whole, layers, self._measured.timing(m))]

    def _by_data_sheet(self, m: Amount) -> list[Operator]:
        """The experts by the data sheet, as kernels of their own."""
        h, i, layers, kernels = self._expert_hidden, self._inner, self._layers, self._kernels
        matrices, (rows, touched) = self._mlp.mlp_matrices, self._mlp.busiest(m, self._layout)
        into, out = (h, (matrices - 1) * i), (i, h)
        if self._backend is not None:  # tokens of other GPUs' experts do not come here
            m = rows / self._mlp.experts_per_token
        operators = [
            self._routing(m, rows),
            kernels.grouped(INTO, layers, touched, rows, *into),
            kernels.plain("experts: activation", layers, matrices * rows * i * kernels.moved),
            kernels.grouped(OUT, layers, touched, rows, *out),
        ]
        if self._quantised:  # not part of these products, whatever a profile's products contain
            operators += [kernels.quantise(layers, m, (h,)), kernels.quantise(layers, rows, (i,))]
        return operators

    def _routing(self, m: Amount, rows: Amount) -> Operator:
        """Scores read, results of the chosen experts read and summed."""
        scores, summed = m * self._mlp.num_experts, (rows + m) * self._expert_hidden
        moved = (scores + summed) * self._kernels.moved
        operator = self._kernels.plain("experts: routing and sum", self._layers, moved)
        return operator._replace(latency=ROUTING_FLOOR * self._layers, error=EXPERTS_ERROR)
