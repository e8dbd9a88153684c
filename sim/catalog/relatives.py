"""Transfers the profile of one GPU to another, or to a file that changes it.

Fitted forms take the peaks, the bandwidth and the SMs of the GPU whose kernels they predict, so
those of a chip of the same design carry over. Nothing was measured on the part itself: the profile
names the one that it was measured on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from sim.catalog.gpu_file import DEFAULT
from sim.specs.gpu import GpuSpec
from sim.specs.profile import COLLECTIVES, Profile, without_variant

SPEED = ("bandwidth", "peak_flops", "sms")
"""The properties of a GPU that the fitted forms read."""

OWN_PEAKS = "with this part's own peaks; not measured on it. "
"""The end of the sentence with which the source of such a profile begins."""

ASSUMED = "default: the part nearest by its data sheet"
"""The source of a ``relative`` that a file does not name."""


def transferred(profile: Profile, of: GpuSpec, to: GpuSpec) -> Profile:
    """The profile of ``of`` as one of ``to``. Collectives carry over with the links only."""
    kernels = {
        operator: fits
        for operator, fits in profile.kernels.items()
        if without_variant(operator) not in COLLECTIVES or of.link == to.link
    }
    source = f"Taken from the {of.title}, {OWN_PEAKS}"
    if to.clocks != of.clocks:
        source = "Measured at the GPU's own power limit, not at the one stated. "
    measured_on = profile.relative or of.part or of.name
    measured = profile.source.rpartition(OWN_PEAKS)[2]
    return replace(profile, source=source + measured, kernels=kernels, relative=measured_on)


def nearest(gpu: GpuSpec, parts: Iterable[GpuSpec]) -> GpuSpec | None:
    """The one of ``parts`` of the same maker whose speeds by the data sheet are nearest to those of
    ``gpu``, of those that compute in fp8 where it does; None if there is none of that maker.

    Timed parts that are described so, each by one of another chip, come out 10 % off in the median
    for passes of few sequences, 6 % for many and 10 % for prompts, where the defaults are 32, 27
    and 18 % off (``calibrate.left_out``).
    """
    alike = [part for part in parts if part.is_amd == gpu.is_amd]
    if gpu.computes("fp8"):
        alike = [part for part in alike if part.computes("fp8")] or alike
    return min(alike, key=lambda part: _distance(gpu, part), default=None)


def _distance(one: GpuSpec, other: GpuSpec) -> float:
    """Factors between bandwidths, 16-bit rates and SMs, as logarithms; SMs that ``one`` takes by
    default say nothing."""
    stated = not one.sources.get("sms", "").startswith(DEFAULT)
    speeds = ((each.bandwidth, each.flops("bf16"), *([each.sms] * stated)) for each in (one, other))
    return math.hypot(*(math.log(mine / theirs) for mine, theirs in zip(*speeds, strict=True)))


def inherited(profile: Profile, of: GpuSpec, to: GpuSpec) -> Profile:
    """The profile of ``of`` for ``to``, whose file starts from that of ``of``.

    It stays measured as long as the same kernels take the same time: with another price, memory
    or power it does, with other ``SPEED`` it is that of a relative, and collectives over another
    link are not those that were measured.
    """
    if any(getattr(of, name) != getattr(to, name) for name in SPEED):
        return transferred(profile, of, to)
    if of.link == to.link:
        return profile
    return profile.without(*COLLECTIVES)
