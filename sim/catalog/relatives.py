"""What does the profile of one GPU say of another that was not measured?

Fitted forms take the peaks, the bandwidth and the SMs of the GPU that they price, so those
of a chip of the same design carry over. None of it was measured on the part itself: the ranges are
left empty, and every price counts as unmeasured.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sim.hardware import GpuSpec
from sim.profile import KernelFit, Profile

_NOWHERE = (math.inf, -math.inf)


def transferred(profile: Profile, of: GpuSpec, to: GpuSpec) -> Profile:
    """The profile of ``of`` as one of ``to``. Collectives carry over with the links only."""
    kernels = {
        operator: {precision: _unmeasured(fit) for precision, fit in fits.items()}
        for operator, fits in profile.kernels.items()
        if operator != "all_reduce" or of.link == to.link
    }
    source = f"Taken from the {of.title}, with this part's own peaks; not measured on it. "
    return replace(profile, source=source + profile.source, kernels=kernels)


def _unmeasured(fit: KernelFit) -> KernelFit:
    return replace(fit, ranges=dict.fromkeys(fit.ranges, _NOWHERE))
