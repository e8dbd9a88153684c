"""Looks for the highest load of one scenario by probes, from the analytic estimate on.

Rates in requests per second; concurrency in users of a closed loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

from sim.copies import Workers
from sim.metrics.bands.end_times import EndTimes
from sim.metrics.load.long_enough import DOUBT
from sim.metrics.slo.objectives import Objective
from sim.planning.load.advance import Advance
from sim.planning.load.loads import Kind, Scale, axis_of, goes_on, traffic_of
from sim.planning.load.probe import MOST, STABILITY, Probe, Prober
from sim.planning.load.saturation import (
    ROOM,
    Saturation,
    acceptable,
    alone,
    estimate,
    fleet_saturation,
    saturation,
)
from sim.planning.load.search import FIRST_STEP, FURTHEST, SLOPE, Bracket, search
from sim.plugins import is_own
from sim.scenario import Scenario
from sim.setup import prepare

LOWEST, HIGHEST = 1e-3, 4.0
"""Loads that are tried, as shares of the saturated rate; nothing above it can last."""

MOST_USERS = 16
"""Full batches of users up to which a closed loop is tried: what is not broken by then waits in the
queue, whatever the limits."""

SCAN = tuple(share / 20 for share in range(19, 0, -1))
"""Shares of the saturated rate that are tried where requests wait for a batch to fill: they may be
late at low loads and in time at higher ones."""

Tell = Callable[[Probe], None]


class Guess(NamedTuple):
    """The load at which a search begins, the relative length of its first step, and the ``slope``
    of ``search``."""

    load: float
    first_step: float = FIRST_STEP
    slope: float = SLOPE


class Finder:
    """Looks for the highest load of one scenario, at any number of replicas; start-up is paid
    once."""

    def __init__(
        self,
        scenario: Scenario,
        kind: Kind,
        objectives: Sequence[Objective],
        scale: Scale = "compress",
        advance: Advance | None = None,
    ) -> None:
        """Raises UsageError where there is no such load, InfeasibleError where nothing fits."""
        setup = prepare(scenario)
        self.pools, everything = setup.steady, traffic_of(scenario)
        traffic = everything
        for pool in self.pools:
            traffic = acceptable(pool, traffic)
        self.axis = axis_of(scenario, kind, everything, scale)
        self.objectives = tuple(objectives)
        self.traffic_notes = everything.notes
        if len(self.pools) == 1:
            (pool,) = self.pools
            self.estimate = estimate(pool, traffic, [*objectives])
            self.saturation = saturation(pool, traffic)
        else:
            whole, each = fleet_saturation(self.pools, traffic), 1 / scenario.replicas
            self.saturation = Saturation(each * whole.rate, each * whole.slots)
            self.estimate = Saturation(ROOM * each * whole.rate, each * whole.slots)
        residence = max(alone(pool, traffic).residence for pool in self.pools)
        self._estimated = any(is_own(pool.settings.scheduler.batching) for pool in self.pools)
        self._bounded = (
            bool(self.objectives)
            and not (self.axis.whole or self._estimated)
            and goes_on(self.axis)
            and len(traffic.prompts) == len(everything.prompts)
        )
        self._residence = residence
        self.advance = advance or Advance(None)
        counted = self.advance.simulated
        self._prober = Prober(setup, objectives, residence, everything, counted)
        self._known: dict[tuple[float, int, int], Probe] = {}
        self._most: dict[tuple[float, int, int], int] = {}  # runs that each of them had at most
        self._whole: set[tuple[float, int, int]] = set()

    def probe(
        self, load: float, replicas: int, *, most: int = MOST, stretch: int = 1, whole: bool = False
    ) -> Probe:
        """Whether ``load`` holds on that many replicas, in runs ``stretch`` times as long as usual,
        ``whole`` if all of them are made; asked twice, simulated once."""
        key = (load, replicas, stretch)
        known = self._known.get(key)
        open_still = known is None or (most > self._most[key] and not known.sure)
        if key not in self._whole and (whole or open_still):
            how = {"most": most, "stretch": stretch, "whole": whole}
            self._known[key] = self._played(load, replicas, **how)
            self._most[key] = most
            self._whole |= {key} if whole else set()
        return self._known[key]

    def side_by_side(self, jobs: int) -> AbstractContextManager[Workers | None]:
        """Play up to ``jobs`` runs at a time, where this process can be copied."""
        return self._prober.side_by_side(jobs)

    def ahead(self, load: float, replicas: int, **further: Any) -> None:
        """Begin the runs of a load that will probably be asked for, with the arguments of
        ``Prober.probe``, where several are played at a time."""
        self._prober.ahead(self.axis, load, replicas=replicas, **further)

    def at_end(self, end: EndTimes, load: float, replicas: int, **further: Any) -> Probe:
        """The probe of runs at ``load`` if latencies are those at an ``end`` of the band;
        ``further`` are arguments of ``Prober.probe``."""
        found = self._prober.probe(self.axis, load, replicas=replicas, end=end, **further)
        return self._served(found, replicas)

    def _served(self, probe: Probe, replicas: int) -> Probe:
        """``probe``, of a load that goes on for ever and exceeds what full batches serve as one
        that fails: its queue grows, however few of the requests of a run feel it yet. In doubt as
        far as that rate itself is."""
        full = self.saturation.rate * replicas
        if not self._bounded or not probe.holds or probe.load <= full:
            return probe
        return replace(probe, holds=False, sure=probe.load > (1 + DOUBT) * full, breaks=STABILITY)

    def _played(self, load: float, replicas: int, **further: Any) -> Probe:
        found = self._prober.probe(self.axis, load, replicas=replicas, **further)
        self.advance.played(found.requests, found.runs)
        return self._served(found, replicas)

    def members(self, load: float, replicas: int) -> float:
        """Requests that are in that many replicas at a time: as many come until batches are
        full."""
        return self._prober.members(self.axis, load, replicas)

    def usual_length(self, load: float, replicas: int) -> int:
        """Requests of a run of that load that nothing makes longer."""
        return self._prober.usual_length(self.axis, load, replicas)

    def of_length(self, load: float, replicas: int, length: int | None, most: int) -> Probe:
        """The probe of a load by runs of ``length`` requests; None: as long as usual."""
        if length is None:
            return self.probe(load, replicas, most=most)
        return self._played(load, replicas, most=most, length=length)

    def find(
        self,
        replicas: int,
        tolerance: float,
        *,
        tell: Tell | None = None,
        guess: Guess | None = None,
        stretch: int = 1,
        most: int = MOST,
        whole: bool = False,
    ) -> tuple[Probe | None, Probe | None]:
        """(highest that holds, lowest that fails), by at most ``most`` runs of each load, or by as
        many (``whole``): None if not even a trickle holds, or if all loads do. The
        search begins at the ``guess``, or at the analytic estimate."""

        def probe_at(load: float) -> Probe:
            return self.probe(load, replicas, stretch=stretch, most=most, whole=whole)

        def strain(load: float) -> float:
            probe = probe_at(load)
            if tell is not None:
                tell(probe)
            return probe.strain

        full = self._full() * replicas
        if self.axis.whole:
            lowest, highest = (
                1.0,
                max(2.0, float(round(MOST_USERS * self.saturation.slots * replicas))),
            )
        else:
            lowest, highest = LOWEST * full, HIGHEST * full
            if self._estimated:  # that may be far more than is served: so rare that none meet
                lowest = min(lowest, LOWEST * replicas / self._residence)
        guess = guess or Guess(self.first_rate * replicas)

        def around(load: float) -> Bracket:
            return search(
                strain,
                load,
                lowest=lowest,
                highest=highest,
                tolerance=tolerance,
                whole=self.axis.whole,
                first_step=guess.first_step,
                slope=guess.slope,
            )

        bracket = around(guess.load)
        if bracket.holds is None and self.waits_for_batches:
            held = next((share * full for share in SCAN if strain(share * full) <= 0), None)
            bracket = bracket if held is None else around(held)
        return tuple(
            None if load is None else probe_at(load) for load in (bracket.holds, bracket.fails)
        )  # type: ignore[return-value]

    def above(self, held: Probe, replicas: int, tolerance: float) -> tuple[Probe, Probe | None]:
        """(highest that a usual run holds, lowest that fails above it), from a load that is
        ``held`` on: no lower one is tried."""

        def strain(load: float) -> float:
            if load <= held.load:
                return min(held.strain, 0.0)
            return self.probe(load, replicas, most=1).strain

        full = self._full() * replicas
        further = math.exp(-held.strain / SLOPE) if math.isfinite(held.strain) else FURTHEST
        guess = held.load * min(further, FURTHEST)
        highest = HIGHEST * full
        if self._bounded:  # more is not served: that fails, whatever a run says
            guess, highest = min(guess, full), (1 + tolerance) * full
        guess = max(guess, held.load * (1 + tolerance))
        highest = max(highest, guess)
        found = search(strain, guess, lowest=held.load, highest=highest, tolerance=tolerance)
        best = held
        if found.holds is not None and found.holds > held.load:
            best = self.probe(found.holds, replicas, most=1)
        fails = None if found.fails is None else self.probe(found.fails, replicas, most=1)
        return best, fails

    @property
    def waits_for_batches(self) -> bool:
        """Whether requests wait until a batch of them is there, so that more load may be better."""
        waits = any(pool.policy.shape.whole for pool in self.pools)
        return not self.axis.whole and waits

    def probes(self, replicas: int, stretch: int = 1) -> tuple[Probe, ...]:
        """All loads that were tried on that many replicas in runs of that length, in order."""
        wanted = (replicas, stretch)
        mine = [probe for (_, *key), probe in self._known.items() if tuple(key) == wanted]
        return tuple(sorted(mine, key=lambda probe: probe.load))

    def fleets(self, load: float) -> dict[int, Probe]:
        """Probes of ``load`` by usual runs, by the number of replicas."""
        return {
            replicas: probe
            for (at, replicas, stretch), probe in self._known.items()
            if at == load and stretch == 1
        }

    @property
    def first_rate(self) -> float:
        """The analytic estimate of what one replica holds, from which a search begins."""
        if not self.objectives:
            return 0.75 * self._full()  # where the verdict ceases to call it stable
        return max(1.0, self.estimate.slots) if self.axis.whole else self.estimate.rate

    @property
    def guessed_well(self) -> bool:
        """Whether the estimate says roughly how many replicas are needed: more of them hold more,
        and nothing but their number stands in the way."""
        scenario = self.axis.scenario
        known = not (self._estimated or self.waits_for_batches or self.axis.whole)
        return bool(self.objectives) and known and scenario.run.horizon is None

    def _full(self) -> float:
        return self.saturation.slots if self.axis.whole else self.saturation.rate
