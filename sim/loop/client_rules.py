"""Provides the rules by which clients give up or send again, and replicas are gone for a while."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LONGEST_BACKOFF = 8.0
"""Seconds: no wait before another attempt is longer (openai-python, ``MAX_RETRY_DELAY``)."""

JITTER = 0.25
"""By what share of it a wait is shortened at most, at random (openai-python)."""


class Retry(NamedTuple):
    """``attempts`` of a request in all; before the second the client waits ``backoff`` s, before
    each further one twice as long as before."""

    attempts: int
    backoff: float

    def wait(self, number: int, chance: float) -> float:
        """Seconds from the end of attempt ``number`` to the next; ``chance`` is drawn from [0, 1).

        >>> [Retry(9, 0.5).wait(number, 0.0) for number in range(1, 7)]
        [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
        >>> Retry(9, 0.5).wait(1, 0.8)
        0.4
        """
        return min(self.backoff * 2.0 ** (number - 1), LONGEST_BACKOFF) * (1 - JITTER * chance)


class Outage(NamedTuple):
    """From ``since`` to ``until`` (s; infinite: it stays) a replica is gone."""

    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Rules:
    """``timeout`` (s; infinite: they wait) of clients, and what they do ``after_timeout`` or when
    the request is lost (``after_loss``): try again, or give up (None). ``outages`` has those of
    each replica, in order, without end where a law rules them."""

    timeout: float
    after_timeout: Retry | None
    after_loss: Retry | None
    outages: tuple[Iterator[Outage], ...]


PATIENT = Rules(timeout=math.inf, after_timeout=None, after_loss=None, outages=())
"""Clients wait, and no replica fails."""
