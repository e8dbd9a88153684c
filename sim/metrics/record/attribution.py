"""Attributes the busy time of a run to operators, and to what bounds them. Seconds, FLOP and bytes.

Nothing is accumulated while the run goes on. The recorded plans say how large each pass was, and
the cost model that timed them says what is in it. A batch that waits for another one, in the
stages of a pipeline, is not busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost import Batches, CostModel, TimedPasses
from sim.growth.kept_rows import PlanRows
from sim.growth.leaps import WAITED
from sim.metrics.record.blocks import blocks

HOST = "host"

BOUNDS = ("compute", "memory", "latency", "communication")
"""The possible bounds of an operator."""


@dataclass(slots=True)
class Work:
    """The total work of one operator: FLOP and bytes of one GPU, and its seconds by what bounded
    them, which add up to its time."""

    flops: float = 0.0
    bytes: float = 0.0
    compute: float = 0.0
    memory: float = 0.0
    latency: float = 0.0
    communication: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of the work."""
        return self.compute + self.memory + self.latency + self.communication


@dataclass(frozen=True, slots=True)
class Attribution:
    """Totals over all replicas; ``flops`` and ``bytes`` are those of one GPU of each.

    ``errors`` are the seconds by which the time of an operator may be off as its kernel's own
    measurements say (host excluded), ``measured`` the seconds of operators in shapes that a profile
    covers, ``work`` what each operator did (host excluded).
    """

    by_operator: dict[str, float]
    by_bound: dict[str, float]
    flops: float
    bytes: float
    errors: dict[str, float]
    measured: float
    work: dict[str, Work]

    @property
    def seconds(self) -> float:
        """Busy time in all."""
        return sum(self.by_operator.values())

    @property
    def kernels(self) -> float:
        """Busy time without the host's."""
        return self.seconds - self.by_operator[HOST]


def waited(plans: PlanRows) -> NDArray[np.float64] | float:
    """How long each of ``plans`` waited for other batches; 0 where there are no pipelines."""
    if WAITED not in (plans.dtype.names or ()):
        return 0.0
    found: NDArray[np.float64] = plans[WAITED]
    return found


Watch = Callable[[slice, PlanRows, Batches, Sequence[TimedPasses]], None]
"""Given a block of plans, their batches, and the operators of those."""


def _operators(
    cost: CostModel, block: slice, rows: PlanRows, watch: Watch | None
) -> Iterator[TimedPasses]:
    """The operators of a ``block`` of plans, which ``watch`` has seen; nothing of them stays in
    memory for the next block."""
    batches = Batches.of(rows)
    operators = cost.operators(batches)
    if watch is not None:
        watch(block, rows, batches, operators)
    yield from operators


def attribute(cost: CostModel, plans: PlanRows, watch: Watch | None = None) -> Attribution:
    """Take the busy time of ``plans`` (``recorder.PLAN`` rows) apart, and show the operators of
    each block to the requests that could use it."""
    found: dict[str, Work] = {}
    errors: dict[str, float] = {}
    busy = measured = 0.0
    profile = cost.deployment.gpu.profile
    least = 0.0 if profile is None else profile.worst_error
    for block in blocks(len(plans)):
        rows = plans[block]
        busy += float((rows["end"] - rows["start"] - waited(rows)).sum())
        for ran in _operators(cost, block, rows, watch):
            o, total = ran.operator, ran.total
            seconds, work = o.seconds, found.setdefault(o.name, Work())
            computing = np.greater_equal(o.compute, o.memory)
            work.flops += total(o.flops)
            work.bytes += total(o.bytes)
            work.compute += total(o.compute * computing)
            work.memory += total(o.memory * ~computing)
            work.latency += total(o.latency)
            work.communication += total(o.communication)
            error = np.maximum(o.error, least * (1 - o.measured))  # not measured: no better known
            errors[o.name] = errors.get(o.name, 0.0) + total(seconds * error)
            measured += total(seconds * o.measured)
    found = {name: work for name, work in found.items() if work.seconds}
    by_operator = {name: work.seconds for name, work in found.items()}
    by_bound = {
        bound: sum(float(getattr(work, bound)) for work in found.values()) for bound in BOUNDS
    }
    by_operator[HOST] = by_bound[HOST] = max(0.0, busy - sum(by_operator.values()))
    flops = sum(work.flops for work in found.values())
    traffic = sum(work.bytes for work in found.values())
    return Attribution(by_operator, by_bound, flops, traffic, errors, measured, found)
