"""Which form prices an operator of a profile, under which ceilings, and how much work is a shape?

The ceilings are those under which the simulator prices: the GPU's own, and no cache that a
benchmark left warm. FLOP, bytes, seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cost.kernels import all_reduce, decode_attention, gemm, prefill_attention, stream
from sim.cost.kernels.form import Ceilings, Floats, Form, Shape
from sim.hardware import GpuSpec
from sim.model import PRECISION_BYTES, precision_bytes
from sim.profile import KernelFit

MOVERS = (
    *("stream", "quantise", "sampling", "memory"),
    *("host_to_device", "device_to_host", "device_to_device", "file_to_device"),
)
"""Operators that move bytes and compute nothing worth counting."""

ARITHMETIC = ("gemm", "decode_attention", "prefill_attention")
"""Operators that compute."""


class Choice(NamedTuple):
    """A form, and the ceilings to give it."""

    form: Form
    ceilings: Ceilings

    def suits(self, fit: KernelFit) -> bool:
        """Whether ``fit`` has every parameter of the form, and no axis that it lacks."""
        known = {parameter.name for parameter in self.form.parameters}
        axes = fit.residual.axes if fit.residual is not None else ()
        one = {name: np.ones(1) for name in self.form.variables}
        return known <= set(fit.parameters) and set(axes) <= set(self.form.coordinates(one))


def choose(operator: str, precision: str, gpu: GpuSpec) -> Choice | None:
    """The form of ``operator`` in ``precision`` on ``gpu``; None if no form is known for it."""
    if operator == "gemm":
        if precision not in gemm.WIDTHS:
            return None
        arithmetic = "bf16" if precision.endswith("-weights") else precision
        peak = gpu.flops(arithmetic)
        return Choice(gemm.form(precision), Ceilings(peak, gpu.bandwidth, gpu.sms))
    if precision not in PRECISION_BYTES:
        return None
    if operator == "all_reduce":
        ceilings = Ceilings(1.0, gpu.link.bandwidth, 1)
        return Choice(all_reduce.form(gpu.link.kind), ceilings)
    if operator in MOVERS:
        return Choice(stream.form(operator), Ceilings(1.0, gpu.bandwidth, gpu.sms))
    ceilings = Ceilings(gpu.flops("bf16"), gpu.bandwidth, gpu.sms)
    if operator == "decode_attention":
        return Choice(decode_attention.form(precision), ceilings)
    if operator == "prefill_attention":
        return Choice(prefill_attention.form(precision), ceilings)
    return None


def work(operator: str, precision: str, shape: Shape) -> tuple[Floats, Floats]:
    """FLOP that have to be done and bytes that have to move, each at least once.

    ``operator`` and ``precision`` are such as ``choose`` knows.
    """
    if operator == "gemm":
        m, n, k = shape["m"], shape["n"], shape["k"]
        widths = gemm.WIDTHS[precision]
        moved = widths.weight * n * k + widths.input * m * k + widths.output * m * n
        return 2 * m * n * k, moved
    if operator == "decode_attention":
        kept = precision_bytes(precision)
        return decode_attention.flops(shape), decode_attention.read_bytes(shape, kept)
    if operator == "prefill_attention":
        kept = precision_bytes(precision)
        moved = prefill_attention.read_bytes(shape, kept)
        return prefill_attention.flops(shape), moved + prefill_attention.written_bytes(shape, kept)
    moved = all_reduce.moved_bytes(shape) if operator == "all_reduce" else shape["bytes"]
    return np.zeros_like(moved), moved
