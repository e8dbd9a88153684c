"""Chooses the form of an operator of a profile and its ceilings, and counts the work of a shape.

The ceilings are those that the simulator uses: the GPU's own, and no cache that a benchmark left
warm. FLOP, bytes, seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sim.cost.kernels import (
    all_gather,
    all_reduce,
    all_to_all,
    decode_attention,
    gemm,
    latent_attention,
    moe,
    narrow_latent,
    prefill_attention,
    serial,
    serial_experts,
    serial_latent,
    serial_windows,
    sparse_attention,
    stream,
    triton_attention,
    window_attention,
)
from sim.cost.kernels.form import Ceilings, Floats, Form, Shape
from sim.specs.gpu import GpuSpec
from sim.specs.precision import PRECISION_BYTES, precision_bytes
from sim.specs.profile import GATHERS, KernelFit

MOVERS = (
    *("norm", "rotary", "kv_write", "activation", "embedding", "quantise", "sampling", "stream"),
    *("memory", "memory_read", "file_to_device", "file_to_device_warm", "device_to_device"),
    *("host_to_device", "device_to_host", "host_to_device_pageable", "device_to_host_pageable"),
)
"""Operators that move bytes and compute nothing worth counting. ``stream`` is all kinds of
element-wise operators together, as other projects' tables and older ones of this project have them.
"""

ARITHMETIC = (
    *("gemm", "decode_attention", "prefill_attention", "mla_decode", "mla_prefill"),
    *("dsa_decode", "dsa_prefill", "window_decode", "window_prefill", "moe", "moe_ranks"),
    *("moe_older", "decode_attention_older"),
    *("decode_attention_triton", "prefill_attention_triton"),
)
"""Operators that compute."""


DECODES = ("decode_attention", "decode_attention_older")
"""Decode attention over whole contexts; the second in an older release of the framework, with one
query head per KV head, if both were timed."""

PREFILLS = ("prefill_attention", "prefill_attention_triton")
"""Prefill attention over whole contexts; the second by Triton, if it was timed besides."""

PROMPTS = (*PREFILLS, "mla_prefill", "window_prefill", "dsa_prefill")
"""Attention of prompts, whose queries, keys and values the kernels before have just written: they
may still be in the cache."""

ALL_REDUCES = ("all_reduce", "all_reduce_older", "all_reduce_fused")
"""Sums over GPUs; the second in an older release of the framework, if both were timed, the third by
the library whose kernel does the norm after them, too."""

OVER_GPUS = (*ALL_REDUCES, *GATHERS)
"""Collectives over the GPUs of a node."""

EXPERTS = ("moe", "moe_ranks", "moe_older")
"""The experts of a layer; the second where GPUs hold whole experts, if its kernel is another, the
third in an older release of the framework, if both were timed."""


class Choice(NamedTuple):
    """A form, and the ceilings to give it."""

    form: Form
    ceilings: Ceilings

    def suits(self, fit: KernelFit) -> bool:
        """Whether ``fit`` has every parameter of the form, and no axis that it lacks."""
        known = {each.name for each in self.form.parameters if each.before is None}
        axes = fit.residual.axes if fit.residual is not None else ()
        one = {name: np.ones(1) for name in self.form.variables}
        return known <= set(fit.parameters) and set(axes) <= set(self.form.coordinates(one))


FORMS: dict[tuple[str, str], Callable[[str], Form]] = {
    ("gemm", ""): gemm.form,
    **dict.fromkeys(((name, "") for name in DECODES), decode_attention.form),
    ("decode_attention_triton", ""): triton_attention.form,
    **dict.fromkeys(((name, "") for name in PREFILLS), prefill_attention.form),
    ("mla_decode", ""): latent_attention.decode,
    ("mla_decode", narrow_latent.NAME): narrow_latent.decode,
    ("mla_prefill", ""): latent_attention.prefill,
    ("dsa_decode", ""): sparse_attention.decode,
    ("dsa_prefill", ""): sparse_attention.prefill,
    ("window_decode", ""): window_attention.decode,
    ("window_prefill", ""): window_attention.prefill,
    **dict.fromkeys(((name, "") for name in EXPERTS), moe.form),
    ("moe", serial.NAME): serial_experts.form,
    ("mla_decode", serial.NAME): serial_latent.decode,
    ("mla_prefill", serial.NAME): serial_latent.prefill,
    ("window_decode", serial.NAME): serial_windows.decode,
    ("window_prefill", serial.NAME): serial_windows.prefill,
    ("gemm", serial.NAME): serial.product,
    ("decode_attention", serial.NAME): serial.decode,
    ("prefill_attention", serial.NAME): serial.prefill,
}
"""Makers of a form for a precision, by operator and the form's name in a fit."""


ATTENTION_WORK: dict[str, tuple[Callable[[Shape], Floats], Callable[[Shape, float], Floats]]] = {
    **dict.fromkeys(
        (*DECODES, "decode_attention_triton"),
        (decode_attention.flops, decode_attention.read_bytes),
    ),
    **dict.fromkeys(PREFILLS, (prefill_attention.flops, prefill_attention.moved_bytes)),
    "mla_decode": (latent_attention.flops, latent_attention.read_bytes),
    "mla_prefill": (prefill_attention.flops, prefill_attention.moved_bytes),
    "window_decode": (window_attention.decode_flops, window_attention.decode_bytes),
    "window_prefill": (prefill_attention.flops, prefill_attention.moved_bytes),
    "dsa_decode": (sparse_attention.decode_flops, sparse_attention.decode_bytes),
    "dsa_prefill": (sparse_attention.prefill_flops, sparse_attention.prefill_bytes),
}
"""FLOP of a shape, and its bytes where a number of the cache has that many."""


def choose(operator: str, precision: str, gpu: GpuSpec, name: str = "") -> Choice | None:
    """The form of ``operator`` in ``precision`` on ``gpu``; None if no form is known for it.

    ``name`` is the fit's own: "" is the usual one.
    """
    known = gemm.WIDTHS if operator == "gemm" else PRECISION_BYTES
    if precision not in (moe.FORMATS if operator in EXPERTS else known):
        return None
    if operator in (*OVER_GPUS, *all_to_all.OPERATORS):
        return Choice(_over_links(operator, gpu), Ceilings(1.0, gpu.link.bandwidth, 1))
    if operator in MOVERS:
        form = serial.mover(operator) if name == serial.NAME else stream.form(operator)
        return Choice(form, Ceilings(1.0, gpu.bandwidth, gpu.sms))
    make = FORMS.get((operator, name))
    if make is None:
        return None
    form, peak = make(precision), gpu.flops(_arithmetic(operator, precision))
    if gpu.profile is not None and gpu.profile.relative and operator not in PROMPTS:
        form = bounded(form, operator, precision, gpu)
    return Choice(form, Ceilings(peak, gpu.bandwidth, gpu.sms))


def _arithmetic(operator: str, precision: str) -> str:
    """The format of products whose rate is the ceiling of ``operator``: 16 bits for attention."""
    if operator in EXPERTS:
        return moe.FORMATS[precision].arithmetic
    return "bf16" if operator != "gemm" or precision.endswith("-weights") else precision


def bounded(form: Form, operator: str, precision: str, gpu: GpuSpec) -> Form:
    """``form``, fitted to another GPU, with the least that ``operator`` takes on ``gpu``: its bytes
    at the peak bandwidth, or its FLOP at the peak rate. What the formula leaves over on the GPU
    that was timed would take some shapes below that. Attention to a cache of 8 bits may multiply in
    8 bits."""
    narrow = operator in ATTENTION_WORK and precision_bytes(precision) < 2
    peak = gpu.flops(precision if narrow else _arithmetic(operator, precision))
    bandwidth = gpu.bandwidth

    def least(shape: Shape) -> Floats:
        flops, moved = work(operator, precision, shape)
        return np.maximum(flops / peak, moved / bandwidth)

    return replace(form, least=least)


def _over_links(operator: str, gpu: GpuSpec) -> Form:
    """The form of a collective or an exchange."""
    if operator in ALL_REDUCES:
        return all_reduce.form(gpu.link.kind)
    return all_gather.form(operator) if operator in GATHERS else all_to_all.form(operator)


def work(operator: str, precision: str, shape: Shape) -> tuple[Floats, Floats]:
    """FLOP that have to be done and bytes that have to move, each at least once.

    ``operator`` and ``precision`` are such as ``choose`` knows.
    """
    if operator == "gemm":
        m, n, k = shape["m"], shape["n"], shape["k"]
        widths = gemm.WIDTHS[precision]
        moved = widths.weight * n * k + widths.input * m * k + widths.output * m * n
        return 2 * m * n * k, moved
    if operator in EXPERTS:
        return moe.flops(shape), moe.moved_bytes(shape, moe.FORMATS[precision])
    if operator in ATTENTION_WORK:
        flops, moved_bytes = ATTENTION_WORK[operator]
        return flops(shape), moved_bytes(shape, precision_bytes(precision))
    if operator in all_to_all.OPERATORS:
        link, network = all_to_all.moved_bytes(all_to_all.kind_of(operator), shape)
        return np.zeros_like(link), link + network
    moved = shape["bytes"]
    if operator in OVER_GPUS:
        of = all_gather if operator in GATHERS else all_reduce
        moved = of.moved_bytes(shape)
    return np.zeros_like(moved), moved
