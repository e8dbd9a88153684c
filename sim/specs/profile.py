"""Describes what a calibration knows of a device: fitted kernels, their errors, and their origin.

A profile holds, for each operator and precision, the parameters of a form of ``sim.cost.kernels``,
the ranges they were measured in, and the error on shapes that were held out of the fit. Errors are
relative (0.05 is 5 %), of predicted over measured; everything else is in SI units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

OLDER = "_older"
"""Ends what profiles call operators of an older release than that of the others."""

FUSED = "_fused"
"""Ends what profiles call sums that one kernel does together with the norm after them."""

TRITON = "_triton"
"""Ends what profiles call attention by Triton, where the framework's usual one is another."""

GATHERS = ("all_gather", "reduce_scatter")
COLLECTIVES = ("all_reduce", *GATHERS)
"""Profile names of the collectives, which hold only for the link that they were timed on."""


def without_variant(operator: str) -> str:
    """The operator that a profile's name is a variant of.

    >>> without_variant("all_reduce_fused"), without_variant("gemm")
    ('all_reduce', 'gemm')
    """
    return operator.removesuffix(OLDER).removesuffix(FUSED).removesuffix(TRITON)


OF_FEW_MODELS = (
    *("mla_decode", "mla_prefill", "dsa_decode", "dsa_prefill", "moe", "moe_ranks"),
    *("moe_older", "window_decode", "window_prefill"),
    *("decode_attention" + TRITON, "prefill_attention" + TRITON),
    *("ll_dispatch", "ll_combine", "ht_dispatch", "ht_combine"),
)
"""Profile names of the operators of latent and sparse attention, of experts and the exchange of
their tokens, of windows, and of attention by Triton."""


@dataclass(frozen=True, slots=True)
class Score:
    """How far predictions lay from measurements.

    ``median`` and ``p90`` of the absolute relative error, ``bias`` its median with the sign kept
    (positive: predicted too slow), over ``points`` measurements.
    """

    median: float
    p90: float
    bias: float
    points: int


@dataclass(frozen=True, slots=True)
class Residual:
    """The residual of a form, as a table: logarithms of measured over predicted on a grid.

    ``axes`` names the form's coordinates with their ascending knots, ``values`` has the grid in
    row-major order. Between knots it is multilinear; outside it keeps the value at the edge.
    """

    axes: Mapping[str, tuple[float, ...]]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class KnownShapes:
    """The residual of a form at measured shapes, a small table for each.

    ``names`` are the variables that tell shapes apart, ``axes`` those of every table. ``values``
    has a table for each shape, as in ``Residual``; ``holdout`` is the error of predictions at these
    shapes, each by tables that had not seen the point.
    """

    names: tuple[str, ...]
    axes: Mapping[str, tuple[float, ...]]
    values: Mapping[tuple[float, ...], tuple[float, ...]]
    holdout: Score

    def find(self, shape: Mapping[str, float]) -> Residual | None:
        """The table of ``shape``, as far as ``names`` tell; None if it was not measured."""
        values = self.values.get(tuple(float(shape[name]) for name in self.names))
        return None if values is None else Residual(self.axes, values)


@dataclass(frozen=True, slots=True)
class KernelFit:
    """One operator in one precision.

    ``intervals`` are 95 % confidence intervals of ``parameters``; ``ranges`` the smallest and
    largest measured value of each variable of the shape; ``holdout`` the error on shapes that the
    fit had not seen, ``regimes`` the same by kind of shape; ``drift`` by how much the speed of the
    machine wandered while it was measured (root mean square); ``kernel`` the implementation
    measured; ``form`` names the formula where an operator has several, "" is the usual one.
    ``known`` has what is left over at single shapes: ``holdout`` is the error without it.
    """

    parameters: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    holdout: Score
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    regimes: Mapping[str, Score] = field(default_factory=dict)
    residual: Residual | None = None
    kernel: str = ""
    form: str = ""
    drift: float = 0.0
    known: KnownShapes | None = None

    @property
    def error(self) -> float:
        """The relative error that a prediction carries: hold-out error and drift in quadrature.

        Noise is in the hold-out error, since every held-out timing has it; drift is not: timings
        of one time are too slow together, and at which speed the machine will run is not known.

        >>> round(KernelFit({}, {}, Score(0.03, 0.1, 0.0, 9), drift=0.04).error, 4)
        0.05
        """
        median = self.holdout.median
        return math.hypot(median, self.drift) if self.drift else median


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the kernels of a GPU come from, and the kernels, by operator and precision.

    ``source`` says in a sentence what was measured, ``date`` when the fit was made (ISO), ``facts``
    the device, driver, clocks and versions that matter; ``relative`` is the part that all that was
    measured on, where it is another than the GPU whose profile this is.
    """

    source: str
    date: str
    facts: Mapping[str, str]
    kernels: Mapping[str, Mapping[str, KernelFit]]
    relative: str = ""

    @property
    def worst_error(self) -> float:
        """The largest error of its fits. What such a machine was not measured at is not known
        better: its ceilings come of the same timings. Those of latent attention and of experts,
        which have forms of their own and few models use, say nothing of the rest, nor do those of
        gathers, which are no kernels of the framework."""
        apart = (*OF_FEW_MODELS, *GATHERS)
        fits = (by.values() for name, by in self.kernels.items() if name not in apart)
        return max((fit.error for each in fits for fit in each), default=0.0)

    def find(self, operator: str, precision: str) -> KernelFit | None:
        """The fit of ``operator`` in ``precision``; bf16 and fp16 stand in for each other."""
        fits = self.kernels.get(operator, {})
        twin = {"bf16": "fp16", "fp16": "bf16"}.get(precision, precision)
        return fits.get(precision) or fits.get(twin)

    def without(self, *operators: str) -> Profile:
        """The profile without the fits of these ``operators``, in all their variants."""
        kernels = {
            name: fits
            for name, fits in self.kernels.items()
            if without_variant(name) not in operators
        }
        return replace(self, kernels=kernels)
