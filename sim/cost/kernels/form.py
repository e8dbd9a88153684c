"""Defines a kernel's form: seconds as a formula of shape, parameters and the device's ceilings.

The simulator uses a form and ``calibrate`` fits the same one, so both mean the same thing.
Shapes are mappings of variable names to numpy arrays that broadcast against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sim.specs.profile import KernelFit, Residual

Floats = NDArray[np.float64]
Shape = Mapping[str, Floats]
Parameters = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The device's ceilings, from its data sheet or as measured.

    ``peak`` is the dense FLOP/s of the precision, ``bandwidth`` bytes/s of device memory, ``sms``
    the streaming multiprocessors (on a CPU: cores), ``cache`` the bytes of the last-level cache in
    which a benchmark that does not rotate its buffers finds them again; 0 where it rotates, and
    always 0 in the simulator.
    """

    peak: float
    bandwidth: float
    sms: int
    cache: float = 0.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number to fit: its bounds, where the fit starts, its unit and what it means.

    ``low`` and ``high`` are what is physically possible; with ``log`` the fit moves by ratios,
    which needs ``low`` above 0. Equal bounds make it a given number. ``before`` is its value in
    fits that were made before the form had it; None: every fit has it.
    """

    name: str
    low: float
    start: float
    high: float
    unit: str
    meaning: str
    log: bool = True
    before: float | None = None


def no_time(shape: Shape) -> Floats:
    """No least time of any shape."""
    return np.zeros(())


@dataclass(frozen=True, slots=True)
class Form:
    """A formula for one operator.

    ``variables``    names of the shape, as in the measurements
    ``group``        those that make up one shape when points are held out (never the batch or rows)
    ``seconds``      the formula, without the residual
    ``coordinates``  where a shape lies on the axes of the residual table (base-2 logarithms)
    ``regime``       the kind of shape, for tables of errors
    ``least``        seconds below which a prediction never falls
    """

    operator: str
    variables: tuple[str, ...]
    group: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    seconds: Callable[[Parameters, Shape, Ceilings], Floats]
    coordinates: Callable[[Shape], dict[str, Floats]]
    regime: Callable[[Shape], NDArray[np.str_]]
    least: Callable[[Shape], Floats] = no_time

    def given(self, **values: float) -> Form:
        """The form with these parameters given, not to be fitted."""
        parameters = tuple(
            replace(p, low=values[p.name], start=values[p.name], high=values[p.name])
            if p.name in values
            else p
            for p in self.parameters
        )
        return replace(self, parameters=parameters)

    def predict(self, fit: KernelFit, shape: Shape, ceilings: Ceilings) -> Floats:
        """Seconds of each shape: the formula, corrected by the residual table if there is one, and
        at least ``least``."""
        seconds = self.seconds(fit.parameters, shape, ceilings) * self.correction(fit, shape)
        return np.maximum(seconds, self.least(shape))

    def correction(self, fit: KernelFit, shape: Shape) -> Floats:
        """The factor of the residual table: 1 without one."""
        if fit.residual is None:
            return np.ones(())
        return np.asarray(np.exp(interpolate(fit.residual, self.coordinates(shape))))


def inside(fit: KernelFit, shape: Shape) -> NDArray[np.bool_]:
    """The shapes that lie within the measured ranges of ``fit``, as far as ``shape`` says."""
    within = np.array(True)
    for name in fit.ranges.keys() & shape.keys():
        low, high = fit.ranges[name]
        within = within & (shape[name] >= low) & (shape[name] <= high)
    return np.asarray(within)


def interpolate(residual: Residual, coordinates: Mapping[str, Floats]) -> Floats:
    """The table at ``coordinates``: multilinear inside, the edge's value outside."""
    corners = hat_weights(residual.axes, coordinates)
    values = np.array(residual.values)
    total: Floats = np.zeros(())
    for index, weight in corners:
        total = total + weight * values[index]
    return total


def hat_weights(
    axes: Mapping[str, tuple[float, ...]], coordinates: Mapping[str, Floats]
) -> list[tuple[NDArray[np.int64], Floats]]:
    """For each corner of the grid cell around each point: its row-major index, and its weight."""
    per_axis = []
    for name, knots in axes.items():
        grid = np.array(knots)
        at = np.clip(coordinates[name], grid[0], grid[-1])
        if len(grid) == 1:
            per_axis.append([(np.zeros(np.shape(at), dtype=np.int64), np.ones(np.shape(at)))])
            continue
        left = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 2)
        rest = (at - grid[left]) / (grid[left + 1] - grid[left])
        per_axis.append([(left, 1 - rest), (left + 1, rest)])
    corners = []
    for chosen in product(*per_axis):
        index: NDArray[np.int64] = np.zeros((), dtype=np.int64)
        weight: Floats = np.ones(())
        for knots, (place, share) in zip(axes.values(), chosen, strict=True):
            index = index * len(knots) + place
            weight = weight * share
        corners.append((index, weight))
    return corners
