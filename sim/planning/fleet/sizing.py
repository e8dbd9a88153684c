"""Sizes the fleet of one layout by simulation: the replicas that hold a load behind their router.

The analytic estimate of one replica says roughly how many are needed; where it misleads, runs of
one replica do. Then fleets of about that many, with their router and the whole traffic, until the
smallest that holds is found: larger fleets hold more than in proportion, since they share the
unevenness of the traffic. Where a short run's empty start may have decided, longer ones do
(``sim.planning.load.settled``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sim.band_runs import at_end
from sim.errors import InfersimError
from sim.metrics.bands.end_times import PREDICTED, EndTimes
from sim.metrics.slo.objectives import Objective
from sim.metrics.states import Unserved
from sim.planning.fleet.layouts import (
    REJECTS,
    Candidate,
    FleetQuestion,
    Rejected,
    Screened,
    over_budget,
)
from sim.planning.load.advance import Advance, Simulated
from sim.planning.load.band_ends import SLOPES
from sim.planning.load.finder import Finder
from sim.planning.load.probe import SEVERAL, Probe, cut_off, missed, refused
from sim.planning.load.search import search
from sim.planning.load.settled import lasting, quick
from sim.planning.points.points import Settings
from sim.planning.points.wording import counted, limit_name
from sim.scenario import Scenario
from sim.units import show_load

ROUGH = 0.05
"""Tolerance of the rate that one replica holds, which is only a guess at how many are needed."""

TOLERANCE = 0.02
"""How close together the highest load that a fleet holds and the lowest that fails are."""

SOME = 1e-6
"""Any strain above 0."""

Judge = Callable[[Finder, float, int], Probe]
"""A judge of whether a load holds on that many replicas."""

SLOPE = 1.0
"""By what power of the load of each replica latencies grow near their limits, where no two fleets
have shown it. Only how soon a search ends depends on it."""

FLAT = 0.5
"""The power between the first fleet that is tried and the second: it falls slowly with more."""

AROUND = 1.5
"""How many times as large or as small fleets are that say how latencies grow near one."""

FAR = 4
"""Times the guessed number of replicas up to which a fleet is tried."""


@dataclass(frozen=True)
class FleetSearch:
    """What every fleet of a plan is tried with: the load and its limits; ``simulated`` counts the
    requests of the runs."""

    scenario: Scenario
    question: FleetQuestion
    objectives: tuple[Objective, ...]
    simulated: Simulated | None = None

    def finder(self, settings: Settings, end: EndTimes = PREDICTED) -> Finder:
        """The finder of the fleet with ``settings``, at an ``end`` of the band of its times."""
        own = self.scenario.override(settings)
        asked = own if end == PREDICTED else at_end(own, end)
        advance, limits = Advance(None, self.simulated), tuple(map(end.counted, self.objectives))
        return Finder(asked, "rate", limits, self.question.scale, advance)

    def of_layout(self, layout: Candidate, end: EndTimes = PREDICTED) -> Finder:
        """The finder of fleets of one layout."""
        return self.finder(layout.settings(self.scenario), end)


@dataclass(frozen=True)
class Sized:
    """The smallest fleet of a layout that holds the target load.

    ``alone`` is the rate that one replica holds, as it was estimated or seen, ``at_target`` what
    its fleet does under the target load, ``smaller`` what one with a replica less does (None: ruled
    out without simulating). ``slope`` is the power of the load of each replica by which latencies
    grow near their limits.
    ``price`` of a replica in USD per hour. ``note`` says that its KV cache is small. ``usual`` is
    the number of requests of a run that nothing made longer, ``flattered`` whether in such runs a
    replica less would do.
    ``survivors`` is what is left of it does at the wanted rate when ``survive`` replicas are gone,
    None where none may be.
    """

    layout: Candidate
    price: float
    replicas: int
    alone: float
    at_target: Probe
    smaller: Probe | None
    note: str = ""
    usual: int = 0
    flattered: bool = False
    survive: int = 0
    survivors: Probe | None = None
    slope: float = SLOPE

    @property
    def gpus(self) -> int:
        """GPUs of the fleet."""
        return self.replicas * self.layout.gpus

    @property
    def cost(self) -> float:
        """USD per hour of the fleet."""
        return self.price * self.replicas


@dataclass(frozen=True)
class Confirmed:
    """A fleet with what it does at the wanted load, before headroom, and the highest it holds."""

    sized: Sized
    at_rate: Probe
    best: Probe
    fails: Probe | None


def size(search: FleetSearch, screened: Screened) -> Sized | Rejected:
    """The smallest fleet of a layout that holds the target load, or why there is none.

    Without the replicas that it must survive it holds the load without headroom.
    """
    layout, question = screened.layout, search.question
    target, spare = question.target, question.constraints.survive
    least = max(screened.least, spare + 1)
    try:
        finder = search.of_layout(layout)
        alone, replicas = finder.first_rate, None
        if finder.guessed_well:
            replicas, most = _smallest(finder, question, least, alone)
        if replicas is None:
            best, fails = _alone(finder)
            if best is None or (fails is not None and fails.cut and not best.sure):
                assert fails is not None
                if fails.cut:
                    why = cut_off(search.scenario)
                    return Rejected(layout, "cut off", why, screened.price)
                return _not_even(layout, fails, screened.price)
            alone = best.load
            replicas, most = _smallest(finder, question, least, alone)
        if replicas is None:
            last = lasting(finder, target, most)
            return Rejected(layout, f"{limit_name(last.breaks)} missed", _no_fleet(most, last))
        fewer = lasting(finder, target, replicas - 1) if replicas > least else None
        if fewer is not None and fewer.holds:  # it is there to survive
            fewer = None
        flattered = fewer is not None and quick(finder, target, replicas - 1).holds
        usual = quick(finder, target, replicas)
    except InfersimError as error:
        return Rejected(layout, "cannot be simulated", str(error))
    broken = next(over_budget(layout, replicas, screened.price, question.constraints), None)
    if broken is not None:
        return Rejected(layout, "constraint", broken, replicas * screened.price)
    return Sized(
        layout=layout,
        price=screened.price,
        replicas=replicas,
        alone=alone,
        at_target=lasting(finder, target, replicas),
        smaller=fewer,
        note=screened.note,
        usual=usual.per_run,
        flattered=flattered,
        survive=spare,
        survivors=lasting(finder, question.rate, replicas - spare) if spare else None,
        slope=_slope(finder.fleets(target), replicas),
    )


def _alone(finder: Finder) -> tuple[Probe | None, Probe | None]:
    """(highest load that one replica holds, lowest that fails), by as few runs as decide it."""
    best, fails = finder.find(1, ROUGH, most=1)
    if best is None or (fails is not None and fails.cut):
        best, fails = finder.find(1, ROUGH, most=SEVERAL)
    return best, fails


def _smallest(
    finder: Finder, question: FleetQuestion, least: int, alone: float
) -> tuple[int | None, int]:
    """``smallest_fleet`` near the number of replicas that are needed if each holds as much as one
    ``alone``, and the most that are tried."""
    left = math.ceil(question.rate / alone) + question.constraints.survive
    near = max(least, math.ceil(question.target / alone), left)
    return smallest_fleet(finder, question, least, near, FAR * near), FAR * near


def _slope(fleets: Mapping[int, Probe], replicas: int) -> float:
    """By what power of the load of each replica latencies grow near their limits, from usual runs
    of larger ``fleets``, which say what slower iterations ask for, else of smaller ones too."""
    near = {
        number: probe.strain
        for number, probe in fleets.items()
        if 1 / AROUND <= number / replicas <= AROUND and math.isfinite(probe.strain)
    }
    larger = [number for number in near if number >= replicas]
    few, many = min(larger, default=0), max(larger, default=0)
    if few == many and near:
        few, many = min(near), max(near)
    if few == many:
        return SLOPE
    slope = (near[few] - near[many]) / math.log(many / few)
    return min(max(slope, SLOPES[0]), SLOPES[1])


def smallest_fleet(
    finder: Finder, question: FleetQuestion, least: int, guess: int, most: int, coarse: float = 0.0
) -> int | None:
    """The smallest fleet from ``least`` to ``most`` replicas that holds the target, and the rate
    without those that it must survive; None if there is none. It is looked for from ``guess`` on by
    single usual runs, whose strain leads there soon; then next to what these say by those that
    decide. With a ``coarse`` share one run of a length decides, and strain says where the answer is
    between two fleets that are so close."""
    spare = question.constraints.survive

    def strain(replicas: int, judge: Judge) -> float:
        if replicas <= spare:
            return math.inf
        asked = [(question.target, replicas), (question.rate, replicas - spare)]
        return max(judge(finder, *each).strain for each in asked[: 2 if spare else 1])

    if coarse:
        once = _Once()
        return smallest(lambda replicas: strain(replicas, once), least, guess, most, coarse)
    near = smallest(lambda replicas: strain(replicas, quick), least, guess, most) or most
    fewer = near - 1
    if fewer >= least and abs(strain(fewer, quick)) < abs(strain(near, quick)):
        near = fewer  # the change is as likely below it
    return next_to(lambda replicas: strain(replicas, lasting) <= 0, least, near, most)


class _Once:
    """Decides by one run of each length; once a usual one has left a fleet open, those of fleets
    that are about as large would too, and the longer ones are made at once."""

    def __init__(self) -> None:
        self._open = False

    def __call__(self, finder: Finder, load: float, replicas: int) -> Probe:
        found = lasting(finder, load, replicas, most=1, at_once=self._open)
        if not self._open:
            usual = quick(finder, load, replicas)
            self._open = found.per_run > usual.per_run
        return found


def next_to(holds: Callable[[int], bool], least: int, near: int, most: int) -> int | None:
    """The smallest number from ``least`` to ``most`` that ``holds``, which is ``near`` or one of
    the next; None if there is none. What holds for a number holds for larger ones.

    >>> tried = []
    >>> next_to(lambda n: tried.append(n) or n >= 9, 1, 7, 40), tried
    (9, [7, 8, 9])
    >>> next_to(lambda n: n >= 9, 1, 12, 40), next_to(lambda n: n >= 9, 1, 3, 8)
    (9, None)
    """
    low, high = least - 1, most + 1  # fails, and holds, as far as is known
    asked, step, further = near, 1, 1
    while high - low > 1:
        if holds(asked):
            high = asked
        else:
            low = asked
        if low >= least and high <= most:
            asked = (low + high) // 2
        else:
            asked = min(low + step, most) if high > most else max(high - step, least)
            step, further = further, step + further
    return high if high <= most else None


def smallest(
    strain: Callable[[int], float], least: int, guess: int, most: int, coarse: float = 0.0
) -> int | None:
    """The smallest number from ``least`` to ``most`` that holds, looked for from ``guess`` on; None
    if there is none. What holds for a number holds for larger ones. With a ``coarse`` share, what
    strain says that it is between two that are so close.

    ``strain`` is at most 0 for a number that holds and above 0 for one that does not, as in
    ``sim.planning.load.search``.

    >>> smallest(lambda n: math.log(7 / n), 2, 9, 40), smallest(lambda n: math.log(7 / n), 1, 3, 6)
    (7, None)
    """
    strains: dict[float, float] = {}

    def failing(number: float) -> float:
        strains[number] = found = strain(int(number))
        return -found if found > 0 else max(-found, SOME)

    found = search(
        failing, guess, lowest=least, highest=most, tolerance=coarse, whole=True, slope=FLAT
    )
    if found.fails is None or found.holds is None:
        return None if found.fails is None else int(found.fails)
    few, many = found.holds, found.fails
    fall = strains[few] - strains[many]
    if not 0 < fall < math.inf:
        return int(many)
    root = few * math.exp(strains[few] / fall * math.log(many / few))
    return int(min(max(math.ceil(root), few + 1), many))


def confirm(search: FleetSearch, sized: Sized) -> Confirmed:
    """The fleet's results at the wanted rate, and the highest rate that a usual run holds. Less
    than the load that it is sure to hold it holds as surely."""
    finder, rate = search.of_layout(sized.layout), search.question.rate
    held, replicas = sized.at_target, sized.replicas
    best, fails = finder.above(held, replicas, TOLERANCE)
    if rate == held.load:
        at_rate = held
    elif rate < held.load and held.sure and not finder.waits_for_batches:
        at_rate = replace(quick(finder, rate, replicas), holds=True, sure=True)
    else:
        at_rate = lasting(finder, rate, replicas)
    return Confirmed(sized, at_rate, best, fails)


def _not_even(layout: Candidate, probe: Probe, price: float) -> Rejected:
    """Rejected since not even a trickle holds; ``probe`` is that of the lowest load."""
    if probe.breaks == Unserved.REJECTED and probe.rejection is not None:
        return Rejected(layout, REJECTS, refused(probe), price)
    text = (
        f"one replica at {show_load(probe.load, 3)} requests/s, where requests hardly meet each "
        f"other: {missed(probe)}"
    )
    return Rejected(layout, f"{limit_name(probe.breaks)} missed at any load", text, price)


def _no_fleet(replicas: int, probe: Probe) -> str:
    return (
        f"even with {counted(replicas, 'replica')} it does not hold {show_load(probe.load, 3)} "
        f"requests/s: {missed(probe)}"
    )
