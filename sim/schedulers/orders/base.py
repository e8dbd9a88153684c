"""Defines an order: which of the waiting requests goes first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from sim.request import Request
from sim.schedulers.queues import Queue, Ranked, Sorted


class Order(ABC):
    """Ranks requests by a key that stays the same for as long as a request lives."""

    preempts_by_rank: ClassVar[bool] = False
    """When memory runs out: False preempts the request admitted last and puts it before all others
    in the queue. True preempts the last by rank, wherever it is in the batch, and lets it wait at
    the place of its rank."""

    @abstractmethod
    def key(self, request: Request) -> float:
        """Rank of ``request``: the smallest goes first, the earlier of equals."""

    def queue(self) -> Queue:
        """An empty queue in this order."""
        return Ranked(self.key) if self.preempts_by_rank else Sorted(self.key)
