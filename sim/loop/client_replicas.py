"""Provides replicas whose requests clients may take back."""

from __future__ import annotations

from typing import Any

from sim.loop.clients import Clients
from sim.loop.engine import Engine
from sim.loop.lockstep import Rank
from sim.loop.pipeline import Pipeline
from sim.loop.withdrawing import Withdrawing
from sim.request import Request


class ClientReplica(Withdrawing):
    """A replica whose requests ``clients`` may take back."""

    clients: Clients

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        """Answers that no client waits for are none."""
        for request in [each for each in finished if self.clients.dropped(each)]:
            finished.remove(request)
            if request in self._unwanted:  # else the policy serves requests to their end
                self._unwanted.remove(request)
            self.count(-1)
            self._gone(request, request.generated)
        super()._deliver(finished, number, end)

    def _gone(self, request: Request, generated: int) -> None:
        self.clients.left(request, self.index, generated)


class ClientRank(ClientReplica, Rank):
    """A data rank whose requests clients may take back."""


class ClientPipeline(Pipeline):
    """A pipeline that serves requests to their end, also those that ``clients`` gave up."""

    clients: Clients

    def _deliver(self, finished: list[Request], number: int, end: float) -> None:
        """Answers that no client waits for are none."""
        for request in [each for each in finished if self.clients.dropped(each)]:
            finished.remove(request)
            self.count(-1)
            self.clients.left(request, number, request.generated)
        super()._deliver(finished, number, end)


def withdrawable(engine: Engine, clients: Clients) -> Engine:
    """``engine``, whose requests ``clients`` may take back."""
    parts: Any = engine.ranks
    for part in parts:
        part.clients = clients
    return engine
