"""Compares two profiles: ratios of predicted times over a common grid of shapes.

Ratios are of the second profile over the first: 2 means that the second takes twice as long. The
grid has usual shapes only, and of those the ones that both profiles have measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from calibrate.inspection import experts, grid
from calibrate.inspection.curves import describe
from calibrate.inspection.find import FoundProfile
from calibrate.inspection.kernels import score_document
from sim.cost.kernels.choice import EXPERTS, choose
from sim.cost.kernels.form import Floats
from sim.specs.profile import KernelFit


class Ratios(NamedTuple):
    """Second over first over ``shapes`` points of the grid; ``extreme`` is the one furthest from 1,
    ``at`` its shape in words."""

    shapes: int
    median: float
    p10: float
    p90: float
    extreme: float
    at: str


class Pair(NamedTuple):
    """One operator in one precision in both profiles; ``ratios`` is None where there is no shape
    that both have measured, or no form for both, which ``why`` says."""

    operator: str
    precision: str
    first: KernelFit
    second: KernelFit
    ratios: Ratios | None
    why: str


class ProfileComparison(NamedTuple):
    """The common points of two profiles, and those of only one of them."""

    first: FoundProfile
    second: FoundProfile
    pairs: list[Pair]
    only_first: list[str]
    only_second: list[str]


def compare(first: FoundProfile, second: FoundProfile) -> ProfileComparison:
    """The two profiles operator by operator, in the order of the first."""
    mine, yours = (set(_names(found)) for found in (first, second))
    return ProfileComparison(
        first,
        second,
        [_pair(first, second, *key) for key in _names(first) if key in yours],
        [" ".join(key) for key in _names(first) if key not in yours],
        [" ".join(key) for key in _names(second) if key not in mine],
    )


def _names(found: FoundProfile) -> Iterator[tuple[str, str]]:
    for operator, fits in found.profile.kernels.items():
        for precision in fits:
            yield operator, precision


def _pair(first: FoundProfile, second: FoundProfile, operator: str, precision: str) -> Pair:
    one, other = (found.profile.kernels[operator][precision] for found in (first, second))
    why = _not_to_be_compared(first, second, operator, precision)
    if why:
        return Pair(operator, precision, one, other, None, why)
    shape = grid.shapes(operator, grid.meet(one.ranges, other.ranges))
    count = len(next(iter(shape.values())))
    if not count:
        why = "no usual shape was measured in both"
        return Pair(operator, precision, one, other, None, why)
    before, after = (_times(found, operator, precision, shape) for found in (first, second))
    ratio = after / before
    furthest = int(np.argmax(np.abs(np.log(ratio))))
    p10, median, p90 = np.percentile(ratio, (10, 50, 90)).tolist()
    at = describe({name: float(column[furthest]) for name, column in shape.items()})
    ratios = Ratios(len(ratio), median, p10, p90, float(ratio[furthest]), at)
    return Pair(operator, precision, one, other, ratios, "")


def _not_to_be_compared(
    first: FoundProfile, second: FoundProfile, operator: str, precision: str
) -> str:
    """Why the two fits cannot be compared, whatever the shape; empty if they can."""
    for letter, found in (("A", first), ("B", second)):
        fit = found.profile.kernels[operator][precision]
        choice = choose(operator, precision, found.gpu, fit.form)
        if choice is None:
            return f"this version has no form for that of {letter}"
        if not choice.suits(fit):
            return f"the parameters of {letter} are not those of its form"
        known = grid.variables(operator)
        if operator not in EXPERTS and not set(choice.form.variables) <= known:
            return "there is no grid of usual shapes for it"
    return ""


def _times(found: FoundProfile, operator: str, precision: str, shape: dict[str, Floats]) -> Floats:
    """Seconds of every shape."""
    fit = found.profile.kernels[operator][precision]
    if operator in EXPERTS:
        return experts.times(operator, precision, found.gpu, fit, shape).seconds
    choice = choose(operator, precision, found.gpu, fit.form)
    assert choice is not None
    return choice.form.predict(fit, shape, choice.ceilings)


def to_document(comparison: ProfileComparison) -> dict[str, Any]:
    """The comparison as plain data, for ``--json``."""
    return {
        "first": _named(comparison.first),
        "second": _named(comparison.second),
        "operators": [_pair_document(pair) for pair in comparison.pairs],
        "only_first": comparison.only_first,
        "only_second": comparison.only_second,
    }


def _named(found: FoundProfile) -> dict[str, str]:
    profile = found.profile
    return {
        "name": found.name,
        "gpu": found.gpu.title,
        "source": profile.source,
        "date": profile.date,
    }


def _pair_document(pair: Pair) -> dict[str, Any]:
    names = list(dict.fromkeys([*pair.first.parameters, *pair.second.parameters]))
    fits = {"first": pair.first, "second": pair.second}
    return {
        "operator": pair.operator,
        "precision": pair.precision,
        "ratio": None if pair.ratios is None else pair.ratios._asdict(),
        "why": pair.why,
        "parameters": {
            name: {which: fit.parameters.get(name) for which, fit in fits.items()} for name in names
        },
        "holdout": {which: score_document(fit.holdout) for which, fit in fits.items()},
        "kernel": {which: fit.kernel for which, fit in fits.items()},
    }
