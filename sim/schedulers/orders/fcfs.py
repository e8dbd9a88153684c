"""Orders requests first come, first served: vLLM's default."""

from __future__ import annotations

from sim.request import Request
from sim.schedulers.orders.base import Order
from sim.schedulers.queues import Fifo, Queue


class FirstCome(Order):
    """Requests leave in the order in which they reached the replica."""

    def key(self, request: Request) -> float:
        """All are equal, so the earlier goes first."""
        return 0.0

    def queue(self) -> Queue:
        """A queue that needs no ranks."""
        return Fifo()
