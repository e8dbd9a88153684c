"""Finds the kernel of a profile that predicts an operator, or what stands in for it.

Profiles name a kernel by its operator and, where a framework has several, by its variant. Which
names stand for which variant, and in what order they are tried, is written here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sim.cost.kernels.choice import Choice, choose
from sim.cost.kernels.form import Ceilings, Form
from sim.errors import UsageError
from sim.specs.gpu import GpuSpec
from sim.specs.profile import FUSED, OLDER, TRITON, KernelFit

RANKS = "_ranks"
"""Ends what profiles call experts that GPUs hold whole, where their kernel is another."""

WINDOW = "window"
"""The variant of attention that looks back through a window."""

FALLBACKS: Mapping[tuple[str, str], tuple[str, ...]] = {
    # an older release of the framework; else the one that the rest of the profile is of
    ("all_reduce", OLDER): ("all_reduce" + OLDER, "all_reduce"),
    ("decode_attention", OLDER): ("decode_attention" + OLDER, "decode_attention"),
    ("moe", OLDER): ("moe" + OLDER, "moe"),
    # sums and norms in one kernel; else the framework's own sums
    ("all_reduce", FUSED): ("all_reduce" + FUSED, "all_reduce"),
    # GPUs with whole experts; else experts cut over all GPUs
    ("moe", RANKS): ("moe" + RANKS, "moe"),
    ("moe", OLDER + RANKS): ("moe" + OLDER, "moe" + RANKS, "moe"),
    # no other kernel stands in for Triton's, nor here for one that sees a window
    ("decode_attention", TRITON): ("decode_attention" + TRITON,),
    ("prefill_attention", TRITON): ("prefill_attention" + TRITON,),
    ("decode_attention", WINDOW): ("window_decode",),
    ("prefill_attention", WINDOW): ("window_prefill",),
}
"""Profile names of a variant of an operator, then those of its stand-ins, in that order. Every
other operator has one kernel, of its own name."""


class FittedKernel(NamedTuple):
    """A fitted kernel, as its profile calls it, with its form and the ceilings of that."""

    operator: str
    precision: str
    fit: KernelFit
    form: Form
    ceilings: Ceilings


def names_of(operator: str, variant: str = "") -> tuple[str, ...]:
    """Possible names of an ``operator`` in a ``variant`` in profiles, in the order tried.

    >>> names_of("moe", RANKS), names_of("moe")
    (('moe_ranks', 'moe'), ('moe',))
    """
    return FALLBACKS.get((operator, variant), (operator,))


def kernel_of(
    gpu: GpuSpec,
    operator: str,
    precision: str,
    variant: str = "",
    suits: Callable[[KernelFit], bool] = lambda fit: True,
) -> FittedKernel | None:
    """The kernel of an ``operator`` in a ``variant`` that the profile of ``gpu`` has; None if it
    has none. Where another one could stand in, a fit is passed over unless it ``suits``."""
    names = names_of(operator, variant)
    for name in names:
        fit = None if gpu.profile is None else gpu.profile.find(name, precision)
        if fit is not None and (name == names[-1] or suits(fit)):
            return FittedKernel(name, precision, fit, *chosen(name, precision, gpu, fit))
    return None


def chosen(operator: str, precision: str, gpu: GpuSpec, fit: KernelFit) -> Choice:
    """The form of ``fit`` and its ceilings; UsageError if it lacks parameters of that form."""
    found = choose(operator, precision, gpu, fit.form)
    if found is None or not found.suits(fit):
        raise UsageError(
            f"{gpu.name}: the profile's {operator} in {precision} does not have the parameters of "
            f"its form ({fit.form or 'the usual one'}); make the profile anew"
        )
    return found
