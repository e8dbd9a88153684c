"""Checks the event loop against queueing theory, where answers are known, in a few seconds each.

The fleet, the replica, the schedulers and the recorder are the real ones; only the duration of an
iteration is a formula simple enough for theory (``loop``). Random runs are compared within four
standard errors (``queues``), sums and identities to nine digits (``exact``). Times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from sim.selftest.check import Check, header, row
from sim.selftest.exact import burst_checks, roofline_check
from sim.selftest.queues import queue_checks

__all__ = ["Check", "checks", "header", "row"]

SEED = 20


def checks() -> Iterator[Check]:
    """Every check, each as soon as it is done; the same numbers each time."""
    yield from queue_checks(SEED)
    yield roofline_check()
    yield from burst_checks()
