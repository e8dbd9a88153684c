"""Names the states of a fleet and of its SLO, and what leaves a verdict open.

Each is the word that summaries, tables and pages have.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Word(StrEnum):
    """A word of a result, shown as the plain text that it is."""

    def __repr__(self) -> str:
        return repr(self.value)


class State(Word):
    """The state of a fleet under its traffic; of the states that are judged the worst first."""

    NOTHING_SERVED = "no traffic served"
    OVERLOADED = "overloaded"
    NEAR_SATURATION = "near saturation"
    TOO_SHORT = "too short to tell"
    CLOSED_LOOP = "closed loop"
    OFFLINE = "offline"
    STABLE = "stable"
    OBSERVED = "observed"

    @property
    def severity(self) -> int:
        """The place of the state among all, 0 for the worst."""
        return list(State).index(self)


class SloState(Word):
    """Whether an SLO is met: beyond the doubt of a 95 % interval, or open."""

    MET = "met"
    MISSED = "missed"
    OPEN = "too close to call"


class DoubtKind(Word):
    """Reasons to doubt that an SLO is met: more arrives than full batches serve; a run too short to
    tell whether it does; the interval of the share; the error band of the predicted times; requests
    that were not finished when the run ended; next to the band, the interval at an end of it."""

    LOAD = "load"
    LENGTH = "length"
    CHANCE = "chance"
    BAND = "band"
    UNFINISHED = "unfinished"
    END_CHANCE = "chance at an end"


def too_short_for(doubts: Iterable[str]) -> bool:
    """Whether ``doubts`` say that requests which come later may fare worse than those of the
    run."""
    return not {DoubtKind.LOAD, DoubtKind.LENGTH}.isdisjoint(doubts)


class Unserved(Word):
    """The fates of requests that break an SLO before any limit does; a ``first_limit``."""

    REJECTED = "rejected"
    LOST = "lost"
    TIMED_OUT = "timed_out"


def is_apart(name: str) -> bool:
    """Whether a limit is that of a single percentile, judged apart from the others."""
    return "_p" in name
