"""Lists every operator of one forward pass on one GPU with its FLOPs, bytes and time.

An operator is a roofline: the longer of arithmetic and memory traffic, plus a fixed latency, plus
what it waits for the links. All numbers are for the whole pass: an operator of each layer counts
``num_layers`` times. ``m`` is the number of tokens in the pass, prompts and decodes together. FLOP
and bytes are of one GPU; a multiply-add is two FLOP. Activations move at 16 bits, or at 32 where
the deployment computes in fp32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.communication import all_gather_time, all_reduce_time
from sim.cost.deployment import Deployment
from sim.cost.measured import Timing, all_reduce_of, both, gemm_of, mover_of
from sim.cost.trust import PROJECTION_ERROR, projection_error
from sim.model import precision_bytes

Amount = float | NDArray[np.float64]
"""One pass, or an array of them: every formula works on both."""

LOGIT_BYTES = 4.0

WEIGHT_ONLY_BANDWIDTH = {"int8": 0.60, "int4": 0.50}
"""Share of the peak bandwidth that weight-only kernels reach (batch 1 on A100, published results of
gpt-fast); full-width weights reach the GPU's own ``efficiency.bandwidth``, which is more."""

QUANTISE_BANDWIDTH = 0.25
"""Share of the peak bandwidth that dynamic quantisation of activations reaches: what vLLM's fp8
GEMM timings, which contain it, leave over the GEMM itself (fits on aiconfigurator-core tables)."""


class Operator(NamedTuple):
    """One operator of a forward pass, or of an array of passes. Times in seconds.

    ``per_batch`` says that its bytes are mostly weights, read once however many sequences share the
    pass: batching amortises it. Other operators cost per token or per sequence. ``error`` is the
    relative error to expect of ``seconds``, ``measured`` 1 where a profile covers the shape.
    """

    name: str
    flops: Amount
    bytes: Amount
    compute: Amount
    memory: Amount
    latency: Amount
    communication: Amount
    per_batch: bool
    error: Amount = PROJECTION_ERROR
    measured: Amount = 0.0

    @property
    def roof(self) -> Amount:
        """Arithmetic and traffic overlap: the longer of the two."""
        return np.maximum(self.compute, self.memory)

    @property
    def seconds(self) -> Amount:
        """Duration: the roof, and what does not overlap with it."""
        return self.roof + self.latency + self.communication

    def slowed(self, factor: float) -> Operator:
        """The same, taking ``factor`` times as long."""
        if factor == 1.0:
            return self
        return self._replace(
            compute=self.compute * factor,
            memory=self.memory * factor,
            latency=self.latency * factor,
            communication=self.communication * factor,
        )

    @property
    def bound(self) -> str:
        """What a single pass spends most of its time on."""
        parts = {
            "compute": self.compute,
            "memory": self.memory,
            "latency": self.latency,
            "communication": self.communication,
        }
        return max(parts, key=lambda name: float(parts[name]))


class Operators:
    """The operators of one deployment, by the size of the pass: a number, or an array of them."""

    def __init__(self, deployment: Deployment) -> None:
        self._d = deployment
        gpu, efficiency = deployment.gpu, deployment.gpu.efficiency
        self._latency = efficiency.operator_latency
        self._bandwidth = gpu.bandwidth * efficiency.bandwidth
        self._quantised = precision_bytes(deployment.arithmetic) < 2
        weight_only = precision_bytes(deployment.weights) < 2 and not self._quantised
        streamed = efficiency.bandwidth
        if weight_only and deployment.weights in WEIGHT_ONLY_BANDWIDTH:
            streamed = min(streamed, WEIGHT_ONLY_BANDWIDTH[deployment.weights])
        self._weight_bandwidth = gpu.bandwidth * streamed
        self._layer_gemm = gemm_of(gpu, deployment.weights, deployment.arithmetic)
        self._moved = deployment.activation_bytes
        head = deployment.weight_precision_of_vocabulary, deployment.unquantised
        self._head_gemm = gemm_of(gpu, *head)
        self._all_reduce = all_reduce_of(gpu)
        self._movers = {
            name: mover_of(gpu, name, "fp32" if name == "sampling" else deployment.unquantised)
            for name in ("norm", "rotary", "kv_write", "activation", "embedding", "sampling")
        }
        self._quantises = self._quantised and not (self._layer_gemm and self._layer_gemm.converts)

    def per_token(self, m: Amount) -> list[Operator]:
        """What depends on the number of tokens in the pass and on nothing else."""
        d, model = self._d, self._d.model
        h, q, kv, i = model.hidden_size, d.query_size, d.kv_size, d.intermediate_size
        layers = model.num_layers
        operators = [
            self._moving("embedding", "embedding", 1, m * h * 2 * self._moved),
            # each of the two norms adds the residual: two reads, two writes
            self._moving(
                "norms", "norm", (1 if model.parallel_mlp else 2) * layers, 4 * m * h * self._moved
            ),
            self._projection("qkv projection", m, h, q + 2 * kv),
            self._rotary(m),
            self._projection("output projection", m, q, h),
            self._projection("gate and up projection", m, h, (model.mlp_matrices - 1) * i),
            self._moving(
                "activation", "activation", layers, model.mlp_matrices * m * i * self._moved
            ),
            self._projection("down projection", m, i, h),
        ]
        if self._quantises:
            operators.append(self._quantise(m, 2 * h + q + i))
        if d.tensor_parallel > 1:
            operators.append(self._sum(2 * layers + 1, m * h * self._moved))
        return self._slowed(operators)

    def _slowed(self, operators: list[Operator]) -> list[Operator]:
        factor = self._d.kernel_time
        return [operator.slowed(factor) for operator in operators]

    def _sum(self, times: int, size: Amount) -> Operator:
        """All-reduces of ``size`` bytes."""
        d = self._d
        ring = d.engine.per_ring_gpu * d.tensor_parallel
        if self._all_reduce is None:
            seconds = all_reduce_time(size, d.tensor_parallel, d.gpu.link)
            return _collective("all-reduce", times, size, seconds + ring)
        found = self._all_reduce.timing(size, d.tensor_parallel)
        operator = _collective("all-reduce", times, size, found.seconds + ring)
        return operator._replace(error=found.error, measured=found.measured)

    def per_output(self, rows: Amount) -> list[Operator]:
        """What depends on the number of positions that sample a token."""
        d, model = self._d, self._d.model
        h, vocabulary = model.hidden_size, model.vocab_size
        share = vocabulary / d.tensor_parallel
        precisions = d.weight_precision_of_vocabulary, d.unquantised
        head = self._gemm("LM head", 1, rows, h, share, *precisions, self._bandwidth)
        if self._head_gemm is not None:
            head = measured(head, 1, self._head_gemm.timing(rows, share, h))
        # softmax and choice read and write the logits once more in 32 bits
        sampling = self._moving("sampling", "sampling", 1, rows * vocabulary * 2 * LOGIT_BYTES)
        if d.tensor_parallel == 1:
            return self._slowed([head, sampling])
        size = rows * vocabulary * self._moved
        seconds = all_gather_time(size, d.tensor_parallel, d.gpu.link)
        gather = _collective("logits all-gather", 1, size, seconds)
        return self._slowed([head, gather, sampling])

    def _projection(self, name: str, m: Amount, k: float, n: float) -> Operator:
        d = self._d
        layers = d.model.num_layers
        product = self._gemm(name, layers, m, k, n, d.weights, d.arithmetic, self._weight_bandwidth)
        if self._layer_gemm is None:
            return product
        return measured(product, layers, self._layer_gemm.timing(m, n, k))

    def _gemm(
        self,
        name: str,
        times: int,
        m: Amount,
        k: float,
        n: float,
        weights: str,
        arithmetic: str,
        bandwidth: float,
    ) -> Operator:
        """(m x k) by (k x n): weights read once, inputs read, outputs written."""
        gpu = self._d.gpu
        flops = 2.0 * m * k * n * times
        moved = m * k * precision_bytes(arithmetic) + m * n * self._moved
        traffic = (k * n * precision_bytes(weights) + moved) * times
        return Operator(
            name,
            flops,
            traffic,
            flops / (gpu.flops(arithmetic) * gpu.efficiency.compute),
            traffic / bandwidth,
            self._latency * times,
            0.0,
            True,
            projection_error(arithmetic),
        )

    def _moving(self, name: str, kernel: str, times: int, traffic: Amount) -> Operator:
        """The same, ``times`` over, as the profile has measured ``kernel``, if it has."""
        operator, mover = self._elementwise(name, times, traffic), self._movers[kernel]
        return operator if mover is None else measured(operator, times, mover.timing(traffic))

    def _rotary(self, m: Amount) -> Operator:
        """Queries and keys turned, keys and values written to the cache: one kernel by the data
        sheet, two in a profile, the second of which reads what the first has written."""
        d = self._d
        layers = d.model.num_layers
        operator = self._elementwise("rotary, KV write", layers, self._rotary_bytes(m))
        turn, write = self._movers["rotary"], self._movers["kv_write"]
        if turn is None or write is None:
            return operator
        kept = precision_bytes(d.kv_cache)
        turned = turn.timing(2 * m * (d.query_size + d.kv_size) * self._moved)
        written = write.timing(2 * m * d.kv_size * (self._moved + kept))
        return measured(operator, layers, both(turned, written))

    def _elementwise(self, name: str, times: int, traffic: Amount) -> Operator:
        """An operator that only moves data: ``traffic`` bytes each time."""
        memory = traffic * times / self._bandwidth
        latency = 0.0 if self._d.engine.fused else self._latency * times
        return Operator(name, 0.0, traffic * times, 0.0, memory, latency, 0.0, False)

    def _quantise(self, m: Amount, widths: float) -> Operator:
        """The inputs of a layer's four projections, 16 bits to 8 (a kernel for each)."""
        layers = self._d.model.num_layers
        traffic = m * widths * (self._moved + 1) * layers
        memory = traffic / (self._d.gpu.bandwidth * QUANTISE_BANDWIDTH)
        latency = 4 * layers * self._latency
        return Operator("quantise activations", 0.0, traffic, 0.0, memory, latency, 0.0, False)

    def _rotary_bytes(self, m: Amount) -> Amount:
        """Queries, keys and values read; queries written; keys and values written to the cache."""
        d = self._d
        read = (d.query_size + 2 * d.kv_size) * self._moved
        written = d.query_size * self._moved + 2 * d.kv_size * precision_bytes(d.kv_cache)
        return m * (read + written)


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
