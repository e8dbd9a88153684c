"""Finds between which two loads something stops holding, and the knee of a curve of loads.

``search`` goes from a guess to where the strain of the loads that it has seen says the change is:
how far the latencies that the SLO asks for are from their limits. Where strain says nothing it
doubles, then halves. The ``knee`` is the load with the most *power*, throughput over mean
end-to-end latency (Kleinrock, 1979): below it the fleet is idle too much, above it requests wait
for each other too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.planning.load.probe import Probe

FIRST_STEP = 0.1
"""Relative size of the first step away from the guess where strain says nothing; each next one is
twice as large."""

SLOPE = 2.0
"""By what power of the load latencies grow near their limits, until two loads have shown it. Only
how soon a search ends depends on it."""

LEAST_SLOPE = 0.2
"""Slopes below this say nothing of where a limit is reached."""

FURTHEST = 2.0
"""How many times as high or as low the next load is at most, as far as strain goes."""

ROUNDING = 1e-9
"""Share by which the products of floats may be off."""

ONE_SIDED = 2
"""Loads in a row on one side of the change after which the next halves the bracket."""


@dataclass(frozen=True)
class Bracket:
    """``holds`` is the highest load that was seen to hold, None if not even the lowest one did;
    ``fails`` the lowest one seen to fail above it, None if not even the highest one did."""

    holds: float | None
    fails: float | None


def search(
    strain: Callable[[float], float],
    guess: float,
    *,
    lowest: float,
    highest: float,
    tolerance: float,
    whole: bool = False,
    first_step: float = FIRST_STEP,
    slope: float = SLOPE,
) -> Bracket:
    """Where what holds up to some load, and fails from there on, changes.

    ``strain`` of a load is at most 0 where it holds and above where it fails: the logarithm of a
    latency over its limit, or infinite where nothing says how near the change is. The two loads
    differ by no more than the share ``tolerance`` of the lower one (``whole``: by 1, if that is
    more). Loads are from ``lowest`` to ``highest``. ``first_step`` is how far from the guess the
    second load is where strain does not say, as a share; by the power ``slope`` of the load strain
    grows until two loads have shown it.

    >>> seen = []
    >>> found = search(
    ...     lambda load: seen.append(load) or math.log(load / 10),
    ...     3, lowest=0.1, highest=1e3, tolerance=0.01,
    ... )
    >>> 9.9 <= found.holds <= 10 < found.fails <= 10.1, len(seen)
    (True, 5)
    """
    seen = _Tried(tolerance, whole, 1 + first_step, slope)
    load = _placed(guess, lowest, highest, whole)
    while True:
        seen.add(load, strain(load))
        low, high = seen.low, seen.high
        done = (high is None and low == highest) or (low is None and high == lowest)
        if done or seen.close:
            return Bracket(low, high)
        load = _placed(seen.next(), lowest, highest, whole, above=low, below=high)


@dataclass
class _Tried:
    """The state of a search: ``low`` holds, ``high`` fails. ``far`` is the factor of the next step
    where strain says nothing."""

    tolerance: float
    whole: bool
    far: float
    slope: float
    low: float | None = None
    high: float | None = None
    strains: dict[float, float] = field(default_factory=dict)
    row: int = 0

    def add(self, load: float, strain: float) -> None:
        """One more load."""
        held = strain <= 0
        last = next(reversed(self.strains.values()), None)
        self.row = self.row + 1 if last is not None and (last <= 0) == held else 1
        self.strains[load] = strain
        if held:
            self.low = load
        else:
            self.high = load

    @property
    def close(self) -> bool:
        """Whether the change lies between two loads that are close enough."""
        if self.low is None or self.high is None:
            return False
        return self.high - self.low <= (1 + ROUNDING) * self._nearest(self.low)

    def _nearest(self, load: float) -> float:
        """How close to ``load`` is close enough."""
        return max(self.tolerance * load, 1.0 if self.whole else 0.0)

    def _above(self, load: float) -> float:
        """The highest load that is close enough to one that holds."""
        far = (1 - ROUNDING) * self._nearest(load)
        return load + max(1.0, math.floor(far)) if self.whole else load + far

    def _below(self, load: float) -> float:
        """The lowest load that is close enough to one that fails."""
        far = (1 - ROUNDING) * self._nearest(load / (1 + self.tolerance))
        return load - max(1.0, math.floor(far)) if self.whole else load - far

    def next(self) -> float:
        """The load that says most of where the change is."""
        low, high = self.low, self.high
        if low is None or high is None:
            return self._further()
        middle = round((low + high) / 2) if self.whole else math.sqrt(low * high)
        root = self._root(low, high)
        if root is None or self.row > ONE_SIDED:
            return middle
        chosen = self._beside(root)
        return chosen if low < chosen < high else middle

    def _further(self) -> float:
        """A step away from loads that are all on one side of the change."""
        mine = self.low if self.high is None else self.high
        assert mine is not None
        up = self.high is None
        others = [load for load in self.strains if load != mine]
        root = self._root(mine, min(others, key=lambda load: abs(load - mine)) if others else None)
        towards = root is not None and (root > mine) == up
        least = mine
        if not towards or self.row > 1:  # strain has said too little
            step, self.far = self.far, 1 + 2 * (self.far - 1)
            least = mine * step if up else mine / step
        if root is None or not towards:
            return least
        chosen = min(max(self._beside(root), mine / FURTHEST), mine * FURTHEST)
        return max(chosen, least) if up else min(chosen, least)

    def _root(self, load: float, other: float | None) -> float | None:
        """Where the strain of two loads, or of one, says that the change is; None where it says
        nothing."""
        mine, slope = self.strains[load], self.slope
        if other is not None:
            slope = (self.strains[other] - mine) / math.log(other / load)
        if not math.isfinite(mine) or not LEAST_SLOPE <= slope < math.inf:
            return None
        return load * math.exp(-mine / slope)

    def _beside(self, root: float) -> float:
        """A load from which one more step closes the bracket if the change is at ``root``, or which
        closes it now."""
        low, high = self.low, self.high
        if low is not None and root <= self._above(low):
            return self._above(low)
        if high is not None and root >= self._below(high):
            return self._below(high)
        return math.floor(root) if self.whole else root / math.sqrt(1 + self.tolerance)


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
        """The knee as plain data."""
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
