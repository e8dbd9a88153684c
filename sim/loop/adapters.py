"""Names the columns of plans in which LoRA adapters are served."""

from __future__ import annotations

from collections.abc import Sequence

from sim.growth.leaps import ADAPTERS, LOADS
from sim.loop.recorder import Columns, InFlight
from sim.schedulers import Adapted, Scheduler


def _read(flight: InFlight, scheduler: Scheduler) -> Sequence[float]:
    assert isinstance(scheduler, Adapted)
    return scheduler.adapters, scheduler.loads


ADAPTED = Columns([(ADAPTERS, "i4"), (LOADS, "i4")], _read)
"""Different adapters in each iteration of a plan, and those copied to the GPU before the first."""
