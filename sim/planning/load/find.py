"""Finds the highest load that a scenario holds, by simulation from the analytic estimate on.

Rates in requests per second; concurrency in users of a closed loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sim.band_runs import at_end
from sim.copies import Workers, cores, result_of
from sim.errors import InfeasibleError, UsageError
from sim.metrics.bands.end_times import EndTimes
from sim.metrics.bands.trust import Trust
from sim.metrics.load.long_enough import FULL
from sim.metrics.slo.objectives import USUAL_SHARE, Objective, slo_objectives
from sim.metrics.states import Unserved
from sim.planning.load.advance import END_RUNS, Advance, Progress, Simulated
from sim.planning.load.band_ends import (
    NEARBY,
    Ends,
    PlayedLoad,
    looked_for,
    only_iterations_take_time,
    read_off,
    slope_at,
)
from sim.planning.load.finder import Finder, Tell
from sim.planning.load.loads import Kind, LoadAxis, Scale, check_whole_curve
from sim.planning.load.played import Player
from sim.planning.load.probe import BEYOND, FEWEST, SEVERAL, Probe, cut_off, missed, refused
from sim.planning.load.saturation import ROOM, Saturation
from sim.planning.load.search import Knee, knee
from sim.planning.load.settled import Settled, settle
from sim.planning.points.wording import limit_name
from sim.scenario import Scenario
from sim.schedulers import ChunkedPrefill
from sim.units import many, show_load

TOLERANCE = 0.02

CURVE = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2)
"""Shares of the load found at which the throughput-latency curve is drawn: closely where it
bends."""

CURVE_REQUESTS = 3_000
"""Requests of a run of the curve at the load found, where longer ones are possible: thirty of them
are beyond the p99."""

NEAR_REQUESTS = 5_000
"""Requests of a run of the curve within ``NEARBY`` of the load found, off which the ends of the
band are read: fifty of them are beyond the p99."""

TO_SHOW = 10
"""Late requests that are allowed in a run of the curve, at least: what its SLO asks for is seen."""

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
        raise _not_even(finder, fails, replicas)
    tried = finder.probes(replicas, stretch)
    searches = _searches(finder, settled, tolerance)
    readable = only_iterations_take_time(finder.axis)
    begun = (
        [copies.submit(_end_in_copy, *each) for each in searches] if copies and not readable else []
    )
    points = _points(finder, settled)
    usual = best.per_run
    load = finder.axis.own
    drawn_ones = sum((length or usual) * most for _, length, most in points)
    ends = END_RUNS * usual // stretch if not readable else usual  # of two, some are read off
    finder.advance.expect(_of_own(finder, settled) + drawn_ones + ends * len(searches))
    if load is not None and settled.lasts and _far(load, best):
        finder.ahead(load, replicas, most=1)
    for load, length, most in sorted(points, key=lambda each: -(each[1] or usual) * each[2]):
        finder.ahead(load, replicas, length=length, most=most)
    own = _own(finder, settled)
    added = [finder.of_length(load, replicas, length, most) for load, length, most in points]
    curve = sorted([*tried, *added], key=lambda probe: probe.load)
    known = [PlayedLoad(probe, stretch, None) for probe in tried]
    drawn = [
        PlayedLoad(probe, 1, length) for probe, (_, length, _) in zip(added, points, strict=True)
    ]
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
        probes=settled.with_longest([*curve, *([] if own is None else [own])]),
        knee=knee([probe for probe in curve if probe.load <= best.load]),
        ends=_ends(finder, settled, (known, known + drawn) if readable else (), searches, begun),
        settled=settled,
        traffic_notes=finder.traffic_notes,
    )


_Search = tuple[LoadAxis, tuple[Objective, ...], EndTimes, float, float, int]
"""The arguments of ``_end``: load and objectives, the end of the band, the load to begin with,
the tolerance, and the most runs of a load."""


def _searches(finder: Finder, settled: Settled, tolerance: float) -> list[_Search]:
    """The searches at the faster and the slower end of the band, if there is one: in runs as those
    that say where the answer is ``crossing``, or without these as its own."""
    best = settled.best
    assert best is not None
    if best.band is None:
        return []
    near = max(tolerance, best.band.error / 2)
    power = 1 + 1 / slope_at(best, _tried(finder, settled))
    most = SEVERAL if settled.crossing is None else FEWEST
    return [
        (finder.axis, finder.objectives, end, _middle(settled) / end.iterations**power, near, most)
        for end in best.band.ends
    ]


def _tried(finder: Finder, settled: Settled) -> tuple[Probe, ...]:
    return finder.probes(finder.axis.scenario.replicas, settled.stretch)


def _middle(settled: Settled) -> float:
    """The load that runs as long as those at the ends of the band hold at the predicted times."""
    assert settled.best is not None
    return settled.best.load if settled.crossing is None else settled.crossing


def _end_in_copy(player: Player, *search: Any) -> float | None:
    """``_end`` in a copy of this process, whose runs count as those of the ``player`` do."""
    return _end(player.simulated, *search)


def _end(
    counted: Simulated | None,
    axis: LoadAxis,
    objectives: Sequence[Objective],
    end: EndTimes,
    guess: float,
    near: float,
    most: int,
) -> float | None:
    """The highest load at an ``end`` of the band, by simulation."""
    advance, limits = Advance(None, counted), tuple(map(end.counted, objectives))
    other = Finder(at_end(axis.scenario, end), axis.kind, limits, axis.scale, advance)
    return looked_for(other, guess, near, most)


def _ends(
    finder: Finder,
    settled: Settled,
    known: Sequence[Sequence[PlayedLoad]],
    searches: Sequence[_Search],
    begun: Sequence[Future[float | None]],
) -> Ends | None:
    """The highest loads at the ends of the band, from ``known`` runs where these say it, the first
    of them if they do, else from ``searches``, which may have ``begun``; None without a band.
    ``best`` is the lower end of its bracket: it is within the band."""
    best, found = settled.best, []
    assert best is not None
    for number, search in enumerate(searches):
        _, _, end, _, near, _ = search
        replicas = finder.axis.scenario.replicas
        read = (read_off(finder, replicas, end, each, near) for each in known)
        load = next((each for each in read if each is not None), None)
        if load is None:
            counted = finder.advance.simulated
            look = None if counted is None else counted.look
            load = result_of(begun[number], look) if begun else _end(counted, *search)
            if load is not None:  # short runs flatter there as much as here
                load *= best.load / _middle(settled)
                load = float(round(load)) if finder.axis.whole else load
        found.append(load)
    if not found or best.band is None:
        return None
    faster, slower = found
    return Ends(
        best.band.error,
        slower if slower is None else min(slower, best.load),
        faster if faster is None else max(faster, best.load),
        (best.band.ends[0].first_tokens, best.band.ends[1].first_tokens),
    )


def _of_own(finder: Finder, settled: Settled) -> int:
    """The requests that the scenario's own load takes, about."""
    load, best = finder.axis.own, settled.best
    assert best is not None
    if load is None or any(each.load == load for each in _tried(finder, settled)):
        return 0
    return best.per_run // settled.stretch if _far(load, best) else best.requests


def _own(finder: Finder, settled: Settled) -> Probe | None:
    """The fate of the scenario's own load: a usual run says it where it is far from the highest,
    those that decide say it near."""
    load, best, replicas = finder.axis.own, settled.best, finder.axis.scenario.replicas
    assert best is not None
    if load is None:
        return None
    if not settled.lasts:
        return finder.probe(load, replicas)
    if _far(load, best):
        usual = finder.probe(load, replicas, most=1)
        if usual.sure:
            return usual
    return finder.probe(load, replicas, stretch=settled.stretch, whole=True)


def _far(load: float, best: Probe) -> bool:
    """Whether a load is so far from the highest that a usual run says what becomes of it."""
    return not FULL * best.load <= load <= BEYOND * best.load


def _points(finder: Finder, settled: Settled) -> list[tuple[float, int | None, int]]:
    """The loads that complete the throughput-latency curve, how many requests a run of each has
    (None: those of its traffic) and the most runs: what was tried and the scenario's own load are
    on it already."""
    best, axis = settled.best, finder.axis
    assert best is not None
    known, found = [each.load for each in _tried(finder, settled)], []
    if axis.own is not None:
        known.append(axis.own)
    for share in CURVE:
        load = best.load * share
        if axis.whole:
            load = float(max(1, round(load)))
        if not any(math.isclose(load, other, rel_tol=SAME) for other in known):
            known.append(load)
            most = 1 if share < ROOM or settled.lasts else SEVERAL
            found.append((load, _requests(finder, settled, share), most))
    return found


def _requests(finder: Finder, settled: Settled, share: float) -> int | None:
    """Requests of a run of the curve at that share of the highest load. Runs of one duration are
    compared, far from it and near it: the start and the end of each take the same part of it."""
    best, scenario = settled.best, finder.axis.scenario
    assert best is not None
    if scenario.workload.trace is not None or scenario.run.requests is None:
        return None
    each = best.per_run
    if not settled.lasts:
        return each
    whole = min(each, NEAR_REQUESTS if abs(share - 1) <= NEARBY else CURVE_REQUESTS)
    asked = max((USUAL_SHARE, *(objective.share for objective in finder.objectives)))
    return min(whole, max(math.ceil(min(share, 1.0) * whole), math.ceil(TO_SHOW / (1 - asked))))


def _not_even(finder: Finder, probe: Probe, replicas: int) -> InfeasibleError:
    """Why no load holds; ``probe`` is that of the lowest."""
    unit, never = finder.axis.unit, "the SLO cannot be met at any load"
    if not probe.attained:
        not_even = f"not even {show_load(probe.load, 3)} {unit} are stable"
        return InfeasibleError(not_even, str(probe.state))
    if probe.breaks == Unserved.REJECTED and probe.rejection is not None:
        return InfeasibleError(never, refused(probe))
    if finder.waits_for_batches:
        whole = (pool.settings for pool in finder.pools if pool.policy.shape.whole)
        batching = next(whole).scheduler.batching
        best = max(finder.probes(replicas), key=lambda each: min(a.share for a in each.attained))
        return InfeasibleError(
            "no load that was tried meets the SLO",
            f"it comes closest at {show_load(best.load, 3)} {unit} ({missed(best)}); with "
            f"{batching} batching requests wait for a batch, so take smaller batches "
            f"(scheduler.max_num_seqs) or {ChunkedPrefill.name} batching",
        )
    return InfeasibleError(
        never,
        f"at {show_load(probe.load, 3)} {unit}, where requests hardly meet each other, "
        f"{missed(probe)}; the {limit_name(probe.breaks)} limit is too tight for this replica: "
        "allow more, or take a faster GPU, more tensor_parallel or a lower precision. "
        f"{_refusal_trust(finder, probe, replicas)}",
    )


def _refusal_trust(finder: Finder, probe: Probe, replicas: int) -> str:
    """How sure it is that the lowest load misses the SLO: whether it does so at the faster end of
    the error band too."""
    if probe.band is None or not probe.sure:
        return f"That is {Trust.GUESS}."
    faster, axis = probe.band.ends[0], finder.axis
    limits = tuple(map(faster.counted, finder.objectives))
    there = Finder(at_end(axis.scenario, faster), axis.kind, limits, axis.scale)
    other = there.probe(probe.load, replicas)
    band = f"iterations {many(probe.band.error)} faster, the end of their 90 % band"
    if other.holds:
        return f"That is {Trust.LIKELY} at most: with {band}, this load holds."
    return f"That is {Trust.SURE}: with {band}, it fails too."
