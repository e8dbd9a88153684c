"""What an order decides: who of those that wait goes first."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sim.request import Request
from sim.schedulers.queues import Queue, Sorted


class Order(ABC):
    """Ranks requests as they arrive. Preempted requests are not ranked again: they go before all
    others, as in vLLM."""

    @abstractmethod
    def key(self, request: Request) -> float:
        """Rank of ``request``, asked once when it arrives: the smallest goes first, the earlier of
        equals."""

    def queue(self) -> Queue:
        """An empty queue in this order."""
        return Sorted(self.key)
