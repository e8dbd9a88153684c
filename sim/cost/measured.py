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
from sim.cost.kernels.choice import Choice, choose
from sim.cost.kernels.form import Ceilings, Shape, inside, interpolate
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.trust import ATTENTION_ERROR, PROJECTION_ERROR, projection_error
from sim.errors import UsageError
from sim.specs.gpu import GpuSpec
from sim.specs.precision import INT4, precision_bytes
from sim.specs.profile import OLDER, TRITON, KernelFit, Profile

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
        self._form, self._ceilings = _chosen("gemm", precision, gpu, fit)
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
        seconds = parts.total * self._corrected(shape)
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
    """Decode attention over a KV cache in one precision, equal contexts.

    ``rereads`` of the KV reads that a kernel for groups saves are not saved: 0 is such a kernel, 1
    one that takes as long as if each query head had keys and values of its own. With a ``window``
    the fit is that of kernels that look back no further, and contexts are what a sequence sees.
    ``triton``: it is that of SGLang's Triton kernel.
    """

    def __init__(
        self,
        fit: KernelFit,
        precision: str,
        gpu: GpuSpec,
        heads: tuple[int, int, int],
        rereads: float = 0.0,
        window: int | None = None,
        *,
        triton: bool = False,
    ) -> None:
        self._fit, self._precision, self._rereads = fit, precision, rereads
        operator = "decode_attention" if window is None else "window_decode"
        operator += TRITON if triton else ""
        self._form, self._ceilings = _chosen(operator, precision, gpu, fit)
        self._heads = dict(zip(HEADS, heads, strict=True))
        self._more = {"skew": 1.0} if window is None else {"window": float(window)}

    def timing(self, batch: Amount, context: Amount) -> Timing:
        """``batch`` sequences of ``context`` tokens each, the new one included."""
        shape = self._shape(batch, context)
        seconds = self._form.predict(self._fit, shape, self._ceilings)
        if self._rereads:
            apart = shape | {"kv_heads": shape["q_heads"]}
            more = self._form.predict(self._fit, apart, self._ceilings) - seconds
            seconds = seconds + self._rereads * np.maximum(more, 0.0)
        return self.parts(batch, context)._replace(seconds=seconds)

    def parts(self, batch: Amount, context: Amount) -> Timing:
        """The same except for the seconds, which are left at 0: arithmetic at the full rate of the
        GPU, traffic at the bandwidth that long reads see."""
        shape = self._shape(batch, context)
        compute = decode_attention.flops(shape) / self._ceilings.peak
        rate = self._ceilings.bandwidth * self._fit.parameters["share"]
        read = decode_attention.read_bytes(shape, precision_bytes(self._precision))
        group = self._heads["q_heads"] / self._heads["kv_heads"]
        memory = read * (1 + self._rereads * (group - 1)) / rate
        return Timing(0.0, compute, memory, *trusted(self._fit, shape, ATTENTION_ERROR))

    def _shape(self, batch: Amount, context: Amount) -> dict[str, NDArray[np.float64]]:
        return shaped(batch=batch, context=context, **self._more, **self._heads)


class MeasuredMover:
    """An operator that only moves data, in one precision."""

    def __init__(self, fit: KernelFit, operator: str, precision: str, gpu: GpuSpec) -> None:
        self._fit = fit
        self._form, self._ceilings = _chosen(operator, precision, gpu, fit)

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

    def __init__(self, fit: KernelFit, operator: str, gpu: GpuSpec) -> None:
        self._fit, self.most = fit, fit.parameters.get("most", math.inf)
        self._form, self._ceilings = _chosen(operator, "bf16", gpu, fit)

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
        self._fit = _fit(gpu.profile, operator, "bf16")
        self._parameters = all_to_all.USUAL[operator]
        self._ceilings = Ceilings(1.0, gpu.link.bandwidth, 1)

    def timing(self, **shape: Amount) -> Timing:
        """Of the variables of the form."""
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
    gpu: GpuSpec, weights: str, arithmetic: str, *, static: bool = False
) -> MeasuredGemm | None:
    """Products with ``weights`` in ``arithmetic``, if the profile has them.

    ``static``: their inputs are quantised before, by the kernel that writes them. Conversion, and
    what it adds to the time in which a product begins, then leave the fit: that time is the one of
    the same library's products at 16 bits.
    """
    same = weights == arithmetic or weights in ("bf16", "fp16", "fp32")
    precision = arithmetic if same else f"{weights}-weights"
    if weights in ALIKE and arithmetic == ALIKE[weights]:
        precision = weights
    for name in (precision, ALIKE.get(precision)):
        fit = None if name is None else _fit(gpu.profile, "gemm", name)
        if fit is not None and name is not None:
            floor = _floor(gpu, fit) if static else None
            return _products(Itself(fit), name, Itself(gpu), floor)
    return None


T = TypeVar("T")


class Itself(Generic[T]):
    """A key that equals those of the very same object: to compare two GPUs number by number takes
    longer than what is looked up."""

    def __init__(self, it: T) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.it is self.it

    def __hash__(self) -> int:
        return id(self.it)


@lru_cache(maxsize=16)
def _products(
    fit: Itself[KernelFit], precision: str, gpu: Itself[GpuSpec], floor: float | None
) -> MeasuredGemm:
    """Products by one fit, the same ones for every cost model, since each matrix is timed at
    thousands of sizes: that takes as long as a run of some hundred requests."""
    return MeasuredGemm(fit.it, precision, gpu.it, floor)


def _floor(gpu: GpuSpec, fit: KernelFit) -> float | None:
    """The time in which products at 16 bits begin; None if ``fit`` converts nothing or the profile
    does not say."""
    wide = _fit(gpu.profile, "gemm", "bf16")
    if wide is None or "convert" not in fit.parameters or "latency" not in wide.parameters:
        return None
    return wide.parameters["latency"]


def decode_of(
    gpu: GpuSpec,
    precision: str,
    heads: tuple[int, int, int],
    rereads: float = 0.0,
    *,
    older: bool = False,
) -> MeasuredDecode | None:
    """Decode attention over a cache in ``precision``, if the profile has it; ``heads`` are query
    heads, KV heads and head size on one GPU, ``rereads`` as of ``MeasuredDecode``. ``older``: of an
    older release, if it has that for such heads; none is known of grouped ones."""
    fit = _fit(gpu.profile, "decode_attention" + OLDER, precision) if older else None
    alone = heads[0] == heads[1]
    if fit and not (alone and inside(fit, shaped(**dict(zip(HEADS, heads, strict=True))))):
        fit = None
    fit = fit or _fit(gpu.profile, "decode_attention", precision)
    return None if fit is None else MeasuredDecode(fit, precision, gpu, heads, rereads)


def triton_decode_of(
    gpu: GpuSpec, precision: str, heads: tuple[int, int, int]
) -> MeasuredDecode | None:
    """The same by SGLang's Triton kernel, if the profile has it."""
    fit = _fit(gpu.profile, "decode_attention" + TRITON, precision)
    return None if fit is None else MeasuredDecode(fit, precision, gpu, heads, triton=True)


def mover_of(gpu: GpuSpec, operator: str, precision: str) -> MeasuredMover | None:
    """An operator that only moves data, if the profile has it."""
    fit = _fit(gpu.profile, operator, precision)
    return None if fit is None else MeasuredMover(fit, operator, precision, gpu)


def all_reduce_of(gpu: GpuSpec, *, older: bool = False) -> MeasuredCollective | None:
    """Sums over GPUs, if the profile has them; ``older``: of an older release, if it has those."""
    fit = _fit(gpu.profile, "all_reduce" + OLDER, "bf16") if older else None
    fit = fit or _fit(gpu.profile, "all_reduce", "bf16")
    return None if fit is None else MeasuredCollective(fit, "all_reduce", gpu)


def gather_of(gpu: GpuSpec, operator: str) -> MeasuredCollective | None:
    """One of ``GATHERS``, if the profile has it."""
    fit = _fit(gpu.profile, operator, "bf16")
    return None if fit is None else MeasuredCollective(fit, operator, gpu)


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
    gpu: GpuSpec, precision: str, heads: tuple[int, int, int], *, triton: bool = False
) -> tuple[Prompts | SerialPrompts, PromptTrust] | None:
    """Prefill attention with a cache in ``precision``, if the profile has it; by ``triton``, if it
    has that besides."""
    operator = "prefill_attention" + (TRITON if triton else "")
    fit = _fit(gpu.profile, operator, precision)
    if fit is None:
        return None
    _, ceilings = _chosen(operator, precision, gpu, fit)
    kind = SerialPrompts if fit.form == serial.NAME else Prompts
    shape = shaped(**dict(zip(HEADS, heads, strict=True)))
    top = "context" in fit.ranges and fit.ranges["context"][1] > 0
    trust = PromptTrust(float(inside(fit, shape)), top, fit.error)
    return kind(fit, ceilings, precision, *heads), trust


def arithmetic_of(precision: str) -> str:
    """In which precision a product is multiplied: weight-only formats are widened first."""
    return "bf16" if precision.endswith("-weights") else precision


def _chosen(operator: str, precision: str, gpu: GpuSpec, fit: KernelFit) -> Choice:
    found = choose(operator, precision, gpu, fit.form)
    if found is None or not found.suits(fit):
        raise UsageError(
            f"{gpu.name}: the profile's {operator} in {precision} does not have the parameters of "
            f"its form ({fit.form or 'the usual one'}); make the profile anew"
        )
    return found


def fitted(operator: str, precision: str, gpu: GpuSpec) -> tuple[KernelFit, Ceilings] | None:
    """The profile's fit of ``operator`` and the ceilings of its form, if it has one."""
    fit = _fit(gpu.profile, operator, precision)
    return None if fit is None else (fit, _chosen(operator, precision, gpu, fit).ceilings)


def _fit(profile: Profile | None, operator: str, precision: str) -> KernelFit | None:
    return None if profile is None else profile.find(operator, precision)


def trusted(fit: KernelFit, shape: Shape, unmeasured: float) -> tuple[Amount, Amount]:
    """Relative error, and whether it was measured: the hold-out error inside the ranges, at least
    the data sheet's outside."""
    within = inside(fit, shape)
    outside = max(unmeasured, fit.error)
    return np.where(within, fit.error, outside), within.astype(np.float64)
