"""Decides whether a load lasts: runs begin with an empty system, which flatters the short ones.

A usual run decides where its start cannot have decided: it fails without doubt, or it holds far
from the capacity and would even if all of its late requests had come after the start. Else runs
decide that are as long as those with which ``find`` checks its answer. Of traffic that ends there
are no longer runs.
"""

from __future__ import annotations

from dataclasses import replace

from sim.metrics.load.long_enough import DOUBT, FULL, holds_without_start
from sim.planning.load.finder import Finder
from sim.planning.load.probe import MOST, STABILITY, Probe
from sim.planning.load.settled import lasts, longest_stretch
from sim.planning.points.wording import LoadOutcome


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
    if longer.utilisation is not None and longer.utilisation > 1 - DOUBT:
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
