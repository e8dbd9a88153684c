"""Describes the ends of the error band: how far off predicted times may be, all at once.

Iterations may be faster or slower, and on top of that first tokens come earlier or later than
longer iterations alone make them: their own band is wider. Factors of predicted times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from sim.metrics.bands.bands import half_of
from sim.metrics.slo.objectives import Objective

FIRST_TOKEN = "ttft"
"""The metric that takes more, or less, than iterations make of it."""


class EndTimes(NamedTuple):
    """Factors of predicted times at an end of the band: of all ``iterations``, and of TTFT beyond
    what those make of it (``first_tokens``)."""

    iterations: float = 1.0
    first_tokens: float = 1.0

    def counted(self, objective: Objective) -> Objective:
        """The limits of ``objective`` for requests whose iterations take as long as at this end,
        but whose first tokens do not come as much later: these are compared with less."""
        return objective.stretched(1 / self.first_tokens, FIRST_TOKEN)

    def known(self, objective: Objective) -> Objective:
        """The limits for requests all of whose times are those predicted."""
        return self.counted(objective).stretched(1 / self.iterations)


PREDICTED = EndTimes()
"""All times as predicted."""


class TimeBand(NamedTuple):
    """How far predicted times may be off: iterations by the share ``error``, longer by ``slower``;
    TTFT by the factors ``ninety`` and ``fifty``, from the lowest to the highest of the 90 and the
    50 % band."""

    error: float
    slower: float
    ninety: tuple[float, float] = (1.0, 1.0)
    fifty: tuple[float, float] = (1.0, 1.0)

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> TimeBand:
        """The band that ``infersim.error_band`` of a run states."""
        error = float(stated["throughput"] or 0.0)
        first = stated.get("first_tokens") or {}  # which runs of before lack
        levels = (tuple(first.get(name, (1.0, 1.0))) for name in ("band90", "band50"))
        return cls(error, float(stated.get("slower", error)), *levels)

    @property
    def ends(self) -> tuple[EndTimes, EndTimes]:
        """The faster and the slower end.

        >>> TimeBand(0.25, 0.5, ninety=(0.4, 3.0)).ends
        (EndTimes(iterations=0.8, first_tokens=0.5), EndTimes(iterations=1.5, first_tokens=2.0))
        >>> TimeBand(0.25, 0.25, ninety=(0.9, 1.2)).ends[1]
        EndTimes(iterations=1.25, first_tokens=1.0)
        """
        faster, slower = 1 / (1 + self.error), 1 + self.slower
        low, high = self.ninety
        return (
            EndTimes(faster, min(1.0, low / faster)),
            EndTimes(slower, max(1.0, high / slower)),
        )

    @property
    def half(self) -> EndTimes:
        """The slower end of the 50 % band."""
        slower = 1 + half_of(self.error)
        return EndTimes(slower, max(1.0, self.fifty[1] / slower))


def factors(down: float, up: float) -> list[float]:
    """The lowest and the highest factor of a band that reaches so far ``down`` and ``up``
    (logarithms)."""
    return [math.exp(-down), math.exp(up)]
