"""Tries fleets that hold the load: what they hold at most, and at both ends of the error band.

A capacity within an SLO reacts more strongly than in proportion to the speed of iterations, so that
the ends of the error band are simulated, not scaled. They are asked for as soon as a fleet is
sized, while others still are, and those that take longest begin first, so that no process waits for
another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

from sim.metrics.bands.end_times import PREDICTED, EndTimes, TimeBand
from sim.metrics.bands.trust import trust
from sim.planning.fleet.sizing import FAR, Confirmed, FleetSearch, Sized, confirm, smallest_fleet
from sim.planning.load.advance import PlanSteps, Simulated
from sim.planning.load.finder import Finder
from sim.planning.load.settled import lasting
from sim.planning.points.executors import Crew, CrewCall
from sim.planning.points.wording import LoadOutcome

ENDS = 0.125
"""How close together two numbers of replicas are, as a share, between which strain says how many
those at the ends of the band are: of fewer than sixteen, the very number."""


@dataclass(frozen=True)
class SlowerEnd:
    """Whether a fleet still ``holds`` the wanted load, without headroom, if iterations are slower
    by the share ``error``, and whether chance leaves no doubt of that (``sure``); ``holds_at_half``
    whether it surely does if they are slower by the 50 % band alone."""

    error: float = 0.0
    holds: bool = True
    sure: bool = True
    holds_at_half: bool = True

    def trust(self, *, decided: bool) -> str:
        """How sure it is that the fleet holds the load; ``decided``: chance leaves no doubt that it
        does at the predicted times."""
        at_band = self.holds and self.sure
        return trust(decided=decided, at_band=at_band, at_half=self.holds_at_half)


def slower_end(
    at: Callable[[EndTimes], Finder], rate: float, replicas: int, band: TimeBand | None
) -> SlowerEnd:
    """The slower end of that many replicas at ``rate``; ``at`` is the finder of the fleet at an end
    of its ``band``."""
    if band is None:
        return SlowerEnd()
    end = lasting(at(band.ends[1]), rate, replicas)
    at_half = end.holds and end.sure
    if not at_half:
        near = lasting(at(band.half), rate, replicas)
        at_half = near.outcome == LoadOutcome.HOLDS
    return SlowerEnd(band.error, end.holds, end.sure, at_half)


@dataclass(frozen=True)
class FleetEnds:
    """Replicas for the target load if iterations are faster (``fewest``) and slower (``most``) by
    the error band, None if ``FAR`` times as many do not hold it either; the ``slower`` end of
    the fleet of the predicted size; and how many, at least those, are ``sure`` to hold the wanted
    load, without headroom, at the slower end: None if no number that was tried is. ``one_down`` is
    whether the fleet holds it with a replica gone (``without_one``); None for a single one."""

    fewest: int
    most: int | None
    slower: SlowerEnd = SlowerEnd()
    sure: int | None = None
    one_down: WithinBand | None = None


class WithinBand(NamedTuple):
    """Whether a load holds: the ``outcome``, by the rule for the SLO of a run open if chance leaves
    it open or an end of the error band does not confirm it, and that at the ``predicted`` times."""

    outcome: LoadOutcome
    predicted: LoadOutcome

    @property
    def text(self) -> str:
        """The outcome in a word or two: what the band alone leaves open is unsure."""
        alone = self.outcome == LoadOutcome.OPEN != self.predicted
        return f"{self.predicted}, unsure" if alone else str(self.outcome)


def fewest_if_faster(search: FleetSearch, sized: Sized) -> int:
    """The replicas that hold the target load if iterations are faster by the error band."""
    band, mine, spare = sized.at_target.band, sized.replicas, sized.survive
    least, fewer = spare + 1, mine - 1
    if band is None or fewer < least:
        return mine
    end = band.ends[0]
    faster = search.of_layout(sized.layout, end)
    guess = min(fewer, max(least, math.ceil(mine * end.iterations ** _power(sized))))
    return smallest_fleet(faster, search.question, least, guess, fewer, ENDS) or mine


def if_slower(search: FleetSearch, sized: Sized) -> FleetEnds:
    """The effect of slower iterations on the size of a fleet, whose ``fewest`` are its own."""
    band, mine, left = sized.at_target.band, sized.replicas, sized.replicas - sized.survive
    if band is None:
        return FleetEnds(mine, mine, sure=mine)
    at = cache(partial(search.of_layout, sized.layout))
    slower, end = slower_end(at, search.question.rate, left, band), band.ends[1]
    guess = int(mine * end.iterations ** _power(sized))
    most = smallest_fleet(at(end), search.question, mine, guess, FAR * mine, ENDS)
    if slower.holds and slower.sure:
        return FleetEnds(mine, most, slower, mine)
    if most is None:
        return FleetEnds(mine, None, slower)
    finder, rate = at(end), search.question.rate

    def is_sure(replicas: int) -> bool:
        found = lasting(finder, rate, replicas - sized.survive)
        return found.holds and found.sure

    return FleetEnds(mine, most, slower, _fewest_sure(is_sure, mine, most))


def _fewest_sure(is_sure: Callable[[int], bool], few: int, many: int) -> int:
    """The least number above ``few``, which is not sure, that is; ``many`` where no smaller one is
    seen to be. What holds for a number holds for larger ones. Of numbers as close as ``ENDS`` the
    larger is given.

    >>> _fewest_sure(lambda number: number >= 6, 4, 9), _fewest_sure(lambda _: False, 4, 9)
    (6, 9)
    """
    while many - few > max(1, int(ENDS * few)):
        middle = (few + many) // 2
        few, many = (few, middle) if is_sure(middle) else (middle, many)
    return many


def _power(sized: Sized) -> float:
    """By what power of the times a fleet within its limits grows: the load of each replica must
    fall until latencies, which are as many times as long, are within their limits again."""
    return 1 + 1 / sized.slope


def without_one(search: FleetSearch, sized: Sized) -> WithinBand | None:
    """Whether a fleet holds the wanted load with a replica gone, or as many as it is to survive;
    None if none is left."""
    left = sized.replicas - max(1, sized.survive)
    if not left:
        return None
    at = partial(search.of_layout, sized.layout)
    return held_within_band(at, search.question.rate, left, sized.at_target.band)


def held_within_band(
    at: Callable[[EndTimes], Finder], rate: float, replicas: int, band: TimeBand | None
) -> WithinBand:
    """Whether that many replicas hold ``rate``; ``at`` is the finder of the fleet at an end of its
    ``band``."""
    found = lasting(at(PREDICTED), rate, replicas).outcome
    if band is None or found == LoadOutcome.OPEN:
        return WithinBand(found, found)
    end = band.ends[found == LoadOutcome.HOLDS]
    same = lasting(at(end), rate, replicas).outcome == found
    return WithinBand(found if same else LoadOutcome.OPEN, found)


EndCalls = tuple[CrewCall[FleetEnds], CrewCall[int], CrewCall[WithinBand | None]]
"""The calls that say what a fleet is at the slower and at the faster end of its band, and with a
replica gone."""


def begin_ends(crew: Crew, search: FleetSearch, fleet: Sized) -> EndCalls:
    """Ask what ``fleet`` is at both ends of its band, and with a replica gone."""
    asked, later = (search, fleet), 1 / fleet.replicas
    return (
        crew.begin(counted_in, if_slower, *asked, later=later),
        crew.begin(counted_in, fewest_if_faster, *asked, later=later),
        crew.begin(counted_in, without_one, *asked, later=later),
    )


def tried(
    crew: Crew,
    search: FleetSearch,
    fleets: Sequence[Sized],
    confirmed: Sequence[bool],
    ends: Sequence[EndCalls],
    steps: PlanSteps,
) -> list[tuple[Confirmed | None, FleetEnds]]:
    """The outcome of each fleet: the highest load that it holds, None unless it is to be
    ``confirmed``, and its ``ends``, which were asked for; each is one of ``steps``."""
    best = [
        crew.begin(counted_in, confirm, search, fleet, later=1 / fleet.replicas) if wanted else None
        for fleet, wanted in zip(fleets, confirmed, strict=True)
    ]
    asked: list[CrewCall[Any]] = [call for call in best if call is not None]
    asked += [slower for slower, *_ in ends]
    for _ in crew.as_done(asked):
        steps.did()
    others: list[CrewCall[Any]] = [faster for _, faster, _ in ends]
    crew.finish([*others, *(one_down for *_, one_down in ends)])
    return [
        (
            None if call is None else call.result,
            replace(slower.result, fewest=faster.result, one_down=one_down.result),
        )
        for call, (slower, faster, one_down) in zip(best, ends, strict=True)
    ]


def counted_in(
    simulated: Simulated | None, trial: Callable[..., Any], search: FleetSearch, what: Any
) -> Any:
    """The outcome of a trial, whose requests are counted."""
    return trial(replace(search, simulated=simulated), what)
