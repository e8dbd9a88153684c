"""Finds between which two loads something stops holding, and the knee of a curve of loads.

``search`` doubles away from a guess, then halves. The ``knee`` is the load with the most *power*,
throughput over mean end-to-end latency (Kleinrock, 1979): below it the fleet is idle too much,
above it requests wait for each other too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.planning.load.probe import Probe

FIRST_STEP = 0.1
"""Relative size of the first step away from the guess; each next one is twice as large."""


@dataclass(frozen=True)
class Bracket:
    """``holds`` is the highest load that was seen to hold, None if not even the lowest one did;
    ``fails`` the lowest one seen to fail above it, None if not even the highest one did."""

    holds: float | None
    fails: float | None


def search(
    holds: Callable[[float], bool],
    guess: float,
    *,
    lowest: float,
    highest: float,
    tolerance: float,
    whole: bool = False,
    first_step: float = FIRST_STEP,
) -> Bracket:
    """Where ``holds``, true up to some load and false from there on, changes.

    The two loads differ by no more than the share ``tolerance`` of the lower one (``whole``: by 1,
    if that is more). Loads are from ``lowest`` to ``highest``. ``first_step`` is how far from the
    guess the second load is, as a share.

    >>> found = search(lambda load: load <= 10, 3, lowest=0.1, highest=1e3, tolerance=0.01)
    >>> 9.9 <= found.holds <= 10 < found.fails <= 10.1
    True
    """
    load = _placed(guess, lowest, highest, whole)
    step = 1 + first_step
    low = high = None
    if holds(load):
        low = load
        while high is None and low < highest:
            load = _placed(low * step, lowest, highest, whole, above=low)
            low, high = (load, None) if holds(load) else (low, load)
            step = 1 + 2 * (step - 1)
    else:
        high = load
        while low is None and high > lowest:
            load = _placed(high / step, lowest, highest, whole, below=high)
            low, high = (load, high) if holds(load) else (None, load)
            step = 1 + 2 * (step - 1)
    while low is not None and high is not None and not _close(low, high, tolerance, whole):
        load = round((low + high) / 2) if whole else math.sqrt(low * high)
        if holds(load):
            low = load
        else:
            high = load
    return Bracket(low, high)


def _close(low: float, high: float, tolerance: float, whole: bool) -> bool:
    return high - low <= max(tolerance * low, 1.0 if whole else 0.0)


def _placed(
    load: float,
    lowest: float,
    highest: float,
    whole: bool,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """``load`` within the bounds; of whole ones the next that is ``above`` or ``below``."""
    if whole:
        load = float(round(load))
        if above is not None:
            load = max(load, above + 1)
        if below is not None:
            load = min(load, below - 1)
    return min(max(load, lowest), highest)


@dataclass(frozen=True)
class Knee:
    """``load`` has the most power of the loads tried; ``between`` are its neighbours among them.

    ``throughput`` in requests per second, ``latency`` is the mean end-to-end latency in seconds.
    ``at_end``: power still grows at the highest load that holds, so that the knee lies beyond it.
    """

    load: float
    throughput: float
    latency: float
    between: tuple[float, float]
    at_end: bool

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "load": self.load,
            "throughput": self.throughput,
            "mean_e2el_ms": self.latency * 1e3,
            "between": list(self.between),
            "at_end": self.at_end,
        }


def knee(probes: Sequence[Probe]) -> Knee | None:
    """The knee of a curve of loads in ascending order; None without three of them."""
    points = [
        (probe.load, throughput, latency / 1e3)
        for probe in probes
        if (throughput := probe.figures["request_throughput"]) is not None
        and (latency := probe.figures["mean_e2el_ms"])
    ]
    if len(points) < 3:
        return None
    best = max(range(len(points)), key=lambda index: points[index][1] / points[index][2])
    last = len(points) - 1
    load, throughput, latency = points[best]
    around = (points[max(0, best - 1)][0], points[min(last, best + 1)][0])
    return Knee(load, throughput, latency, around, best == last)
