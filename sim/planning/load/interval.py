"""Says between which loads chance in the runs leaves open where the SLO ceases to be met.

Runs at two loads on either side of the change have the same traffic, sped up, so that their shares
say how the probit of the share falls with the logarithm of the load. The 95 % interval of the share
at a load is carried along that line to where its ends reach the share that is asked for: that is
the interval of the load. Neighbouring requests share a queue, so that fewer of them tell as much as
independent ones: how many, the load that leaves the most doubt says of all, since runs that met no
crowd think themselves too sure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from sim.metrics.latency.intervals import wilson
from sim.metrics.load.long_enough import DOUBT
from sim.metrics.slo.objectives import Attained
from sim.planning.load.probe import STABILITY, Probe
from sim.planning.points.wording import LoadOutcome

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
                tuple(_carried(each.load, end, _asked(seen), slope) for end in interval)
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
    (low, more), (high, less) = min(seen, key=_load), max(seen, key=_load)
    fall = _probit(more.share, more.effective) - _probit(less.share, less.effective)
    return fall / math.log(high / low) if fall > 0 and high > low else None


def _load(seen: tuple[float, Attained]) -> float:
    return seen[0]


def _asked(seen: Sequence[tuple[float, Attained]]) -> float:
    return _NORMAL.inv_cdf(seen[0][1].objective.share)


def _interval(seen: Attained, worth: float) -> tuple[float, float]:
    """The 95 % interval of the probit of a share if each request tells as much as ``worth``
    independent ones: a run that met no crowd does not show how much chance there is in one."""
    trials = worth * seen.requests
    low, high = (_probit(end, trials) for end in wilson(seen.share, trials))
    return low, high


def _carried(load: float, probit: float, asked: float, slope: float) -> float:
    """The load at which a ``probit`` of the share at ``load`` reaches that of what is asked for."""
    return load * math.exp((probit - asked) / slope)


def _probit(share: float, trials: float) -> float:
    """The probit of a share, of none or all of some trials as if half a one had been otherwise."""
    least = 0.5 / max(1.0, trials)
    return _NORMAL.inv_cdf(min(max(share, least), 1 - least))
