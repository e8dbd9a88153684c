"""Defines a prediction with something in it corrected.

A ``Variant`` is what would have to be changed: blocks of the KV cache, host times of the engine,
speeds of kernels. Seconds; factors multiply a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.engine import AS_PRICED, EngineSpec, Factors
from sim.simulation import Setup


@dataclass(frozen=True, slots=True)
class Variant:
    """Changes to a prediction; the times are added to those of the engine preset, its factors
    multiplied by these."""

    num_gpu_blocks: int | None = None
    per_iteration: float = 0.0
    per_sequence: float = 0.0
    per_new_request: float = 0.0
    front_end: float = 0.0
    factors: Factors = AS_PRICED

    def of(self, setup: Setup) -> Setup:
        """``setup`` with the changes made."""
        engine = changed_engine(setup.deployment.engine, self)
        memory = setup.capacity
        if self.num_gpu_blocks is not None:
            memory = replace(memory, num_gpu_blocks=self.num_gpu_blocks, given=True)
        return replace(setup, deployment=replace(setup.deployment, engine=engine), capacity=memory)


def changed_engine(engine: EngineSpec, variant: Variant) -> EngineSpec:
    """``engine`` with its times changed; none becomes negative."""
    return replace(
        engine,
        per_iteration=max(0.0, engine.per_iteration + variant.per_iteration),
        per_sequence=max(0.0, engine.per_sequence + variant.per_sequence),
        per_new_request=max(0.0, engine.per_new_request + variant.per_new_request),
        front_end=max(0.0, engine.front_end + variant.front_end),
        factors=engine.factors.times(variant.factors),
    )
