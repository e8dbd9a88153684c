"""Sizes the fleet of one layout by simulation: the replicas that hold a load behind their router.

First one replica alone: the rate that it holds says roughly how many are needed. Then fleets of
about that many, with their router and the whole traffic, until the smallest that holds is found:
larger fleets hold more than in proportion, since they share the unevenness of the traffic. Where
a short run's empty start may have decided, longer ones do (``sim.planning.load.lasting``).

``fleet_ends`` sizes a fleet again for iterations that are faster or slower than predicted, since a
capacity within an SLO reacts more strongly than in proportion to the speed of iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.ends import at_factor, end_factors
from sim.errors import InfersimError
from sim.metrics.bands import half_of
from sim.metrics.objectives import REJECTED, Objective
from sim.planning.fleet.constraints import Constraints
from sim.planning.fleet.layouts import REJECTS, Candidate, Rejected, Screened, over_budget
from sim.planning.load.finder import Finder
from sim.planning.load.lasting import lasting, quick
from sim.planning.load.loads import Scale
from sim.planning.load.probe import SEVERAL, Probe, cut_off, missed, refused
from sim.planning.load.search import SLOPE, search
from sim.planning.points.wording import counted, limit_name
from sim.scenario import Scenario

ROUGH = 0.05
"""Tolerance of the rate that one replica holds, which is only a guess at how many are needed."""

NEAR = 0.03
"""The strain below which a usual run that leaves doubt is close enough to begin with longer ones;
it changes no answer."""

SOME = 1e-6
"""Any strain above 0."""

Judge = Callable[[Finder, float, int], Probe]
"""What says whether a load holds on that many replicas."""

FAR = 4
"""Times the guessed number of replicas up to which a fleet is tried."""


@dataclass(frozen=True)
class Sized:
    """The smallest fleet of a layout that holds the target load.

    ``alone`` is the highest rate of one replica, ``at_target`` what its fleet does under the target
    load, ``smaller`` what one with a replica less does (None: ruled out without simulating).
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


def size(
    scenario: Scenario,
    screened: Screened,
    target: float,
    objectives: Sequence[Objective],
    constraints: Constraints,
    scale: Scale = "compress",
    rate: float = 0.0,
) -> Sized | Rejected:
    """The smallest fleet of a layout for ``target`` requests per second, or why there is none.

    Without ``constraints.survive`` of its replicas it holds ``rate`` requests per second.
    """
    layout = screened.layout
    try:
        finder = Finder(scenario.override(layout.settings(scenario)), "rate", objectives, scale)
        best, fails = finder.find(1, ROUGH, most=SEVERAL)
        if best is not None and not finder.probe(best.load, 1).holds:  # few runs, and luck
            best, fails = finder.find(1, ROUGH)
        if best is None or (fails is not None and fails.cut and not best.sure):
            assert fails is not None
            if fails.cut:
                return Rejected(layout, "cut off", cut_off(scenario), screened.price)
            return _not_even(layout, fails, screened.price)
        spare = constraints.survive
        least = max(screened.least, spare + 1)
        guess = max(least, math.ceil(target / best.load), math.ceil(rate / best.load) + spare)

        most = FAR * guess
        replicas = _fleet(finder, target, rate, spare, least, guess, most)
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
    broken = next(over_budget(layout, replicas, screened.price, constraints), None)
    if broken is not None:
        return Rejected(layout, "constraint", broken, replicas * screened.price)
    return Sized(
        layout=layout,
        price=screened.price,
        replicas=replicas,
        alone=best.load,
        at_target=lasting(finder, target, replicas),
        smaller=fewer,
        note=screened.note,
        usual=usual.requests // usual.runs,
        flattered=flattered,
        survive=spare,
        survivors=lasting(finder, rate, replicas - spare) if spare else None,
    )


def _fleet(
    finder: Finder, target: float, rate: float, spare: int, least: int, guess: int, most: int
) -> int | None:
    """The smallest fleet from ``least`` to ``most`` replicas that holds ``target``, and without
    ``spare`` of them ``rate``; None if there is none. It is looked for from ``guess`` on: by usual
    runs until one leaves doubt, then by those that decide."""
    seen: dict[int, float] = {}
    open_: list[int] = []

    def strain(replicas: int, judge: Judge) -> tuple[float, bool]:
        if replicas <= spare:
            return math.inf, True
        asked = [(target, replicas), (rate, replicas - spare)][: 2 if spare else 1]
        probes = [judge(finder, *each) for each in asked]
        return max(each.strain for each in probes), all(each.sure for each in probes)

    def roughly(replicas: int) -> float:
        if open_:
            return 0.0 if replicas >= open_[0] else SOME
        found, sure = strain(replicas, quick)
        seen[replicas] = found
        if not sure and abs(found) < NEAR:
            open_.append(replicas)
            return 0.0
        return found

    near = smallest(roughly, least, guess, most) or most
    finite = sorted((n, found) for n, found in seen.items() if math.isfinite(found))
    slope = SLOPE
    if len(finite) > 1:
        (few, more), (many, less) = sorted(finite, key=lambda each: abs(each[0] - near))[:2]
        slope = (less - more) / math.log(few / many)
    return smallest(lambda replicas: strain(replicas, lasting)[0], least, near, most, slope)


def smallest(
    strain: Callable[[int], float], least: int, guess: int, most: int, slope: float = SLOPE
) -> int | None:
    """The smallest number from ``least`` to ``most`` that holds, looked for from ``guess`` on;
    None if there is none. What holds for a number holds for larger ones.

    ``strain`` is at most 0 for a number that holds and above 0 for one that does not, as in
    ``sim.planning.load.search``; it falls as the power ``slope`` of the number.

    >>> smallest(lambda n: math.log(7 / n), 2, 9, 40), smallest(lambda n: math.log(7 / n), 1, 3, 6)
    (7, None)
    """

    def failing(number: float) -> float:
        found = strain(int(number))
        return -found if found > 0 else max(-found, SOME)

    found = search(
        failing, guess, lowest=least, highest=most, tolerance=0.0, whole=True, slope=slope
    )
    return None if found.fails is None else int(found.fails)


def confirm(
    scenario: Scenario,
    sized: Sized,
    rate: float,
    objectives: Sequence[Objective],
    tolerance: float,
    scale: Scale = "compress",
) -> Confirmed:
    """What the fleet does at ``rate``, and the highest rate that usual runs hold."""
    settings = {**sized.layout.settings(scenario)}
    finder = Finder(scenario.override(settings), "rate", objectives, scale)
    guess = sized.at_target.load * (1 + tolerance)
    best, fails = finder.find(sized.replicas, tolerance, guess=guess)
    if best is None or best.load < sized.at_target.load:
        best = sized.at_target  # seen to hold: chance alone says otherwise
    known = rate == sized.at_target.load
    at_rate = sized.at_target if known else lasting(finder, rate, sized.replicas)
    return Confirmed(sized, at_rate, best, fails)


def _not_even(layout: Candidate, probe: Probe, price: float) -> Rejected:
    """Rejected since not even a trickle holds; ``probe`` is that of the lowest load."""
    if probe.breaks == REJECTED and probe.rejection is not None:
        return Rejected(layout, REJECTS, refused(probe), price)
    text = (
        f"one replica at {probe.load:.3g} requests/s, where requests hardly meet each other: "
        f"{missed(probe)}"
    )
    return Rejected(layout, f"{limit_name(probe.breaks)} missed at any load", text, price)


def _no_fleet(replicas: int, probe: Probe) -> str:
    return (
        f"even with {counted(replicas, 'replica')} it does not hold {probe.load:.3g} requests/s: "
        f"{missed(probe)}"
    )


@dataclass(frozen=True)
class FleetEnds:
    """Replicas for the target load if iterations are faster (``fewest``) and slower (``most``) by
    the share ``error``; None if ``FAR`` times as many do not hold it either.

    ``holds_if_slower``: whether the fleet of the predicted size still holds the wanted load,
    without headroom, if iterations are slower; ``holds_at_half``: if they are slower by the 50 %
    band alone.
    """

    error: float
    fewest: int
    most: int | None
    holds_if_slower: bool
    holds_at_half: bool = True


def fleet_ends(
    scenario: Scenario,
    sized: Sized,
    target: float,
    rate: float,
    objectives: Sequence[Objective],
    scale: Scale = "compress",
) -> FleetEnds:
    """What the error band of iteration times does to the size of a fleet.

    ``target`` is the load that the fleet must hold, ``rate`` that without headroom; requests per
    second. ``scale`` says how a trace gets them.
    """
    error, mine, spare = sized.at_target.error, sized.replicas, sized.survive
    if not error:
        return FleetEnds(0.0, mine, mine, True)
    own = scenario.override(sized.layout.settings(scenario))
    faster, slower = (
        Finder(at_factor(own, factor), "rate", objectives, scale) for factor in end_factors(error)
    )

    least, fewer = spare + 1, mine - 1
    fewest = _fleet(faster, target, rate, spare, least, fewer, fewer) if fewer >= least else None
    holds = at_half = lasting(slower, rate, mine - spare).holds
    if not holds:
        half = Finder(at_factor(own, 1 + half_of(error)), "rate", objectives, scale)
        at_half = lasting(half, rate, mine - spare).holds
    return FleetEnds(
        error=error,
        fewest=fewest or mine,
        most=_fleet(slower, target, rate, spare, mine, mine, FAR * mine),
        holds_if_slower=holds,
        holds_at_half=at_half,
    )
