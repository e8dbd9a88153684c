"""Finds the highest load that lasts: a short run starts with an empty system and flatters.

The load that the scenario's own length gives is tried in runs that are ``LONGER`` times as long.
Where they contradict it, the search begins again with these, and so on, until longer runs do not,
or would take too many requests. They also say up to which load no doubt is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.metrics.long_enough import DOUBT, STEADY
from sim.planning.load.probe import FEWEST, LONG_ENOUGH, MOST, Probe
from sim.planning.points.wording import FAILS, HOLDS

if TYPE_CHECKING:
    from sim.planning.load.finder import Finder, Tell
    from sim.planning.load.loads import LoadAxis

LONGER = 4
"""Times by which runs grow. Close to the highest load of the chat scenario, the empty start is felt
in the first 2,000 to 3,000 requests of a run."""

ENDLESS = (*STEADY, "closed")
"""Arrivals that go on as they are, so that a longer run asks the same question."""

STEPS = 5
"""Loads at which an end without doubt is looked for, in steps that double."""

FIRST_STEP = 1.5
"""The first of these steps, in tolerances."""


@dataclass(frozen=True)
class Settled:
    """The bracket (as of ``Finder.find``) that runs ``stretch`` times as long as usual gave.

    ``first`` is what the usual ones gave. ``longest`` is the stretch of the longest runs, 1 if
    nothing longer was tried; ``check`` is what these made of ``best``, None if they gave it, and
    ``sure`` the highest load that holds in them without doubt, and ``missed`` the lowest that does
    not, both under seeds of their own, None if there is none. ``lasts`` is whether longer runs
    would ask the same question.
    """

    best: Probe | None
    fails: Probe | None
    first: Probe | None
    stretch: int = 1
    longest: int = 1
    check: Probe | None = None
    sure: Probe | None = None
    missed: Probe | None = None
    lasts: bool = False

    @property
    def confirmed(self) -> bool:
        """Whether ``best`` holds in longer runs too."""
        known = (self.check, self.sure) if self.longest > self.stretch else ()
        return any(each is not None and each is self.best for each in known)

    def with_longest(self, probes: Sequence[Probe]) -> tuple[Probe, ...]:
        """``probes``, with the longest runs instead where these are what the answer rests on."""
        told = {probe.load: probe for probe in probes}
        ends = (self.sure, self.missed, self.fails, self.best)
        told |= {probe.load: probe for probe in ends if probe is not None}
        return tuple(probe for _, probe in sorted(told.items()))

    def document(self) -> dict[str, Any]:
        """Requests per run: of the ``first`` runs, with the load that these gave, and at the
        highest load those of the ``answer`` and the ``longest``."""
        assert self.best is not None
        assert self.first is not None
        times = self.longest // self.stretch
        requests = self.best.requests // self.best.runs
        answer = requests // times if self.confirmed else requests
        return {
            "first": self.first.requests // self.first.runs,
            "first_load": self.first.load,
            "answer": answer,
            "longest": answer * times,
            "confirmed": self.confirmed,
            "lasts": self.lasts,
        }


def settle(finder: Finder, replicas: int, tolerance: float, tell: Tell | None) -> Settled:
    """The highest load in runs that longer ones do not contradict, as far as the budget goes."""
    best, fails = finder.find(replicas, tolerance, tell=tell)
    first, longer_ask_the_same = best, lasts(finder)
    if best is None or not longer_ask_the_same:
        return Settled(best, fails, first, lasts=longer_ask_the_same)
    stretch, last, check = 1, longest_stretch(best), None
    while stretch < last:
        check = finder.probe(best.load, replicas, stretch=LONGER * stretch)
        if tell is not None:
            tell(check)
        if check.holds or not _contradicts(check, best):
            break
        stretch, guess, step = LONGER * stretch, best.load, FIRST_STEP * tolerance
        best, fails = finder.find(
            replicas, tolerance, tell=tell, guess=guess, first_step=step, stretch=stretch
        )
        check = None
        if best is None:
            return Settled(None, fails, first, stretch, stretch, lasts=True)
    longest = stretch if check is None else LONGER * stretch
    _begin(finder, check or best, fails, replicas, tolerance, longest)
    sure = _sure(finder, check or best, replicas, tolerance, longest)
    missed = None if fails is None else _missed(finder, fails, replicas, tolerance, longest)
    if check is not None and check.holds:
        best = check
    checked = best is check and best.outcome == HOLDS
    if sure is not None and sure.load == best.load and not checked:
        best = sure
    if fails is not None and missed is not None and missed.load == fails.load:
        fails = missed
    return Settled(best, fails, first, stretch, longest, check, sure, missed, lasts=True)


def _contradicts(longer: Probe, best: Probe) -> bool:
    """Whether longer runs say of a load that held what the interval of the shorter ones rules
    out."""
    shares = zip(longer.attained, best.attained, strict=True)
    return longer.sure or any(late.share < early.low for late, early in shares)


def longest_stretch(usual: Probe) -> int:
    """Times as long as the ``usual`` ones that the longest runs are for which there is budget."""
    requests, stretch = usual.requests // usual.runs, 1
    most = max(MOST * requests, LONG_ENOUGH)
    while FEWEST * requests * LONGER * stretch <= most:
        stretch *= LONGER
    return stretch


def lasts(finder: Finder) -> bool:
    """Whether there is an SLO to check in longer runs, and these have more of the same traffic."""
    return bool(finder.objectives) and goes_on(finder.axis)


def goes_on(axis: LoadAxis) -> bool:
    """Whether longer runs have more of the same traffic."""
    scenario = axis.scenario
    arrivals = scenario.workload.arrivals
    steady = axis.whole or (arrivals is not None and arrivals.kind in ENDLESS)
    made_up = scenario.workload.trace is None and scenario.run.requests is not None
    return steady and made_up and scenario.run.horizon is None


def _sure(
    finder: Finder, best: Probe, replicas: int, tolerance: float, stretch: int
) -> Probe | None:
    """The highest load, of some from ``best`` downwards, that holds without doubt and leaves some
    capacity, without which a queue grows for ever, however slowly."""
    for step in _steps(tolerance, best):
        probe = finder.again(_placed(finder, best.load / (1 + step), down=True), replicas, stretch)
        full = probe.utilisation is not None and probe.utilisation > 1 - DOUBT
        if probe.outcome == HOLDS and not full:
            return probe
    return None


def _missed(
    finder: Finder, fails: Probe, replicas: int, tolerance: float, stretch: int
) -> Probe | None:
    """The lowest load, of some from ``fails`` upwards, that misses the SLO without doubt."""
    for step in _steps(tolerance, fails):
        probe = finder.again(_placed(finder, fails.load * (1 + step)), replicas, stretch)
        if probe.outcome == FAILS:
            return probe
    return None


def _begin(
    finder: Finder, best: Probe, fails: Probe | None, replicas: int, tolerance: float, stretch: int
) -> None:
    """Begin the runs at the first loads at which ``_sure`` and ``_missed`` look."""
    down = _placed(finder, best.load / (1 + _steps(tolerance, best)[0]), down=True)
    finder.ahead(down, replicas, stretch=stretch, fresh=True)
    if fails is not None:
        up = _placed(finder, fails.load * (1 + _steps(tolerance, fails)[0]))
        finder.ahead(up, replicas, stretch=stretch, fresh=True)


def _steps(tolerance: float, end: Probe) -> list[float]:
    """How far from one ``end`` of the bracket to look, as shares: not there where the runs that
    found it leave doubt, since others of as many requests would too."""
    first = FIRST_STEP * tolerance
    further = [first * 2**power for power in range(STEPS - 1)]
    return [0.0, *further] if end.sure else further


def _placed(finder: Finder, load: float, *, down: bool = False) -> float:
    """A load that there is: of users a whole number."""
    if not finder.axis.whole:
        return load
    return max(1.0, float(math.floor(load) if down else math.ceil(load)))
