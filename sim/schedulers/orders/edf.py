"""Orders requests by the earliest deadline first."""

from __future__ import annotations

from typing import ClassVar

from sim.request import Request
from sim.schedulers.orders.base import Order


class EarliestDeadline(Order):
    """The request whose first token is due first goes first: at arrival plus its class's deadline.

    vLLM does not have it. A request moves up as it waits, so none with a deadline waits for ever;
    those without go after all that have one. Preemption is by rank, as with priorities. With one
    deadline for all this is first come, first served. Requests that are late already still go
    before those that are not, so under an overload that lasts all are late in the end.
    """

    preempts_by_rank: ClassVar[bool] = True

    def key(self, request: Request) -> float:
        """When the first token is due (s of simulated time)."""
        return request.arrival + request.traffic_class.deadline
