"""What a router sees and answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from sim.request import Request


class Target(Protocol):
    """A replica as a router sees it."""

    outstanding: int
    """Requests sent there and not finished, waiting *and* running."""


class Router(ABC):
    """Chooses a replica for each request as it arrives."""

    @abstractmethod
    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Index into ``targets``."""
