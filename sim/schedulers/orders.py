"""Provides the orders of the queue, found by name or as ``package.module:Class``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from sim.errors import UsageError
from sim.registry import Registry
from sim.request import Request
from sim.schedulers.fair import FairQueue
from sim.schedulers.queues import Fifo, Queue, Ranked, Resorted, Sorted

__all__ = [
    "ORDERS",
    "EarliestDeadline",
    "Fair",
    "FirstCome",
    "LongestPrefix",
    "Order",
    "Priority",
    "ShortestJob",
    "make_order",
]


class Order(ABC):
    """Ranks requests by a key that stays the same for as long as a request lives."""

    name: ClassVar[str] = ""
    """The value of ``scheduler.order`` that selects it."""

    about: ClassVar[str] = ""
    """Which request it lets go first, in a few words."""

    ranks_by: ClassVar[str] = ""
    """The trait of traffic classes that it goes by: ``priority``, ``deadline``, the ``class``
    itself or nothing. Where all requests have the same one, it is first come, first served."""

    vllm: ClassVar[str] = ""
    """The ``--scheduling-policy`` with which vLLM serves in this order; empty if it has none."""

    sglang: ClassVar[str] = ""
    """SGLang's ``--schedule-policy`` likewise."""

    by_prefix: ClassVar[bool] = False
    """Whether the scheduler sorts the queue by what SGLang's prefix tree has of each request."""

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


class FirstCome(Order):
    """Requests leave in the order in which they reached the replica."""

    name = "fcfs"
    about = "first come, first served, as in vLLM"
    vllm = sglang = "fcfs"

    def key(self, request: Request) -> float:
        """All are equal, so the earlier goes first."""
        return 0.0

    def queue(self) -> Queue:
        """A queue that needs no ranks."""
        return Fifo()


class ShortestJob(Order):
    """The fewest prompt and output tokens together go first.

    The simulator knows how long the answer will be; a real engine does not. So this is an oracle: a
    bound on what guessing lengths could bring, and no policy that can be switched on somewhere.
    Long requests may wait for as long as shorter ones keep coming.
    """

    name = "sjf"
    about = "the shortest job, whose length no engine knows, so a bound"

    def key(self, request: Request) -> float:
        """``prompt_tokens + output_tokens``."""
        return request.prompt_tokens + request.output_tokens


class Priority(Order):
    """The lowest ``priority`` value of a request's class goes first, the earlier of equals.

    As in vLLM V1: a request that waits never pushes out one that runs, but when memory runs out,
    the highest value is preempted, of equals the latest, and waits again among its equals. Without
    classes all have priority 0 and it is first come, first served. High values may wait for as long
    as lower ones keep coming.
    """

    name = "priority"
    about = "the lowest priority of workload.classes"
    ranks_by = "priority"
    vllm = "priority"
    preempts_by_rank = True

    def key(self, request: Request) -> float:
        """The priority of the class."""
        return request.traffic_class.priority


class EarliestDeadline(Order):
    """The request whose first token is due first goes first: at arrival plus its class's deadline.

    vLLM does not have it. A request moves up as it waits, so none with a deadline waits for ever;
    those without go after all that have one. Preemption is by rank, as with priorities. With one
    deadline for all this is first come, first served. Requests that are late already still go
    before those that are not, so under an overload that lasts all are late in the end.
    """

    name = "edf"
    about = "the earliest deadline of workload.classes"
    ranks_by = "deadline"
    preempts_by_rank = True

    def key(self, request: Request) -> float:
        """When the first token is due (s of simulated time)."""
        return request.arrival + request.traffic_class.deadline


class LongestPrefix(Order):
    """The request of which SGLang's prefix tree has most goes first (``--schedule-policy lpm``).

    Who would compute the same as another one that waits goes last, to find it later. While more
    than 128 wait, it is first come, first served (``sim.schedulers.prefix_order``).
    """

    name = "lpm"
    about = "the longest cached prefix, as SGLang's lpm"
    sglang = "lpm"
    by_prefix = True

    def key(self, request: Request) -> float:
        """All are equal until the scheduler sorts them."""
        return 0.0

    def queue(self) -> Queue:
        """A queue that can be sorted again."""
        return Resorted()


class Fair(Order):
    """The class of traffic that was served least, by its weight, goes first (``fair``).

    No engine has it; gateways with virtual token counters do. Without classes it is first come,
    first served.
    """

    name = "fair"
    ranks_by = "class"
    about = "the class of workload.classes that was served least, by tokens and weight"

    def key(self, request: Request) -> float:
        """All are equal: the counters of their classes decide."""
        return 0.0

    def queue(self) -> Queue:
        """A queue of counters."""
        return FairQueue()


ORDERS: Registry[Order] = Registry(
    "order", Order, FirstCome, ShortestJob, Priority, EarliestDeadline, LongestPrefix, Fair
)


def make_order(name: str, folders: Sequence[Path] = ()) -> Order:
    """The order that ``scheduler.order`` names; one with a colon is imported, ``folders`` first.

    Raises UsageError for a name that leads nowhere.
    """
    kind = ORDERS.find(name, folders)
    try:
        return kind()
    except TypeError as error:
        raise UsageError(f"order {name!r} cannot be made without arguments ({error})") from None
