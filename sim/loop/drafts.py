"""Provides what is recorded of plans whose tokens are drafted."""

from __future__ import annotations

from sim.growth.leaps import ACCEPTED, CHECKED, DELIVERED, DRAFTED
from sim.growth.sampled import Sampled
from sim.loop.recorder import Columns, InFlight
from sim.schedulers import Scheduler


def drafted(flight: InFlight, scheduler: Scheduler) -> tuple[int, int, int, int]:
    """The gain of decoding sequences from a finished plan: tokens, accepted drafts, and the drafts
    of each sequence that were checked and made."""
    batch = scheduler.decoding
    if not isinstance(batch, Sampled):
        return 0, 0, 0, 0
    if not flight.plan.decode:
        return 0, 0, 0, batch.drafted
    return batch.delivered, batch.accepted, batch.courses.drafts, batch.drafted


DRAFTS = Columns([(DELIVERED, "i8"), (ACCEPTED, "i8"), (CHECKED, "i4"), (DRAFTED, "i4")], drafted)
"""Columns of a run whose tokens are drafted."""
