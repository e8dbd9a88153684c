"""Says which operators of a pass are predicted to take far longer than their arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sim.cost.operators import Operator
from sim.specs.deployment import Deployment

PLAUSIBLE, MUCH = 0.05, 1e12
"""The share of the peak that a kernel bound by arithmetic reaches at the least, and the FLOP from
which on an operator has enough of it to say so."""


HARDLY = "such a kernel is hardly what an engine takes"
"""Words of a note on an operator of implausible time."""


def implausible(d: Deployment, operators: Iterable[Operator]) -> Iterator[str]:
    """The operators that take too long for what they compute, each with a note: the kernel is
    hardly the one that the engine would take, or its timings are wrong."""
    for each in operators:
        peak = d.gpu.flops("bf16" if "attention" in each.name else d.arithmetic)
        reached = float(each.flops) / max(float(each.seconds), 1e-12) / peak
        if each.bound == "compute" and each.flops > MUCH and reached < PLAUSIBLE:
            yield (
                f"{each.name} is predicted at {reached:.1%} of the GPU's arithmetic: {HARDLY}. "
                "Measure it before you rely on it."
            )
