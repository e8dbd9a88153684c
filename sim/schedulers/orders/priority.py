"""Orders requests by priority, as vLLM's ``--scheduling-policy priority``."""

from __future__ import annotations

from typing import ClassVar

from sim.request import Request
from sim.schedulers.orders.base import Order


class Priority(Order):
    """The lowest ``priority`` value of a request's class goes first, the earlier of equals.

    As in vLLM V1: a request that waits never pushes out one that runs, but when memory runs out,
    the highest value is preempted, of equals the latest, and waits again among its equals. Without
    classes all have priority 0 and it is first come, first served. High values may wait for as long
    as lower ones keep coming.
    """

    preempts_by_rank: ClassVar[bool] = True

    def key(self, request: Request) -> float:
        """The priority of the class."""
        return request.traffic_class.priority
