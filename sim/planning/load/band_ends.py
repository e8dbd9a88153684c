"""Finds the highest load at both ends of the error band of iteration times.

Where nothing but iterations takes time, no run is needed for that: with all times ``f`` times as
long, a load does what ``f`` times the load did at the predicted times, and every latency is ``f``
times as long. So runs that are known say of ``f`` times their load whether it is within limits that
are ``f`` times as tight, those of TTFT tighter still where first tokens are less sure. Elsewhere
(users who think, sessions, curves by the clock) runs are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sim.metrics.bands.end_times import EndTimes
from sim.planning.load.finder import Finder, Guess
from sim.planning.load.loads import LoadAxis
from sim.planning.load.probe import FEWEST, SEVERAL, Probe
from sim.scenario.pools import BOTH
from sim.setup import own_parts

NEARBY = 0.15
"""How far from the highest load, as a share, loads say how fast latencies grow there."""

SLOPES = (0.3, 10.0)
"""Powers of the load with which latencies grow near their limits: what is seen outside of these is
chance. Only the first guess of a search depends on them."""

ATTEMPTS = 6
"""Loads that are tried for one end beyond those that are known."""

FREE = ("poisson", "gamma", "constant")
"""Arrivals without a time of their own: another rate is the same traffic, faster."""


@dataclass(frozen=True)
class Ends:
    """The highest load if iterations are ``slower`` and ``faster`` by the share ``error``, and
    first tokens by the factors ``first_tokens`` (faster, slower) beyond that; 0 where no load
    holds, None where nothing failed."""

    error: float
    slower: float | None
    faster: float | None
    first_tokens: tuple[float, float] = (1.0, 1.0)

    def document(self) -> dict[str, Any]:
        """The ends as plain data."""
        return asdict(self) | {"first_tokens": list(self.first_tokens)}

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


class PlayedLoad(NamedTuple):
    """A load that was played, and how: runs of ``length`` requests, None for those ``stretch``
    times as long as usual."""

    probe: Probe
    stretch: int
    length: int | None


def only_iterations_take_time(axis: LoadAxis) -> bool:
    """Whether ``f`` times the load is the same run, ``f`` times as fast, if its iterations are."""
    scenario, workload = axis.scenario, axis.scenario.workload
    arrivals, run = workload.arrivals, scenario.run
    if axis.whole or axis.overlays or workload.sessions is not None or workload.classes is not None:
        return False
    if arrivals is not None and arrivals.kind not in FREE:
        return False
    if workload.trace is not None and workload.trace.spread is not None:
        return False
    timed = run.horizon is not None or run.warmup.seconds is not None
    moved = any(
        pool.role != BOTH
        or pool.kv_cache.host_memory is not None
        or pool.kv_cache.preemption != "recompute"
        for pool in scenario.pools
    )
    return not (timed or moved or scenario.admission is not None or own_parts(scenario))


def read_off(
    finder: Finder, replicas: int, end: EndTimes, known: Sequence[PlayedLoad], near: float
) -> float | None:
    """The highest load at an ``end`` of the band, from runs at the predicted times; None where
    they do not say. Loads are tried until one lies within half of ``near`` of it."""
    strains = {
        each.probe.load: finder.at_end(
            end,
            each.probe.load,
            replicas,
            most=each.probe.runs,
            stretch=each.stretch,
            length=each.length,
        ).strain
        for each in known
    }
    stretch = known[0].stretch

    def strain(load: float) -> float:
        finder.advance.expect(FEWEST * stretch * finder.usual_length(load, replicas))
        return finder.at_end(end, load, replicas, most=SEVERAL, stretch=stretch).strain

    found = crossing(strains, strain, near)
    return None if found is None else found / end.iterations


def crossing(
    strains: dict[float, float], strain: Callable[[float], float], near: float
) -> float | None:
    """Where ``strain`` changes its sign, as loads with their ``strains`` say; others are tried
    until one lies within half of ``near`` of it. None where the change is neither among them nor
    that near to one, or what they say is infinite.

    >>> crossing({8.0: math.log(0.8), 12.5: math.log(1.25)}, lambda load: math.log(load / 10), 0.04)
    10.0
    """
    seen = dict(strains)
    for _ in range(ATTEMPTS):
        high = min((load for load, found in seen.items() if found > 0), default=math.inf)
        low = max((load for load, found in seen.items() if load < high), default=-math.inf)
        among = low in seen and high in seen
        if not among:
            if len(seen) < 2:
                return None
            low, high = sorted(seen)[:2] if high in seen else sorted(seen)[-2:]
        rise = seen[high] - seen[low]
        if not 0 < rise < math.inf:
            return None
        root = low * math.exp(-seen[low] / rise * math.log(high / low))
        if any(max(root / load, load / root) <= 1 + near / 2 for load in (low, high)):
            return float(f"{root:.12g}")
        if not among:
            return None
        seen[root] = strain(root)
    return None


def slope_at(best: Probe, probes: Sequence[Probe]) -> float:
    """By what power of the load the latencies grow that the SLO limits, around ``best``.

    With all times f times as long, a load does what f times the load did before, and its latencies
    are f times as long: so they are within their limits up to f ** -(1 + 1 / slope) of the highest
    load, as far as latencies grow as a power of the load.
    """
    near = [
        (math.log(each.load / best.load), each.strain)
        for each in probes
        if abs(each.load / best.load - 1) <= NEARBY and math.isfinite(each.strain)
    ]
    (low, less), (high, more) = min(near, default=(0.0, 0.0)), max(near, default=(0.0, 0.0))
    slope = (more - less) / (high - low) if high > low else math.sqrt(math.prod(SLOPES))
    return min(max(slope, SLOPES[0]), SLOPES[1])


def looked_for(finder: Finder, guess: float, near: float, most: int) -> float | None:
    """The highest load of ``finder``, whose times are those of an end, looked for from ``guess``
    on: where strain says it is between two loads that differ by the share ``near``, which takes few
    runs, at most ``most`` of a load; of whole users the last one before. 0 if none holds, None if
    none fails."""
    found, fails = finder.find(
        finder.axis.scenario.replicas,
        near,
        guess=Guess(guess / math.sqrt(1 + near), near),
        most=most,
    )
    if fails is None or found is None:
        return None if fails is None else 0.0
    between = crossed(found, fails)
    return max(found.load, float(math.floor(between))) if finder.axis.whole else between


def crossed(holds: Probe, fails: Probe) -> float:
    """The load between two at which their strain says that the change is."""
    rise = fails.strain - holds.strain
    part = -holds.strain / rise if 0 < rise < math.inf else 0.0
    return holds.load * math.exp(part * math.log(fails.load / holds.load))
