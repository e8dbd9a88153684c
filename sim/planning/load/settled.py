"""Finds the highest load that lasts, and whether a load does: short runs start empty, and flatter.

A few runs of the scenario's own length say roughly where the highest load is. There the search
begins again with runs as long as there are requests for, all of them under the same seeds at every
load: so loads are compared under one traffic, and how many runs there are hangs on nothing that
they show. ``open_between`` says what these leave open.

Of a single load (``lasting``) a usual run decides where its start cannot have decided: it fails
without doubt, or it holds far from the capacity and would even if all of its late requests had come
after the start. Else runs decide that are as long as those with which ``find`` checks its answer.
Of traffic that ends there are no longer runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from sim.metrics.latency.intervals import wilson
from sim.metrics.load.long_enough import DOUBT, FULL, holds_without_start
from sim.metrics.slo.objectives import Attained
from sim.planning.load.advance import LONG_LOADS, ROUGH_RUNS
from sim.planning.load.band_ends import crossed, slope_at
from sim.planning.load.finder import Finder, Guess, Tell
from sim.planning.load.loads import goes_on
from sim.planning.load.probe import FEWEST, LONG_ENOUGH, MOST, STABILITY, Probe
from sim.planning.points.wording import LoadOutcome

LONGER = 4
"""Times by which runs grow. Close to the highest load of the chat scenario, the empty start is felt
in the first 2,000 to 3,000 requests of a run."""

ROUGH = 0.05
"""How close together the loads are between which the usual runs leave the answer: two of them are
off by about as much."""


@dataclass(frozen=True)
class Settled:
    """The bracket (as of ``Finder.find``) that runs ``stretch`` times as long as usual gave.

    ``first`` is the highest load that a few usual ones held, and ``crossing`` the load at which
    these say that the SLO ceases to be met. ``sure`` is the load up to which chance in the runs
    leaves no doubt that it is met, ``missed`` that from which on it is missed; None where they do
    not say. ``lasts`` is whether longer runs would ask the same question.
    """

    best: Probe | None
    fails: Probe | None
    first: Probe | None
    stretch: int = 1
    crossing: float | None = None
    sure: float | None = None
    missed: float | None = None
    lasts: bool = False

    def with_longest(self, probes: Sequence[Probe]) -> tuple[Probe, ...]:
        """``probes``, with the longest runs instead where these are what the answer rests on."""
        told = {probe.load: probe for probe in probes}
        told |= {probe.load: probe for probe in (self.fails, self.best) if probe is not None}
        return tuple(probe for _, probe in sorted(told.items()))

    def document(self) -> dict[str, Any]:
        """Requests per run: of the ``first`` runs, with the load that these gave, and at the
        highest load those of the ``answer``, which are the ``longest``: none longer ``confirmed``
        it."""
        assert self.best is not None
        assert self.first is not None
        requests = self.best.per_run
        return {
            "first": self.first.per_run,
            "first_load": self.first.load,
            "answer": requests,
            "longest": requests,
            "confirmed": False,
            "lasts": self.lasts,
        }


def settle(finder: Finder, replicas: int, tolerance: float, tell: Tell | None) -> Settled:
    """The highest load in runs as long as there are requests for."""
    if not lasts(finder):
        best, fails = finder.find(replicas, tolerance, tell=tell)
        return Settled(best, fails, best)
    rough = max(tolerance, ROUGH)
    usual = finder.usual_length(finder.first_rate * replicas, replicas)
    finder.advance.expect(ROUGH_RUNS * usual + LONG_LOADS * _of_a_load(usual))
    first, above = finder.find(replicas, rough, tell=tell, most=FEWEST)
    if first is None:
        first, above = finder.find(replicas, rough, tell=tell)
    if first is None:
        return Settled(None, above, None, lasts=True)
    crossing = first.load if above is None else crossed(first, above)
    usual = first.per_run
    stretch = longest_stretch(usual)
    finder.advance.expect(LONG_LOADS * _of_a_load(usual))
    best, fails = finder.find(
        replicas,
        tolerance,
        tell=tell,
        guess=Guess(
            crossing / math.sqrt(1 + tolerance),
            first_step=tolerance,
            slope=slope_at(first, finder.probes(replicas)),
        ),
        stretch=stretch,
        whole=True,
    )
    if best is None:
        return Settled(None, fails, first, stretch, crossing, lasts=True)
    sure, missed = open_between(best, fails, finder.probes(replicas, stretch))
    if finder.axis.whole:
        sure = None if sure is None else float(math.floor(sure)) or None
        missed = None if missed is None else float(math.ceil(missed))
    return Settled(best, fails, first, stretch, crossing, sure, missed, lasts=True)


def longest_stretch(requests: int) -> int:
    """Times as long as usual ones, of that many ``requests``, that the longest runs are for which
    there is budget."""
    stretch = 1
    most = max(MOST * requests, LONG_ENOUGH)
    while FEWEST * requests * LONGER * stretch <= most:
        stretch *= LONGER
    return stretch


def _of_a_load(usual: int) -> int:
    """Requests of the longest runs of a load, where usual ones have so many."""
    longest = usual * longest_stretch(usual)
    return longest * min(MOST, max(FEWEST, LONG_ENOUGH // longest))


def lasts(finder: Finder) -> bool:
    """Whether there is an SLO to check in longer runs, and these have more of the same traffic: the
    opening of a closed loop comes once, however long it goes on."""
    axis = finder.axis
    warmup = axis.scenario.run.warmup
    opening_counts = axis.whole and 0 in (warmup.requests, warmup.seconds)
    return bool(finder.objectives) and goes_on(axis) and not opening_counts


NEARBY = 0.15
"""How far from the answer, as a share, loads say how fast the share falls there."""

_NORMAL = NormalDist()


def open_between(
    best: Probe, fails: Probe | None, tried: Sequence[Probe]
) -> tuple[float | None, float | None]:
    """The load up to which it is sure that the SLO is met, and that from which on it is missed, by
    runs at ``best`` and ``fails`` and at what else was ``tried`` in as long runs; None where they
    do not say."""
    if fails is None:
        return (best.load if best.outcome == LoadOutcome.HOLDS and not _full(best) else None), None
    near = [each for each in tried if abs(math.log(each.load / best.load)) <= NEARBY]
    near = [best, fails, *near]
    low, high = math.inf, math.inf
    for index in range(len(best.attained)):
        seen = [(each.load, each.attained[index]) for each in near]
        worth = min(each.effective / max(1, each.requests) for _, each in seen)
        under, above = (_interval(each.attained[index], worth) for each in (best, fails))
        held, missed = under[0] >= _asked(seen), above[1] < _asked(seen)
        slope = _slope(seen)
        ends = (
            []
            if slope is None
            else [
                tuple(each.load * math.exp((end - _asked(seen)) / slope) for end in interval)
                for each, interval in ((best, under), (fails, above))
            ]
        )
        low = min(low, best.load if held else min((each[0] for each in ends), default=0.0))
        top = fails.load if missed else max((each[1] for each in ends), default=math.inf)
        high = min(high, top)
    low = min(low, best.load)
    if fails.breaks == STABILITY:  # a capacity that is worked out may be off by so much
        high = fails.load if fails.sure else fails.load * (1 + DOUBT)
    else:
        high = max(high, fails.load)
    if _full(best):  # without capacity to spare a queue grows for ever, however slowly
        assert best.utilisation is not None
        low = min(low, best.load * (1 - DOUBT) / best.utilisation)
    return low or None, high if math.isfinite(high) else None


def _full(probe: Probe) -> bool:
    return probe.utilisation is not None and probe.utilisation > 1 - DOUBT


def _slope(seen: Sequence[tuple[float, Attained]]) -> float | None:
    """By how much the probit of the share falls where the load is e times as high, from the loads
    that are furthest apart; None where it does not fall."""
    loads = [load for load, _ in seen]
    (low, more), (high, less) = (seen[loads.index(end(loads))] for end in (min, max))
    fall = _probit(more.share, more.effective) - _probit(less.share, less.effective)
    return fall / math.log(high / low) if fall > 0 and high > low else None


def _asked(seen: Sequence[tuple[float, Attained]]) -> float:
    return _NORMAL.inv_cdf(seen[0][1].objective.share)


def _interval(seen: Attained, worth: float) -> tuple[float, float]:
    """The 95 % interval of the probit of a share if each request tells as much as ``worth``
    independent ones: a run that met no crowd does not show how much chance there is in one."""
    trials = worth * seen.requests
    low, high = (_probit(end, trials) for end in wilson(seen.share, trials))
    return low, high


def _probit(share: float, trials: float) -> float:
    """The probit of a share, of none or all of some trials as if half a one had been otherwise."""
    least = 0.5 / max(1.0, trials)
    return _NORMAL.inv_cdf(min(max(share, least), 1 - least))


def lasting(
    finder: Finder, load: float, replicas: int, *, most: int = MOST, at_once: bool = False
) -> Probe:
    """The probe that decides whether ``load`` holds on that many replicas, by at most ``most`` runs
    of each length, ``at_once`` by the longer ones; asked twice, simulated once."""
    if not lasts(finder):
        return finder.probe(load, replicas, most=most)
    if not at_once:
        usual = quick(finder, load, replicas)
        if _clear(finder, usual, replicas):
            return usual
        if usual.outcome == LoadOutcome.FAILS:
            return finder.probe(load, replicas)
    stretch = longest_stretch(finder.usual_length(load, replicas))
    longer = finder.probe(load, replicas, stretch=stretch, most=most)
    if _full(longer):
        # without capacity to spare a queue grows for ever, however slowly
        return replace(longer, holds=False, breaks=STABILITY)
    return longer


def quick(finder: Finder, load: float, replicas: int) -> Probe:
    """The probe of a load by one usual run, whatever doubt it leaves."""
    return finder.probe(load, replicas, most=1)


def _clear(finder: Finder, usual: Probe, replicas: int) -> bool:
    """Whether longer runs would hold as well.

    Below ``FULL`` queues come and go many times in a run, and what its empty start leaves out are
    the late requests of the time in which the batches fill.
    """
    if usual.utilisation is None or usual.utilisation >= FULL:
        return False
    start = finder.members(usual.load, replicas) / (usual.requests / usual.runs)
    return all(
        holds_without_start(each.low, each.objective.share, start) for each in usual.attained
    )
