"""Names what features ask of a policy beyond serving its requests, and says which policies have it.

A policy of one's own states its abilities in its class; those that need other classes it has by
being a subclass of the one that serves there. Continuous batching follows the rule of an engine,
which states what is modelled of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.schedulers.base import Scheduler
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.drafts import DraftsByBatch
from sim.schedulers.offloading import OffloadedPrefill
from sim.schedulers.pipelined import PipelinedPrefill
from sim.schedulers.roles import DecodeRole, PrefillRole


@dataclass(frozen=True, slots=True)
class Ability:
    """``name`` is what ``Scheduler.abilities`` calls it, or ``variant`` the class whose subclasses
    have it; ``about`` says what such a policy does."""

    about: str
    name: str = ""
    variant: type[Scheduler] | None = None

    def of(self, policy: type[Scheduler]) -> bool:
        """Whether ``policy``, a class that ``scheduler.batching`` names, has it; the continuous one
        as far as its rule has."""
        if policy is ChunkedPrefill:
            return True
        if self.variant is not None:
            return issubclass(policy, self.variant)
        return self.name in policy.abilities

    @property
    def stated(self) -> str:
        """How a class of one's own states it."""
        if self.variant is not None:
            return f"make its class a subclass of sim.schedulers.{self.variant.__name__}"
        return f'give its class `abilities = frozenset({{"{self.name}"}})` once it does'


LOSES = Ability("has all unfinished requests in `members` or its queue", "loses")
WITHDRAWS = Ability("lets a request go that no client waits for (`withdraw`)", "withdraws")
DRAINS = Ability("goes on with what it has when nothing else comes", "drains")
IN_ORDER = Ability("admits the head of its queue alone, and lists `members` so", "in-order")
DRAFTS = Ability("counts `decoding.asks` tokens of an iteration for each member", "drafts")
DRAFTS_BY_BATCH = Ability("changes the number of drafts", variant=DraftsByBatch)
IN_FLIGHT = Ability("keeps several batches in flight", variant=PipelinedPrefill)
PREFILLS = Ability("hands requests over when their prompts are complete", variant=PrefillRole)
DECODES = Ability("takes requests whose prompts are complete", variant=DecodeRole)
HOST = Ability("moves blocks to the host and back", variant=OffloadedPrefill)
