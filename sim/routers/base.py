"""Defines what a router is asked, and what it sees of the replicas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from sim.request import Request


class Target(Protocol):
    """A replica as a router sees it when a request arrives. All but ``outstanding`` is worked out
    when it is asked for, so that a router pays for what it looks at."""

    @property
    def outstanding(self) -> int:
        """Requests sent there and not finished, waiting *and* running."""

    @property
    def queued(self) -> int:
        """Requests that wait for their first iteration, or to go on after a preemption."""

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts of those; takes time in proportion to their number."""

    @property
    def kv_used(self) -> float:
        """Share of the KV cache that is taken, 0 to 1."""

    @property
    def weight(self) -> float:
        """The replica's share of the traffic, relative to others."""


class Router(ABC):
    """Chooses a replica for each request as it arrives."""

    name: ClassVar[str] = ""
    """The value of ``router`` that selects it."""

    about: ClassVar[str] = ""
    """Which replica it takes, in a few words."""

    real: ClassVar[str] = ""
    """What does so in front of real servers; empty where nothing is known."""

    draws: ClassVar[bool] = False
    """Whether it draws random numbers: it is then made with a ``numpy.random.Generator`` that
    belongs to the seed of the run, else without arguments."""

    weighs: ClassVar[bool] = False
    """Whether it goes by ``Target.weight``; pools of different ``fleet.weight`` are refused behind
    one that does not. Asked of a user's own class alone."""

    blind: ClassVar[bool] = False
    """Whether it shares out requests whatever the replicas have to do: then the pool with the least
    capacity for its share decides what the fleet can take."""

    @abstractmethod
    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Index into ``targets``. Of the request, a real router could know ``prompt_tokens`` and
        ``traffic_class``, but not ``output_tokens``."""
