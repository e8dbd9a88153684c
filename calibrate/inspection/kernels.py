"""Lists the fits of a profile: their forms, parameters, and distances from what was measured.

``parameters`` describes values, uncertainties and meanings as plain data, in SI units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.inspection.find import FoundProfile
from calibrate.inspection.measured import Measured, Points
from sim.cost.kernels.choice import Choice, choose
from sim.cost.kernels.form import Floats, Form, Parameter
from sim.specs.profile import KernelFit, Score


class Kernel(NamedTuple):
    """One fit, its form (None: unknown here), and its measurements, if any."""

    operator: str
    precision: str
    fit: KernelFit
    choice: Choice | None
    points: Points | None

    @property
    def predicted(self) -> Floats | None:
        """Seconds of each measured point by the final fit, under the conditions of the timing."""
        if self.choice is None or self.points is None:
            return None
        ceilings = replace(self.choice.ceilings, cache=self.points.warm)
        return self.choice.form.predict(self.fit, self.points.shape, ceilings)


def kernels(found: FoundProfile, measured: Measured | None) -> list[Kernel]:
    """The fits of a profile in its order, with what can be said of each."""
    listed = []
    for operator, fits in found.profile.kernels.items():
        for precision, fit in fits.items():
            choice = choose(operator, precision, found.gpu, fit.form)
            if choice is not None and not choice.suits(fit):
                choice = None
            points = None
            if measured is not None and choice is not None:
                points = _complete(measured.points.get((operator, precision)), choice.form)
            listed.append(Kernel(operator, precision, fit, choice, points))
    return listed


def _complete(points: Points | None, form: Form) -> Points | None:
    """The points that have every variable of the form; None where there are none."""
    if points is None:
        return None
    columns = np.column_stack([points.shape[name] for name in form.variables])
    whole: NDArray[np.bool_] = np.asarray(np.isfinite(columns).all(axis=1))
    return points.take(whole, form.variables) if whole.any() else None


def score(predicted: Floats, measured: Floats) -> Score:
    """Median and 90th percentile of the relative error, and its bias."""
    error = predicted / measured - 1
    size = np.abs(error)
    return Score(
        float(np.median(size)), float(np.percentile(size, 90)), float(np.median(error)), len(error)
    )


def score_document(found: Score) -> dict[str, Any]:
    """A score as a mapping."""
    return {
        "median": found.median, "p90": found.p90, "bias": found.bias, "points": found.points
    }  # fmt: skip


_SIZE = re.compile(r"([\d,.]*\d)(?: ?(kB|MB|GB|k|M|G))?(?: to [\d,.]*\d(?: ?(kB|MB|GB|k|M|G))?)?")
_FACTORS = {"k": 1e3, "M": 1e6, "G": 1e9}


def regime_order(name: str) -> list[float]:
    """Sorts kinds of shapes by the sizes in their names.

    >>> sorted(["above", "64 kB to 1 MB", "1 to 16 MB", "below 64 kB"], key=regime_order)
    ['below 64 kB', '64 kB to 1 MB', '1 to 16 MB', 'above']
    """
    order = []
    for part in name.split(", "):
        size = _SIZE.search(part)
        if size is None:
            order.append(math.inf)
            continue
        unit = size[2] or size[3] or ""
        value = float(size[1].replace(",", "")) * _FACTORS.get(unit[:1], 1.0)
        order.append(
            value - (0.5 * value if part.split()[0] == "below" or " below " in part else 0)
        )
    return order


def parameters(listed: list[Kernel]) -> list[dict[str, Any]]:
    """By operator: its parameters in the order of the form, with the value in each precision."""
    by_operator: dict[str, list[Kernel]] = {}
    for kernel in listed:
        by_operator.setdefault(kernel.operator, []).append(kernel)
    return [
        {
            "operator": operator,
            "precisions": [kernel.precision for kernel in own],
            "rows": list(_parameter_rows(own)),
        }
        for operator, own in by_operator.items()
    ]


def _parameter_rows(own: list[Kernel]) -> Iterator[dict[str, Any]]:
    specs: dict[str, Parameter | None] = {}
    for kernel in own:
        known = kernel.choice.form.parameters if kernel.choice is not None else ()
        specs |= {spec.name: spec for spec in known if spec.name in kernel.fit.parameters}
    for kernel in own:
        specs = {**dict.fromkeys(kernel.fit.parameters), **specs}
    for name, spec in specs.items():
        yield {
            "name": name,
            "unit": spec.unit if spec is not None else "",
            "meaning": spec.meaning if spec is not None else "",
            "values": {
                kernel.precision: _value(kernel.fit, name, spec)
                for kernel in own
                if name in kernel.fit.parameters
            },
        }


def _value(fit: KernelFit, name: str, spec: Parameter | None) -> dict[str, Any]:
    """``state``: ``fitted``, ``given`` (not left to the fit) or ``open`` (the measurements do not
    say: its interval is all that is possible)."""
    value = fit.parameters[name]
    if name not in fit.intervals:
        return {"value": value, "low": None, "high": None, "state": "fitted"}
    low, high = fit.intervals[name]
    state = "given" if low == high else "fitted"
    if spec is not None and low < high:
        near = 1e-3 * (spec.high - spec.low)
        if low <= spec.low + near * (not spec.log) and high >= spec.high * (1 - 1e-3):
            state = "open"
    return {"value": value, "low": low, "high": high, "state": state}
