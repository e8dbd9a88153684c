"""Finds the highest load that a scenario holds, by doubling and halving from the analytic estimate.

Rates in requests per second; concurrency in users of a closed loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.ends import at_factor, end_factors
from sim.errors import InfeasibleError, UsageError
from sim.metrics.promises import REJECTED, Promise, slo_promises
from sim.planning.load.loads import (
    Kind,
    LoadAxis,
    Scale,
    axis_of,
    check_whole_curve,
    traffic_of,
)
from sim.planning.load.probe import (
    MOST,
    SEVERAL,
    Probe,
    Prober,
    cut_off,
    missed,
    refused,
)
from sim.planning.load.saturation import (
    ROOM,
    Saturation,
    acceptable,
    alone,
    estimate,
    saturation,
)
from sim.planning.load.search import FIRST_STEP, Bracket, Knee, knee, search
from sim.planning.load.settled import Settled, settle
from sim.planning.points.wording import limit_name
from sim.scenario import Scenario
from sim.schedulers import ChunkedPrefill
from sim.simulation import is_random, prepare

TOLERANCE = 0.02
LOWEST, HIGHEST = 1e-3, 4.0
"""Loads that are tried, as shares of the saturated rate; nothing above it can last."""

MOST_USERS = 16
"""Full batches of users up to which a closed loop is tried: what is not broken by then waits in the
queue, whatever the limits."""

SCAN = tuple(share / 20 for share in range(19, 0, -1))
"""Shares of the saturated rate that are tried where requests wait for a batch to fill: they may be
late at low loads and in time at higher ones."""

CURVE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2)
"""Shares of the load found at which the throughput-latency curve is drawn."""

SAME = 1e-3
"""Loads that differ by no more than this share are one in the curve: the search has tried it."""

REACTION = 1.75
"""By how much a capacity within an SLO reacts to a change in speed: 7 to 8 % for 4 to 5 % on some
fleets. Only the first guess of a search depends on it."""

Tell = Callable[[Probe], None]


@dataclass(frozen=True)
class Ends:
    """The highest load if iterations are ``slower`` and ``faster`` by the share ``error``; 0 where
    no load holds, None where nothing failed."""

    error: float
    slower: float | None
    faster: float | None

    def document(self) -> dict[str, float | None]:
        """As plain data."""
        return {"error": self.error, "slower": self.slower, "faster": self.faster}

    def within(self, load: float, share: float) -> tuple[float, float]:
        """The loads between which the highest lies if it is ``load`` at the predicted times, and
        these are off by no more than ``share``: by the power of the speed by which it moves to
        each end. Infinite where nothing failed there."""
        part = math.log1p(share) / math.log1p(self.error)
        low, high = (
            math.inf if end is None else load * (end / load) ** part
            for end in (self.slower, self.faster)
        )
        return low, high


@dataclass(frozen=True)
class FoundLoad:
    """The answer: ``best`` is the probe of the highest load that holds, ``fails`` that of the
    lowest one seen to fail above it (None: nothing failed), ``own`` that of the scenario's own
    load, None if it has none of this kind. ``settled`` says how long the runs were, and
    ``traffic_notes`` what a reader should know of the traffic."""

    axis: LoadAxis
    scenario: Scenario
    promises: tuple[Promise, ...]
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


class Finder:
    """Looks for the highest load of one scenario, at any number of replicas; start-up is paid
    once."""

    def __init__(
        self,
        scenario: Scenario,
        kind: Kind,
        promises: Sequence[Promise],
        scale: Scale = "compress",
    ) -> None:
        """Raises UsageError where there is no such load, InfeasibleError where nothing fits."""
        setup = prepare(scenario)
        pool, everything = setup.only, traffic_of(scenario)
        self.pool = pool
        traffic = acceptable(pool, everything)
        self.axis = axis_of(scenario, kind, everything, scale)
        self.promises = tuple(promises)
        self.traffic_notes = everything.notes
        self.estimate = estimate(pool, traffic, [*promises])
        self.saturation = saturation(pool, traffic)
        self._prober = Prober(setup, promises, alone(pool, traffic).residence, everything)
        self._known: dict[tuple[float, int, int], Probe] = {}

    def probe(self, load: float, replicas: int, *, most: int = MOST, stretch: int = 1) -> Probe:
        """Whether ``load`` holds on so many replicas, in runs ``stretch`` times as long as usual;
        asked twice, simulated once."""
        key = (load, replicas, stretch)
        if key not in self._known or (most == MOST and not self._decided(key)):
            self._known[key] = self._prober.probe(
                self.axis, load, replicas=replicas, most=most, stretch=stretch
            )
        return self._known[key]

    def again(self, load: float, replicas: int, stretch: int) -> Probe:
        """The same under seeds of its own, with as many runs as a load gets."""
        return self._prober.probe(self.axis, load, replicas=replicas, stretch=stretch, fresh=True)

    def members(self, load: float, replicas: int) -> float:
        """Requests that are in so many replicas at a time: as many come until batches are full."""
        return self._prober.members(self.axis, load, replicas)

    def of_length(self, load: float, replicas: int, length: int | None, most: int) -> Probe:
        """The same in runs of ``length`` requests; None: as long as usual."""
        if length is None:
            return self.probe(load, replicas, most=most)
        return self._prober.probe(self.axis, load, replicas=replicas, most=most, length=length)

    def _decided(self, key: tuple[float, int, int]) -> bool:
        return self._known[key].sure or self._known[key].runs > 1

    def find(
        self,
        replicas: int,
        tolerance: float,
        *,
        tell: Tell | None = None,
        guess: float | None = None,
        first_step: float = FIRST_STEP,
        stretch: int = 1,
    ) -> tuple[Probe | None, Probe | None]:
        """(highest that holds, lowest that fails): None if not even a trickle holds, or if all
        loads do."""

        def holds(load: float) -> bool:
            probe = self.probe(load, replicas, stretch=stretch)
            if tell is not None:
                tell(probe)
            return probe.holds

        full = self._full() * replicas
        if self.axis.whole:
            lowest, highest = (
                1.0,
                max(2.0, float(round(MOST_USERS * self.saturation.slots * replicas))),
            )
        else:
            lowest, highest = LOWEST * full, HIGHEST * full
        start = self._start() * replicas if guess is None else guess

        def around(load: float) -> Bracket:
            whole = self.axis.whole
            return search(
                holds,
                load,
                lowest=lowest,
                highest=highest,
                tolerance=tolerance,
                whole=whole,
                first_step=first_step,
            )

        bracket = around(start)
        if bracket.holds is None and self.waits_for_batches:
            held = next((share * full for share in SCAN if holds(share * full)), None)
            bracket = bracket if held is None else around(held)
        return tuple(
            None if load is None else self.probe(load, replicas, stretch=stretch)
            for load in (bracket.holds, bracket.fails)
        )  # type: ignore[return-value]

    @property
    def waits_for_batches(self) -> bool:
        """Whether requests wait until a batch of them is there, so that more load may be better."""
        return not self.axis.whole and self.pool.policy.shape.whole

    def probes(self, replicas: int, stretch: int = 1) -> tuple[Probe, ...]:
        """All loads that were tried on so many replicas in runs of that length, in order."""
        wanted = (replicas, stretch)
        mine = [probe for (_, *key), probe in self._known.items() if tuple(key) == wanted]
        return tuple(sorted(mine, key=lambda probe: probe.load))

    def _full(self) -> float:
        return self.saturation.slots if self.axis.whole else self.saturation.rate

    def _start(self) -> float:
        if not self.promises:
            return 0.75 * self._full()  # where the verdict ceases to call it stable
        return max(1.0, self.estimate.slots) if self.axis.whole else self.estimate.rate


def find(
    scenario: Scenario,
    kind: Kind,
    *,
    tolerance: float = TOLERANCE,
    tell: Tell | None = None,
    scale: Scale = "compress",
) -> FoundLoad:
    """The highest rate or concurrency at which ``scenario`` keeps its SLO; without an SLO, the
    highest rate that the verdict calls stable.

    ``tell`` is called with each probe; ``scale`` says how a trace gets another load. Raises
    UsageError where there is no such load to look for, InfeasibleError where nothing fits, or the
    SLO is missed even by requests that come one by one.
    """
    promises = slo_promises(scenario)
    if not promises and kind == "concurrency":
        raise UsageError(
            "a closed loop is never overloaded, so without an SLO it has no highest concurrency; "
            "give slo.ttft or slo.tpot"
        )
    if kind == "rate":
        check_whole_curve(scenario)
    finder = Finder(scenario, kind, promises, scale)
    replicas = scenario.replicas
    settled = settle(finder, replicas, tolerance, tell)
    best, fails, stretch = settled.best, settled.fails, settled.stretch
    if best is None:
        assert fails is not None
        if fails.cut:
            raise UsageError(cut_off(scenario))
        raise InfeasibleError(_not_even(finder, fails, replicas))
    own = None
    if finder.axis.own is not None:
        own = finder.probe(finder.axis.own, replicas, stretch=stretch)
    tried, length = finder.probes(replicas, stretch), _length(finder, best, replicas, stretch)
    curve = sorted([*tried, *_curve(finder, best, tried, replicas, length)], key=_load)
    alike = [each for each in curve if length in (None, each.requests // each.runs)]
    return FoundLoad(
        axis=finder.axis,
        scenario=scenario,
        promises=finder.promises,
        tolerance=tolerance,
        saturation=Saturation(
            finder.saturation.rate * replicas, finder.saturation.slots * replicas
        ),
        best=best,
        fails=fails,
        own=own,
        probes=settled.with_longest(curve),
        knee=knee([probe for probe in alike if probe.load <= best.load]),
        ends=_ends(scenario, finder, best, tolerance, stretch),
        settled=settled,
        traffic_notes=finder.traffic_notes,
    )


def _ends(
    scenario: Scenario, finder: Finder, best: Probe, tolerance: float, stretch: int
) -> Ends | None:
    """The highest load at both ends of the error band of iteration times, as closely as half the
    band; None where there is no band."""
    error, replicas = best.error, scenario.replicas
    if not error:
        return None
    loads = []
    for factor in end_factors(error):
        axis = finder.axis
        other = Finder(at_factor(scenario, factor), axis.kind, finder.promises, axis.scale)
        guess = best.load / factor**REACTION
        near = max(tolerance, error / 2)
        found, fails = other.find(replicas, near, guess=guess, first_step=near, stretch=stretch)
        loads.append(None if fails is None else 0.0 if found is None else found.load)
    faster, slower = loads
    return Ends(error, slower, faster)


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


def _curve(
    finder: Finder, best: Probe, tried: Sequence[Probe], replicas: int, length: int | None
) -> list[Probe]:
    """The rest of the throughput-latency curve, roughly, in runs of ``length`` requests."""
    added: list[Probe] = []
    for share in CURVE:
        load = best.load * share
        if finder.axis.whole:
            load = float(max(1, round(load)))
        if any(math.isclose(load, other.load, rel_tol=SAME) for other in (*tried, *added)):
            continue
        added.append(finder.of_length(load, replicas, length, 1 if share < ROOM else SEVERAL))
    return added


def _not_even(finder: Finder, probe: Probe, replicas: int) -> str:
    """Why no load holds; ``probe`` is that of the lowest."""
    unit = finder.axis.unit
    if not probe.attained:
        return f"not even {probe.load:.3g} {unit} are stable: {probe.state}"
    if probe.breaks == REJECTED and probe.rejection is not None:
        return f"the SLO cannot be met at any load: {refused(probe)}"
    if finder.waits_for_batches:
        batching = finder.pool.settings.scheduler.batching
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
        "precision"
    )
