"""Compares the machine with itself, and a layer with the sum of its parts.

An error on held-out shapes means little without the noise to compare it with: if a second timing of
the same point differs by 5 %, no fit can do better. All numbers are relative (0.05 is 5 %).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles

from calibrate.bench.base import BenchPoint, Key
from calibrate.bench.layer import parts_of
from calibrate.measurements import Measurement, MeasurementTable
from calibrate.settle import smoothed
from sim.cost.trust import PROJECTION_ERROR
from sim.specs.model import ModelSpec

MOST = PROJECTION_ERROR
"""Drift and noise from which on a calibration is refused: a GPU of which nothing was measured is
predicted with about this error, so a profile of a machine that differs from itself by more is worth
no more than none. Machines left alone show noise of 2 to 6 %, and drift of as much."""

LEAST_AGAIN = 8
"""Second timings that are needed before their noise counts."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Differences between the first and the second timing of the same points."""

    operator: str
    median: float
    p90: float
    points: int


@dataclass(frozen=True, slots=True)
class DeviceDrift:
    """How an anchor's time changed from its first measurement to its last."""

    operator: str
    change: float
    times: int


@dataclass(frozen=True, slots=True)
class Sum:
    """A layer or step against its parts: measured over summed, less 1."""

    operator: str
    variant: str
    shape: str
    measured: float
    summed: float

    @property
    def excess(self) -> float:
        """The gap between the parts, as a share of their sum."""
        return self.measured / self.summed - 1


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How steady the machine was: ``drift``, by which the speed of its anchors wandered around
    their median (root mean square; 0 without anchors), the ``changes`` of each from start to end,
    and the ``noise`` of second timings."""

    drift: float
    changes: tuple[DeviceDrift, ...]
    noise: Noise | None

    @property
    def problems(self) -> list[str]:
        """Why no profile should be made of it, in words; empty if it was steady enough."""
        found = []
        if self.drift > MOST:
            told = ", ".join(f"{each.operator} {each.change:+.0%}" for each in self.changes)
            found.append(
                f"its speed wandered by {self.drift:.0%} around the median (from start to end: "
                f"{told})"
            )
        if self.noise is not None and self.noise.median > MOST:
            found.append(
                f"second timings of {self.noise.points} points differed by {self.noise.median:.0%} "
                "in the median"
            )
        return found


def steadiness(table: MeasurementTable) -> Steadiness:
    """How steady the machine was while ``table`` was measured."""
    series: dict[Key, list[float]] = {}
    for row in table.of("anchor"):
        if row.seconds:
            series.setdefault(row.key, []).append(math.log(row.seconds))
    squares = []
    for levels in series.values():
        middle = median(levels)
        squares += [(level - middle) ** 2 for level in smoothed(levels)]
    found = next((each for each in noise(table) if each.operator == "all"), None)
    enough = found is not None and found.points >= LEAST_AGAIN
    drifted = math.sqrt(fmean(squares)) if squares else 0.0
    return Steadiness(drifted, tuple(drift(table)), found if enough else None)


def noise(table: MeasurementTable) -> list[Noise]:
    """By operator, and over all of them under the name ``all``; empty without a second pass."""
    first = {row.key: row.seconds for row in table.usable()}
    found: dict[str, list[float]] = {}
    for row in table.of("again"):
        before = first.get(row.key)
        if before and row.seconds:
            found.setdefault(row.operator, []).append(abs(row.seconds / before - 1))
    everything = [value for values in found.values() for value in values]
    if everything:
        found["all"] = everything
    return [Noise(name, median(v), _p90(v), len(v)) for name, v in found.items()]


def drift(table: MeasurementTable) -> list[DeviceDrift]:
    """Each anchor that was measured at least twice."""
    series: dict[Key, list[float]] = {}
    for row in table.of("anchor"):
        series.setdefault(row.key, []).append(row.seconds or 0.0)
    return [
        DeviceDrift(key[0], values[-1] / values[0] - 1, len(values))
        for key, values in series.items()
        if len(values) > 1
    ]


def sums(table: MeasurementTable, models: Sequence[ModelSpec]) -> list[Sum]:
    """Every layer and step of which all parts were measured."""
    seconds = {row.key: row.seconds or 0.0 for row in table.usable()}
    known = {model.name for model in models}
    found = []
    for row in table.usable():
        if row.operator not in ("layer", "step") or row.variant.rsplit(" ", 1)[0] not in known:
            continue
        if not {"batch", "tokens", "context"} <= row.shape.keys():
            continue
        made = parts_of(_point(row), models)
        if all(part.key in seconds for part, _ in made):
            total = sum(times * seconds[part.key] for part, times in made)
            found.append(Sum(row.operator, row.variant, _shape(row), row.seconds or 0.0, total))
    return found


def _point(row: Measurement) -> BenchPoint:
    return BenchPoint(row.operator, row.precision, row.shape, 0.0, variant=row.variant)


def _shape(row: Measurement) -> str:
    batch, tokens, context = (int(row.shape[name]) for name in ("batch", "tokens", "context"))
    if tokens == 1:
        return f"{batch} decodes at {context}"
    return f"{batch} x {tokens} prefill"


def _p90(values: list[float]) -> float:
    return values[0] if len(values) == 1 else quantiles(values, n=10, method="inclusive")[-1]
