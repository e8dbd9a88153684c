"""Predicts one layer's operators in a deployment from the kernels of a profile. Seconds.

Each class stands for one fitted operator of the GPU's profile; where the profile has none, the
operators fall back to the data sheet. Ranges are not enforced: a time outside is given, marked as
not measured, and trusted no more than one from a data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels import all_to_all, decode_attention, gemm, serial
from sim.cost.kernels.form import Ceilings, Shape, inside, interpolate
from sim.cost.kernels.lookup import FittedKernel, chosen, kernel_of
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.trust import ATTENTION_ERROR, PROJECTION_ERROR, projection_error
from sim.specs.gpu import GpuSpec
from sim.specs.precision import INT4, precision_bytes
from sim.specs.profile import KernelFit

Amount = float | NDArray[np.float64]

HEADS = ("q_heads", "kv_heads", "head_dim")


class Timing(NamedTuple):
    """``seconds``, of which arithmetic and memory traffic would each take so much alone; the
    relative ``error`` to expect, and whether the shape lies in what was ``measured``."""

    seconds: Amount
    compute: Amount
    memory: Amount
    error: Amount
    measured: Amount


def both(one: Timing, other: Timing) -> Timing:
    """Two kernels one after the other: errors weigh by their time, and it is measured where both
    are."""
    seconds = one.seconds + other.seconds
    return Timing(
        seconds,
        one.compute + other.compute,
        one.memory + other.memory,
        (one.error * one.seconds + other.error * other.seconds) / seconds,
        np.minimum(one.measured, other.measured),
    )


EVERY = 512
TILE = 64
"""Products of up to ``EVERY`` rows are timed one by one, longer ones at the first and last row of
each ``TILE``, the smallest that kernels use, with a straight line between."""

SURE = 4096
"""Rows up to which a product is timed at once, since to time them later would take all anew."""


class _Table(NamedTuple):
    """The timing of products with one matrix, by ``rows``, ascending."""

    rows: NDArray[np.float64]
    timing: Timing


class MeasuredGemm:
    """Products in one precision. ``converts``: their inputs' quantisation is part of the fit."""

    def __init__(
        self, fit: KernelFit, precision: str, gpu: GpuSpec, floor: float | None = None
    ) -> None:
        """With a ``floor`` (s) inputs come in the width of the arithmetic: they are not converted,
        and a product begins within that time at most."""
        if floor is not None:
            given = fit.parameters
            now = {"convert": 0.0, "row": 0.0, "latency": min(given["latency"], floor)}
            fit = replace(fit, parameters={**given, **now})
        self._fit, self._precision = fit, precision
        self._form, self._ceilings = chosen("gemm", precision, gpu, fit)
        self._unmeasured = projection_error(arithmetic_of(precision))
        self._tables: dict[tuple[float, float], _Table] = {}
        self.converts = any(fit.parameters.get(name) for name in ("convert", "row"))

    def timing(self, m: Amount, n: float, k: float) -> Timing:
        """A product of ``m`` rows by ``n`` columns over ``k``; one of no rows counts as one row.

        Each matrix is timed once, for all numbers of rows there may be, and then looked up.
        """
        most = float(np.max(m, initial=1.0))
        table = self._tables.get((n, k))
        if table is None or table.rows[-1] < most:
            table = self._tables[n, k] = self._tabulated(int(most), n, k)
        return Timing(*(np.interp(m, table.rows, column) for column in table.timing))

    def _tabulated(self, most: int, n: float, k: float) -> _Table:
        last = max(SURE, 1 << most.bit_length())
        rows = np.arange(1.0, min(last, EVERY) + 1)
        if last > EVERY:
            edges = np.arange(EVERY, last, TILE)
            rows = np.append(rows, np.column_stack([edges + 1, edges + TILE]))
        shape = shaped(m=rows, n=n, k=k)
        parts = self._parts(shape)
        seconds = np.maximum(parts.total * self._corrected(shape), self._form.least(shape))
        error, known = trusted(self._fit, shape, self._unmeasured)
        return _Table(rows, Timing(seconds, parts.compute, parts.memory, error, known))

    def _corrected(self, shape: Shape) -> NDArray[np.float64]:
        """The factor by which products with one matrix differ from the formula: of the table of
        that matrix, or else of the table of all."""
        known = self._fit.known
        own = None if known is None else known.find({n: float(shape[n]) for n in known.names})
        if own is None:
            return self._form.correction(self._fit, shape)
        return np.asarray(np.exp(interpolate(own, self._form.coordinates(shape))))

    def _parts(self, shape: Shape) -> gemm.Parts:
        p = self._fit.parameters
        if self._fit.form == serial.NAME:
            return serial.product_parts(self._precision, p, shape, self._ceilings)
        return gemm.parts(p, shape, self._ceilings, gemm.WIDTHS[self._precision])


class MeasuredDecode:
    """Decode attention over a KV cache in one precision, equal contexts. With a ``window`` the
    kernel looks back no further, and contexts are what a sequence sees."""

    def __init__(
        self,
        kernel: FittedKernel,
        heads: tuple[int, int, int],
        window: int | None = None,
    ) -> None:
        _, self._precision, self._fit, self._form, self._ceilings = kernel
        self._heads = dict(zip(HEADS, heads, strict=True))
        self._more = {"skew": 1.0} if window is None else {"window": float(window)}

    def timing(self, batch: Amount, context: Amount) -> Timing:
        """``batch`` sequences of ``context`` tokens each, the new one included."""
        shape = self._shape(batch, context)
        seconds = self._form.predict(self._fit, shape, self._ceilings)
        return self.parts(batch, context)._replace(seconds=seconds)

    def parts(self, batch: Amount, context: Amount) -> Timing:
        """The timing with its seconds left at 0: arithmetic at the full rate of the
        GPU, traffic at the bandwidth that long reads see."""
        shape = self._shape(batch, context)
        compute = decode_attention.flops(shape) / self._ceilings.peak
        rate = self._ceilings.bandwidth * self._fit.parameters["share"]
        read = decode_attention.read_bytes(shape, precision_bytes(self._precision))
        return Timing(0.0, compute, read / rate, *trusted(self._fit, shape, ATTENTION_ERROR))

    def _shape(self, batch: Amount, context: Amount) -> dict[str, NDArray[np.float64]]:
        return shaped(batch=batch, context=context, **self._more, **self._heads)


class MeasuredMover:
    """An operator that only moves data, in one precision."""

    def __init__(self, kernel: FittedKernel) -> None:
        _, _, self._fit, self._form, self._ceilings = kernel

    def timing(self, moved: Amount) -> Timing:
        """``moved`` bytes read and written in all; none count as one."""
        shape = shaped(bytes=np.maximum(moved, 1.0))
        seconds = self._form.predict(self._fit, shape, self._ceilings)
        share = self._fit.parameters["share"]
        memory = shape["bytes"] / (self._ceilings.bandwidth * share)
        trust = trusted(self._fit, shape, PROJECTION_ERROR)
        return Timing(seconds, np.zeros_like(memory), memory, *trust)


class MeasuredCollective:
    """A collective over the GPUs of a node, of ``choice.OVER_GPUS``. ``most`` is the number of GPUs
    up to which its fit is to be used."""

    def __init__(self, kernel: FittedKernel) -> None:
        _, _, self._fit, self._form, self._ceilings = kernel
        self.most = self._fit.parameters.get("most", math.inf)

    def timing(self, size: Amount, gpus: int) -> Timing:
        """A tensor of ``size`` bytes, whole, over that many ``gpus``."""
        shape = shaped(bytes=np.maximum(size, 2.0), gpus=gpus)
        seconds = self._form.predict(self._fit, shape, self._ceilings)
        return Timing(seconds, 0.0, 0.0, *trusted(self._fit, shape, PROJECTION_ERROR))


class Exchange:
    """Tokens brought to the GPUs of their experts, and back, by a backend of DeepEP's: one of
    ``all_to_all.OPERATORS``, by the profile or else by the usual parameters."""

    def __init__(self, operator: str, gpu: GpuSpec) -> None:
        self._form = all_to_all.form(operator)
        self._fit = None if gpu.profile is None else gpu.profile.find(operator, "bf16")
        self._parameters = all_to_all.USUAL[operator]
        self._ceilings = Ceilings(1.0, gpu.link.bandwidth, 1)

    def timing(self, **shape: Amount) -> Timing:
        """The timing by the variables of the form."""
        found = shaped(**shape)
        if self._fit is None:
            seconds = self._form.seconds(self._parameters, found, self._ceilings)
            return Timing(seconds, 0.0, 0.0, PROJECTION_ERROR, 0.0)
        seconds = self._form.predict(self._fit, found, self._ceilings)
        return Timing(seconds, 0.0, 0.0, *trusted(self._fit, found, PROJECTION_ERROR))


ALIKE: Mapping[str, str] = {
    "fp8-block": "fp8",
    **{f"{name}-weights": "int4-weights" for name in INT4 if name != "int4"},
}
"""Products that stand in for others which a profile lacks: the same arithmetic and, scales apart,
the same bytes."""


def gemm_of(
    gpu: GpuSpec, weights: str, arithmetic: str, *, static: bool = False, fused: bool = False
) -> MeasuredGemm | None:
    """Products with ``weights`` in ``arithmetic``, if the profile has them.

    ``static``: their inputs are quantised before, by the kernel that writes them. Conversion, and
    what it adds to the time in which a product begins, then leave the fit: that time is the one of
    the same library's products at 16 bits. ``fused``: the same of formats whose products are of
    another library, so that a launch leaves the fit with the conversion and no more.
    """
    same = weights == arithmetic or weights in ("bf16", "fp16", "fp32")
    precision = arithmetic if same else f"{weights}-weights"
    if weights in ALIKE and arithmetic == ALIKE[weights]:
        precision = weights
    if precision.endswith("-weights") and precision_bytes(arithmetic) < 2:
        return None  # what was timed widens weights to 16 bits
    for name in (precision, ALIKE.get(precision)):
        kernel = None if name is None else kernel_of(gpu, "gemm", name)
        if kernel is not None:
            floor = _floor(gpu, kernel.fit) if static else None
            if fused and "convert" in kernel.fit.parameters:
                launch = gpu.efficiency.operator_latency
                floor = max(0.0, kernel.fit.parameters["latency"] - launch)
            return _products(Identity(kernel.fit), kernel.precision, Identity(gpu), floor)
    return None


T = TypeVar("T")


class Identity(Generic[T]):
    """A key that equals those of the very same object: to compare two GPUs number by number takes
    longer than what is looked up."""

    def __init__(self, it: T) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.it is self.it

    def __hash__(self) -> int:
        return id(self.it)


@lru_cache(maxsize=16)
def _products(
    fit: Identity[KernelFit], precision: str, gpu: Identity[GpuSpec], floor: float | None
) -> MeasuredGemm:
    """Products by one fit, the same ones for every cost model, since each matrix is timed at
    thousands of sizes: that takes as long as a run of some hundred requests."""
    return MeasuredGemm(fit.it, precision, gpu.it, floor)


def _floor(gpu: GpuSpec, fit: KernelFit) -> float | None:
    """The time in which products at 16 bits begin; None if ``fit`` converts nothing or the profile
    does not say."""
    wide = kernel_of(gpu, "gemm", "bf16")
    if wide is None or "convert" not in fit.parameters:
        return None
    return wide.fit.parameters.get("latency")


def decode_of(
    gpu: GpuSpec,
    precision: str,
    heads: tuple[int, int, int],
    *,
    variant: str = "",
    window: int | None = None,
) -> MeasuredDecode | None:
    """Decode attention over a cache in ``precision``, if the profile has it; ``heads`` are query
    heads, KV heads and head size on one GPU, ``window`` as of ``MeasuredDecode``.
    An older release was never timed with grouped heads, nor beyond its ranges: there, the usual
    kernel stands in."""

    def suits(fit: KernelFit) -> bool:
        alone = heads[0] == heads[1]
        return alone and bool(inside(fit, shaped(**dict(zip(HEADS, heads, strict=True)))))

    kernel = kernel_of(gpu, "decode_attention", precision, variant, suits)
    return None if kernel is None else MeasuredDecode(kernel, heads, window)


def mover_of(gpu: GpuSpec, operator: str, precision: str) -> MeasuredMover | None:
    """An operator that only moves data, if the profile has it."""
    kernel = kernel_of(gpu, operator, precision)
    return None if kernel is None else MeasuredMover(kernel)


def collective_of(gpu: GpuSpec, operator: str, variant: str = "") -> MeasuredCollective | None:
    """One of ``COLLECTIVES``, if the profile has it."""
    kernel = kernel_of(gpu, operator, "bf16", variant)
    return None if kernel is None else MeasuredCollective(kernel)


def shaped(**values: Amount) -> dict[str, NDArray[np.float64]]:
    """``values`` as the columns of a shape."""
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}


class PromptTrust(NamedTuple):
    """How far prefill attention was measured: at these heads at all (``known``, 0 or 1), and on
    ``top`` of a cached context; the relative ``error`` to expect there."""

    known: float
    top: bool
    error: float

    def of(self, fresh: Amount) -> tuple[Amount, Amount]:
        """Relative error, and the share measured, where ``fresh`` of the time goes to prompts
        without a context."""
        measured = self.known * (1.0 if self.top else fresh)
        return measured * self.error + (1 - measured) * max(ATTENTION_ERROR, self.error), measured


def prompts_of(
    gpu: GpuSpec, precision: str, heads: tuple[int, int, int], variant: str = ""
) -> tuple[Prompts | SerialPrompts, PromptTrust] | None:
    """Prefill attention with a cache in ``precision``, if the profile has it."""
    kernel = kernel_of(gpu, "prefill_attention", precision, variant)
    if kernel is None:
        return None
    kind = SerialPrompts if kernel.fit.form == serial.NAME else Prompts
    trust = prompt_trust(kernel.fit, **dict(zip(HEADS, heads, strict=True)))
    return kind(kernel.fit, kernel.ceilings, precision, *heads), trust


def prompt_trust(fit: KernelFit, **shape: Amount) -> PromptTrust:
    """How far prompts of that ``shape`` were measured."""
    top = "context" in fit.ranges and fit.ranges["context"][1] > 0
    return PromptTrust(float(inside(fit, shaped(**shape))), top, fit.error)


def arithmetic_of(precision: str) -> str:
    """In which precision a product is multiplied: weight-only formats are widened first."""
    return "bf16" if precision.endswith("-weights") else precision


def trusted(fit: KernelFit, shape: Shape, unmeasured: float) -> tuple[Amount, Amount]:
    """Relative error, and whether it was measured: the hold-out error inside the ranges, at least
    the data sheet's outside."""
    within = inside(fit, shape)
    outside = max(unmeasured, fit.error)
    return np.where(within, fit.error, outside), within.astype(np.float64)
