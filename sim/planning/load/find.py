"""Finds the highest load that a scenario holds, by simulation from the analytic estimate on.

Rates in requests per second; concurrency in users of a closed loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.ends import at_factor, end_factors
from sim.errors import InfeasibleError, UsageError
from sim.metrics.objectives import REJECTED, Objective, slo_objectives
from sim.metrics.trust import GUESS, LIKELY, SURE
from sim.planning.load.advance import Advance, Progress
from sim.planning.load.band_ends import (
    Ends,
    PlayedLoad,
    looked_for,
    only_iterations_take_time,
    read_off,
    slope_at,
)
from sim.planning.load.finder import Finder, Tell
from sim.planning.load.loads import (
    Kind,
    LoadAxis,
    Scale,
    check_whole_curve,
)
from sim.planning.load.probe import (
    SEVERAL,
    Probe,
    cut_off,
    missed,
    refused,
)
from sim.planning.load.saturation import (
    ROOM,
    Saturation,
)
from sim.planning.load.search import Knee, knee
from sim.planning.load.settled import Settled, settle
from sim.planning.points.copies import Workers, cores, result_of
from sim.planning.points.wording import limit_name
from sim.scenario import Scenario
from sim.schedulers import ChunkedPrefill
from sim.simulation import is_random

TOLERANCE = 0.02

CURVE = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2)
"""Shares of the load found at which the throughput-latency curve is drawn: closely where it bends.
Far below, where latencies hardly change, a run takes twice the time of one near the capacity."""

SAME = 1e-3
"""Loads that differ by no more than this share are one in the curve: the search has tried it."""


@dataclass(frozen=True)
class FoundLoad:
    """The answer: ``best`` is the probe of the highest load that holds, ``fails`` that of the
    lowest one seen to fail above it (None: nothing failed), ``own`` that of the scenario's own
    load, None if it has none of this kind. ``settled`` says how long the runs were, and
    ``traffic_notes`` what a reader should know of the traffic."""

    axis: LoadAxis
    scenario: Scenario
    objectives: tuple[Objective, ...]
    tolerance: float
    saturation: Saturation
    best: Probe
    fails: Probe | None
    own: Probe | None
    probes: tuple[Probe, ...]
    knee: Knee | None
    ends: Ends | None
    settled: Settled
    traffic_notes: tuple[str, ...] = ()

    @property
    def random(self) -> bool:
        """Whether more requests could be drawn; a trace has no more."""
        return is_random(self.scenario)


def find(
    scenario: Scenario,
    kind: Kind,
    *,
    tolerance: float = TOLERANCE,
    tell: Tell | None = None,
    scale: Scale = "compress",
    jobs: int = 1,
    progress: Progress | None = None,
) -> FoundLoad:
    """The highest rate or concurrency at which ``scenario`` keeps its SLO; without an SLO, the
    highest rate that the verdict calls stable.

    ``tell`` is called with each probe, ``progress`` with the requests that were played and those
    expected in all; ``scale`` says how a trace gets another load; up to ``jobs``
    runs are played at a time, -1 for one on each core, which changes no answer. Raises UsageError
    where there is no such load to look for, InfeasibleError where nothing fits, or the SLO is
    missed even by requests that come one by one.
    """
    objectives = slo_objectives(scenario)
    if not objectives and kind == "concurrency":
        raise UsageError(
            "a closed loop is never overloaded, so without an SLO it has no highest concurrency; "
            "give slo.ttft or slo.tpot"
        )
    if kind == "rate":
        check_whole_curve(scenario)
    finder = Finder(scenario, kind, objectives, scale, Advance(progress))
    with finder.side_by_side(cores() if jobs == -1 else jobs) as copies:
        return _found(finder, tolerance, tell, copies)


def _found(
    finder: Finder, tolerance: float, tell: Tell | None, copies: Workers | None
) -> FoundLoad:
    scenario = finder.axis.scenario
    replicas = scenario.replicas
    settled = settle(finder, replicas, tolerance, tell)
    best, fails, stretch = settled.best, settled.fails, settled.stretch
    if best is None:
        assert fails is not None
        if fails.cut:
            raise UsageError(cut_off(scenario))
        raise InfeasibleError(_not_even(finder, fails, replicas))
    tried, length = finder.probes(replicas, stretch), _length(finder, best, replicas, stretch)
    near = max(tolerance, (best.error or 0.0) / 2)
    power = 1 + 1 / slope_at(best, finder.probes(replicas, stretch))
    searches = [
        (finder.axis, finder.objectives, each, best.load / each**power, near, stretch)
        for each in (end_factors(best.error) if best.error else ())
    ]
    readable = only_iterations_take_time(finder.axis)
    begun = [copies.submit(_end, *each) for each in searches] if copies and not readable else []
    points = _points(finder, best, tried)
    each = length or best.requests // best.runs
    finder.advance.expect(each * (1 + sum(most for _, most in points)))
    for load, most in points:
        finder.ahead(load, replicas, length=length, most=most)
    own = None
    if finder.axis.own is not None:
        own = finder.probe(finder.axis.own, replicas, stretch=stretch)
    added = [finder.of_length(load, replicas, length, most) for load, most in points]
    curve = sorted([*finder.probes(replicas, stretch), *added], key=_load)
    alike = [each for each in curve if length in (None, each.requests // each.runs)]
    known = [PlayedLoad(probe, stretch, None) for probe in tried]
    known += [PlayedLoad(probe, 1, length) for probe in added]
    ends = None
    if best.error and begun:
        faster, slower = map(result_of, begun)
        ends = _around(best, faster, slower)
    elif best.error:
        faster, slower = (
            _read_or_searched(finder, replicas, known if readable else (), search)
            for search in searches
        )
        ends = _around(best, faster, slower)
    return FoundLoad(
        axis=finder.axis,
        scenario=scenario,
        objectives=finder.objectives,
        tolerance=tolerance,
        saturation=Saturation(
            finder.saturation.rate * replicas, finder.saturation.slots * replicas
        ),
        best=best,
        fails=fails,
        own=own,
        probes=settled.with_longest(curve),
        knee=knee([probe for probe in alike if probe.load <= best.load]),
        ends=ends,
        settled=settled,
        traffic_notes=finder.traffic_notes,
    )


_Search = tuple[LoadAxis, tuple[Objective, ...], float, float, float, int]
"""What ``_end`` is asked: of which load and objectives, the factor of all times, the load to begin
with, how near to look, and how much longer than usual its runs are."""


def _end(
    _: object,
    axis: LoadAxis,
    objectives: Sequence[Objective],
    factor: float,
    guess: float,
    near: float,
    stretch: int,
) -> float | None:
    """The highest load with all times multiplied by ``factor``, by simulation; in a copy of this
    process too."""
    other = Finder(at_factor(axis.scenario, factor), axis.kind, objectives, axis.scale)
    return looked_for(other, guess, near, stretch)


def _read_or_searched(
    finder: Finder, replicas: int, known: Sequence[PlayedLoad], search: _Search
) -> float | None:
    """The same, from ``known`` runs where these say it."""
    _, _, factor, _, near, _ = search
    found = read_off(finder, replicas, factor, known, near) if known else None
    return _end(None, *search) if found is None else found


def _around(best: Probe, faster: float | None, slower: float | None) -> Ends:
    """The ends of the band around ``best``, which is the lower end of its bracket, where those at
    the ends lie inside theirs."""
    assert best.error is not None
    return Ends(
        best.error,
        slower if slower is None else min(slower, best.load),
        faster if faster is None else max(faster, best.load),
    )


def _load(probe: Probe) -> float:
    return probe.load


def _length(finder: Finder, best: Probe, replicas: int, stretch: int) -> int | None:
    """Requests of one of the runs that found ``best``, None for a trace, which has its own: loads
    are compared in runs of one length, since the start and the end of a run count less in a longer
    one."""
    scenario = finder.axis.scenario
    if scenario.workload.trace is not None or scenario.run.requests is None:
        return None
    found = finder.probe(best.load, replicas, stretch=stretch)
    return found.requests // found.runs


def _points(finder: Finder, best: Probe, tried: Sequence[Probe]) -> list[tuple[float, int]]:
    """The loads that complete the throughput-latency curve, and the most runs of each: what was
    ``tried`` and the scenario's own load are on it already."""
    known, found = [each.load for each in tried], []
    if finder.axis.own is not None:
        known.append(finder.axis.own)
    for share in CURVE:
        load = best.load * share
        if finder.axis.whole:
            load = float(max(1, round(load)))
        if not any(math.isclose(load, other, rel_tol=SAME) for other in known):
            known.append(load)
            found.append((load, 1 if share < ROOM else SEVERAL))
    return found


def _not_even(finder: Finder, probe: Probe, replicas: int) -> str:
    """Why no load holds; ``probe`` is that of the lowest."""
    unit = finder.axis.unit
    if not probe.attained:
        return f"not even {probe.load:.3g} {unit} are stable: {probe.state}"
    if probe.breaks == REJECTED and probe.rejection is not None:
        return f"the SLO cannot be met at any load: {refused(probe)}"
    if finder.waits_for_batches:
        whole = (pool.settings for pool in finder.pools if pool.policy.shape.whole)
        batching = next(whole).scheduler.batching
        best = max(finder.probes(replicas), key=lambda each: min(a.share for a in each.attained))
        return (
            f"no load that was tried meets the SLO: it comes closest at {best.load:.3g} {unit} "
            f"({missed(best)}); with {batching} batching requests wait for a batch, so "
            f"take smaller batches (scheduler.max_num_seqs) or {ChunkedPrefill.name} batching"
        )
    return (
        f"the SLO cannot be met at any load: at {probe.load:.3g} {unit}, where requests "
        f"hardly meet each other, {missed(probe)}; the {limit_name(probe.breaks)} limit is too "
        "tight for this replica: allow more, or take a faster GPU, more tensor_parallel or a lower "
        f"precision. {_refusal_trust(finder, probe, replicas)}"
    )


def _refusal_trust(finder: Finder, probe: Probe, replicas: int) -> str:
    """How sure it is that the lowest load misses the SLO: whether it does so at the faster end of
    the error band too."""
    if not probe.error or not probe.sure:
        return f"That is {GUESS}."
    faster, axis = end_factors(probe.error)[0], finder.axis
    scenario = at_factor(axis.scenario, faster)
    other = Finder(scenario, axis.kind, finder.objectives, axis.scale).probe(probe.load, replicas)
    band = f"iterations {probe.error:.0%} faster, the end of their 90 % band"
    if other.holds:
        return f"That is {LIKELY} at most: with {band}, this load holds."
    return f"That is {SURE}: with {band}, it fails too."
