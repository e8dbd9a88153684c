"""Finds the busiest stretch of the traffic, and whether bursts are why requests miss the SLO.

Times in seconds; utilisation as a share of what full batches serve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.metrics.load.stability import Load
from sim.metrics.record.cut_short import BUSIEST, LEAST, MINUTE, WINDOWS

MOSTLY, OFTENER = 0.5, 2.0
"""From where on bursts are said to be why: most of the requests beyond the SLO, and twice as often
beyond it. Traffic without bursts reaches neither, since its late requests come at any time."""

MUCH_MORE = 1.5
"""Both are named where the busiest 10 s take so many times what the busiest minute takes."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The ``utilisation`` in the busiest stretch; ``when`` names it within a sentence. ``brief`` is
    a shorter stretch that is ``MUCH_MORE`` busy, if there is one."""

    utilisation: float
    when: str
    brief: Peak | None = None


@dataclass(frozen=True, slots=True)
class Bursts:
    """Stretches, called ``name``, in which more than the capacity arrives: the ``share`` of all.
    ``peak`` is the busiest one, wherever it begins, as ``peak()`` has it. The requests that come
    then, or right after, are the share ``late`` of those beyond the SLO."""

    name: str
    share: float
    peak: Peak
    late: float


def peak(load: Load) -> Peak | None:
    """The busiest stretch of traffic whose rate changes; None where the rate is constant, or the
    run too short for it.

    Of a curve it is the highest rate of the law, of a trace the busiest window.
    """
    law = load.law
    if law is None:
        return _busiest(load)
    if law.kind == "diurnal":
        mean = (law.rate + law.peak_rate) / 2
        return Peak(load.utilisation * law.peak_rate / mean, "at the peak")
    if law.kind == "ramp" and law.rate > law.final_rate:
        return Peak(load.utilisation * law.rate / load.offered, "at the start")
    return None


def _busiest(load: Load) -> Peak | None:
    windows = _windows(load)
    if not windows:
        return None
    window, top = windows[0], _at(load, windows[0])
    if window == MINUTE:
        brief = _at(load, windows[1])
        if brief.utilisation >= MUCH_MORE * top.utilisation:
            return replace(top, brief=brief)
    return top


def _at(load: Load, window: float) -> Peak:
    return Peak(_most(load, window), f"in the busiest {BUSIEST[window]}")


def _most(load: Load, window: float) -> float:
    """The utilisation in the busiest ``window``, wherever it begins."""
    work = np.concatenate([[0.0], np.cumsum(load.costs)])
    ends = np.searchsorted(load.arrived, load.arrived + window, side="left")
    return float((work[ends] - work[:-1]).max()) / window


def _windows(load: Load) -> list[float]:
    """Windows that the run is long enough for, the longest first."""
    span = float(load.arrived[-1] - load.arrived[0])
    return [window for window in WINDOWS if LEAST * window <= span]


def bursts(load: Load, kept: NDArray[np.bool_]) -> Bursts | None:
    """The stretches that explain why not all requests are ``kept`` within the SLO; None if no such
    stretches do.

    They explain it if ``MOSTLY`` of the requests beyond the SLO come in them or in the stretch
    right after, and requests are beyond it ``OFTENER`` than those that come at other times. The
    longest stretches that do are taken.
    """
    late = ~kept
    for window in _windows(load):
        index = ((load.arrived - load.arrived[0]) // window).astype(np.int64)
        work = np.bincount(index, load.costs) / window
        over = work > 1
        after = over.copy()
        after[1:] |= over[:-1]
        inside = after[index]
        share = float(late[inside].sum()) / max(1, int(late.sum()))
        if share < MOSTLY:
            continue
        others = late[~inside]
        if not len(others) or late[inside].mean() >= OFTENER * others.mean():
            return Bursts(WINDOWS[window], float(over.mean()), _at(load, window), share)
    return None
