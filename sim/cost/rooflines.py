"""Predicts the kernels that all parts of a model share: products, moves of data, and collectives.

Each as the profile of the GPU has measured it, else by the data sheet. ``m`` is the number of
tokens in the pass, prompts and decodes together; ``times`` is how often the kernel runs in it.
Activations move at 16 bits, or at 32 where the deployment computes in fp32. The deployment's
``kernel_time`` is not in these times: ``passes`` multiplies by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sim.cost.communication import (
    all_gather_across,
    all_gather_time,
    all_reduce_across,
    all_reduce_time,
    send_time,
)
from sim.cost.measured import (
    Exchange,
    MeasuredGemm,
    Timing,
    both,
    collective_of,
    gemm_of,
    mover_of,
)
from sim.cost.operators import Amount, Operator, either
from sim.cost.trust import EXPERTS_ERROR, projection_error
from sim.specs.deployment import Deployment
from sim.specs.layers import Role
from sim.specs.precision import GGUF, INT4, precision_bytes
from sim.specs.profile import FUSED, GATHERS, OLDER

MARLIN_BANDWIDTH = 0.97
"""What Marlin, the library for weights alone in few bits, reads as a share of what GEMMs of full
width do: 3.87 times the speed of fp16 where a quarter of the bytes allow 4 (batches of 1 to 16, A10
and other cards; Frantar and others, MARLIN, arXiv 2408.11743)."""

QUANTISE_BANDWIDTH = 0.25
"""Share of the peak bandwidth that dynamic quantisation of activations reaches where the profile
lacks it: what vLLM's fp8 GEMM timings, which contain it, leave over the GEMM itself (fits on
aiconfigurator-core tables)."""

FUSED_FORMAT = "nvfp4"
"""The format to which a sum fused with a norm quantises what it hands on. fp8 by scales that the
checkpoint holds is so in any case (``Deployment.static``); by scales of each token it is not (vLLM,
compilation/passes/fusion/allreduce_rms_fusion.py, AllReduceFusedAddRMSNormStaticQuantNVFP4Pattern
and its like)."""

SEND = "pipeline send"
"""The operator that hands a pass from one stage of a pipeline to the next."""


class _Products(NamedTuple):
    """How matrices of one role are multiplied by: the precisions of the weights and of the
    arithmetic, the bytes/s at which the weights are read, the profile's GEMM (None: none), that of
    inputs which the kernel before has quantised, and the share of the peak rate that kernels reach
    which read first and compute then (0: they do both at once)."""

    weights: str
    arithmetic: str
    bandwidth: float
    gemm: MeasuredGemm | None
    quantised: MeasuredGemm | None = None
    serial: float = 0.0


class Rooflines:
    """The kernels of one deployment, by the size of the pass: a number, or an array of them."""

    def __init__(self, deployment: Deployment) -> None:
        self._d = deployment
        gpu, efficiency = deployment.gpu, deployment.gpu.efficiency
        self._latency = efficiency.operator_latency
        self._bandwidth = gpu.bandwidth * efficiency.bandwidth
        self.moved = deployment.activation_bytes
        self._largest_fused = deployment.largest_fused_sum
        self.fuses = self._largest_fused > 0
        self._products = {role: self._products_of(role) for role in get_args(Role)}
        layers = self._products["projections"]
        self.quantised = precision_bytes(deployment.arithmetic) < 2
        older = OLDER if deployment.engine.older_kernels else ""
        self._all_reduce = collective_of(gpu, "all_reduce", older)
        self._fused_sum = collective_of(gpu, "all_reduce", FUSED)
        self._gathers = {name: collective_of(gpu, name) for name in GATHERS}
        self._movers = {
            name: mover_of(gpu, name, "fp32" if name == "sampling" else deployment.unquantised)
            for name in ("norm", "rotary", "kv_write", "activation", "embedding", "sampling")
        }
        self._quantise = mover_of(gpu, "quantise", deployment.activations)
        converts = layers.gemm is not None and layers.gemm.converts
        self.quantises = self.quantised and not (converts or deployment.static)

    def _products_of(self, role: Role) -> _Products:
        """How matrices of ``role`` are multiplied by."""
        d = self._d
        weights, arithmetic = d.formats[role], d.arithmetic_of(role)
        if weights in GGUF and d.engine.gguf is not None:  # inputs become int8 (q8_1)
            own = d.engine.gguf
            return _Products(weights, "int8", d.gpu.bandwidth * own.bandwidth, None, None, own.rate)
        streamed = d.gpu.efficiency.bandwidth
        if weights in INT4 or precision_bytes(weights) < 2 <= precision_bytes(arithmetic):
            streamed = d.engine.weight_only.get(weights, MARLIN_BANDWIDTH * streamed)
        gemm = gemm_of(d.gpu, weights, arithmetic, static=d.static)
        quantised = gemm
        if arithmetic == FUSED_FORMAT:
            quantised = gemm_of(d.gpu, weights, arithmetic, fused=True)
        return _Products(weights, arithmetic, d.gpu.bandwidth * streamed, gemm, quantised)

    def fused(self, m: Amount) -> NDArray[np.bool_]:
        """Whether the sum of the hidden states of ``m`` tokens over the tensor ranks is one kernel
        with the norm after it."""
        state = m * self._d.model.hidden_size * self.moved
        return np.asarray(self.fuses & (state <= self._largest_fused))

    def projection(
        self, name: str, times: int, m: Amount, k: float, n: float, role: Role = "projections"
    ) -> Operator:
        """(m x k) by a matrix of a layer, (k x n), which is stored and multiplied by as the
        deployment does with those of its ``role``."""
        products = self._products[role]
        product = self._gemm(name, times, m, k, n, products)
        if products.gemm is None:
            return product
        return measured(product, times, products.gemm.timing(m, n, k))

    def after_norm(self, name: str, times: int, m: Amount, k: float, n: float) -> Operator:
        """``projection`` of what a norm of the hidden state has written: fused with a sum, it
        quantises to ``FUSED_FORMAT`` as well."""
        products = self._products["projections"]
        product = self.projection(name, times, m, k, n)
        if not self.fuses or products.quantised is products.gemm or products.quantised is None:
            return product
        quantised = measured(product, times, products.quantised.timing(m, n, k))
        return either(self.fused(m), quantised, product)

    def unquantised(self, name: str, times: int, m: Amount, k: float, n: float) -> Operator:
        """(m x k) by a matrix that quantisation leaves alone, (k x n): the LM head, a router."""
        return self.projection(name, times, m, k, n, "kept")

    def head(self, m: Amount, n: float) -> Operator:
        """Hidden states of ``m`` tokens by the LM head's share of the vocabulary, ``n``."""
        return self.projection("LM head", 1, m, self._d.model.hidden_size, n, "vocabulary")

    def in_fp32(self, name: str, times: int, m: Amount, k: float, n: float) -> Operator:
        """(m x k) by (k x n), both in fp32 whatever the deployment computes in, by the data sheet;
        like ``unquantised`` where that does not say how fast the GPU is."""
        gpu = self._d.gpu
        if "fp32" not in gpu.peak_flops:
            return self.unquantised(name, times, m, k, n)
        products = _Products("fp32", "fp32", gpu.bandwidth * gpu.efficiency.bandwidth, None)
        return self._gemm(name, times, m, k, n, products)

    def grouped(
        self, name: str, times: int, matrices: Amount, m: Amount, k: float, n: float
    ) -> Operator:
        """(m x k), each row by one of that many ``matrices`` of experts, (k x n): always by the
        data sheet, since no profile has it."""
        operator = self._gemm(name, times, m, k, n, self._products["experts"], matrices)
        return operator._replace(error=EXPERTS_ERROR)

    def _gemm(
        self,
        name: str,
        times: int,
        m: Amount,
        k: float,
        n: float,
        products: _Products,
        matrices: Amount = 1.0,
    ) -> Operator:
        """(m x k) by (k x n): weights read once, inputs read, outputs written."""
        gpu, arithmetic = self._d.gpu, products.arithmetic
        flops = 2.0 * m * k * n * times
        moved = m * k * precision_bytes(arithmetic) + m * n * self.moved
        traffic = (k * n * precision_bytes(products.weights) * matrices + moved) * times
        compute = flops / (gpu.flops(arithmetic) * (products.serial or gpu.efficiency.compute))
        memory = traffic / products.bandwidth
        latency: Amount = self._latency * times
        if products.serial:
            latency = latency + np.minimum(compute, memory)
        return Operator(
            name,
            flops,
            traffic,
            compute,
            memory,
            latency,
            0.0,
            True,
            projection_error(arithmetic),
        )

    def moving(self, name: str, kernel: str, times: int, traffic: Amount) -> Operator:
        """A kernel that only moves ``traffic`` bytes each time, called ``kernel`` in profiles."""
        operator, mover = self.plain(name, times, traffic), self._movers[kernel]
        return operator if mover is None else measured(operator, times, mover.timing(traffic))

    def rotary(self, times: int, m: Amount, query_size: int, kv_size: int) -> Operator:
        """Queries and keys turned, keys and values written to the cache: one kernel by the data
        sheet, two in a profile, the second of which reads what the first has written."""
        kept = precision_bytes(self._d.kv_cache)
        read = (query_size + 2 * kv_size) * self.moved
        written = query_size * self.moved + 2 * kv_size * kept
        operator = self.plain("rotary, KV write", times, m * (read + written))
        turn, write = self._movers["rotary"], self._movers["kv_write"]
        if turn is None or write is None:
            return operator
        turned = turn.timing(2 * m * (query_size + kv_size) * self.moved)
        stored = write.timing(2 * m * kv_size * (self.moved + kept))
        return measured(operator, times, both(turned, stored))

    def plain(self, name: str, times: int, traffic: Amount) -> Operator:
        """An operator that only moves data, ``traffic`` bytes each time, by the data sheet."""
        memory = traffic * times / self._bandwidth
        latency = self._latency * times
        return Operator(name, 0.0, traffic * times, 0.0, memory, latency, 0.0, False)

    def quantise(self, layers: int, m: Amount, inputs: Sequence[float]) -> Operator:
        """The inputs of a layer's products, of these widths, from 16 bits to the activations' (a
        kernel for each)."""
        width = self.moved + precision_bytes(self._d.activations)
        traffic = m * sum(inputs) * width * layers
        memory = traffic / (self._d.gpu.bandwidth * QUANTISE_BANDWIDTH)
        latency = len(inputs) * layers * self._latency
        operator = Operator("quantise activations", 0.0, traffic, 0.0, memory, latency, 0.0, False)
        kernel = self._quantise
        if kernel is None or not inputs:
            return operator
        return measured(
            operator, layers, reduce(both, (kernel.timing(m * i * width) for i in inputs))
        )

    def all_reduce(
        self, times: int, size: Amount, fused: NDArray[np.bool_] | None = None
    ) -> Operator:
        """Sums of ``size`` bytes over the tensor ranks of the replica, those that are ``fused`` by
        the kernel that does a norm, too."""
        d = self._d
        gpus, nodes = d.gpu.node.split(d.layout.tensor)
        beyond = all_reduce_across(size, gpus, nodes, d.gpu.node.network)
        if self._all_reduce is None or gpus == 1:
            seconds = all_reduce_time(size, gpus, d.gpu.link) if gpus > 1 else 0.0
            return _collective("all-reduce", times, size, seconds + beyond)
        found = self._all_reduce.timing(size, gpus)
        if fused is not None and fused.any() and self._fused_sum is not None:
            other = self._fused_sum.timing(size, gpus)
            pairs = zip(other, found, strict=True)
            found = Timing(*(np.where(fused, mine, theirs) for mine, theirs in pairs))
        operator = _collective("all-reduce", times, size, found.seconds + beyond)
        if nodes > 1:
            return operator
        return operator._replace(error=found.error, measured=found.measured)

    def send(self, m: Amount) -> list[Operator]:
        """Hidden state and residual, or all hidden states, from each stage of a pipeline to the
        next: one of each border between two stages.

        Each tensor rank sends its share to its counterpart, and the ranks bring the shares together
        (vLLM 0.32, ``send_tensor_dict`` with an ``all_gather_group``).
        """
        d, gpus = self._d, self._d.layout.tensor
        states = d.model.hyper_connections if d.model.mixes else 2
        size = states * m * d.model.hidden_size * self.moved
        together = self.all_gather(SEND, 1, size, gpus).communication if gpus > 1 else 0.0
        return [
            _collective(SEND, 1, size / gpus, send_time(size / gpus, link) + together)
            for link in d.borders
        ]

    def exchange(
        self, name: str, operator: str, times: int, tokens: Amount, width: float, chosen: int
    ) -> Operator:
        """``tokens`` of each GPU brought to those of the ``chosen`` experts of each, or their
        results back, ``width`` bytes a number, by one of ``all_to_all.OPERATORS``."""
        d = self._d
        gpus, hidden = d.layout.ranks, d.model.hidden_size
        found = Exchange(operator, d.gpu).timing(
            tokens=np.maximum(tokens, 1.0),
            hidden=hidden,
            width=width,
            chosen=chosen,
            gpus=gpus,
            nodes=d.gpu.node.split(gpus)[1],
            network=d.gpu.node.network.bandwidth,
        )
        size = tokens * hidden * width * chosen
        operator_ = _collective(name, times, size, found.seconds)
        return operator_._replace(error=found.error, measured=found.measured)

    def all_gather(
        self,
        name: str,
        times: int,
        size: Amount,
        gpus: int,
        stride: int = 1,
        *,
        scatters: bool = False,
    ) -> Operator:
        """Parts of a tensor of ``size`` bytes brought together on each of ``gpus``, or, where it
        ``scatters``, tensors of that size summed and the sum shared out (a reduce-scatter); every
        ``stride``-th GPU of the replica takes part."""
        gpu = self._d.gpu
        nodes = min(gpu.node.split(gpus * stride)[1], gpus)
        within = -(-gpus // nodes)
        beyond = all_gather_across(size, within, nodes, gpu.node.network)
        fit = self._gathers["reduce_scatter" if scatters else "all_gather"]
        if within == 1 or fit is None or within > fit.most:
            seconds: Amount = all_gather_time(size, within, gpu.link) if within > 1 else 0.0
            if fit is not None and within > fit.most:  # no sooner than over as many as were timed
                seconds = np.maximum(seconds, fit.timing(size, int(fit.most)).seconds)
            return _collective(name, times, size, seconds + beyond)
        found = fit.timing(size, within)
        operator = _collective(name, times, size, found.seconds + beyond)
        if nodes > 1:
            return operator
        return operator._replace(error=found.error, measured=found.measured)


def measured(operator: Operator, times: int, found: Timing) -> Operator:
    """``operator`` with the time that a profile gives it, ``times`` over.

    What neither arithmetic nor traffic explains is latency; where they alone would take longer than
    what was measured, they are scaled down to it.
    """
    seconds = found.seconds * times
    roof = np.maximum(found.compute, found.memory) * times
    scale = times * np.minimum(1.0, seconds / np.maximum(roof, 1e-30))
    return operator._replace(
        compute=found.compute * scale,
        memory=found.memory * scale,
        latency=np.maximum(seconds - roof, 0.0),
        error=found.error,
        measured=found.measured,
    )


def _collective(name: str, times: int, size: Amount, seconds: Amount) -> Operator:
    return Operator(name, 0.0, size * times, 0.0, 0.0, 0.0, seconds * times, False)
