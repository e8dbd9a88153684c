"""Describes a fit's parameters: values, uncertainties and meanings. Plain data, SI units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sim.calibration.kernels import Kernel
from sim.cost.kernels.form import Parameter
from sim.profile import KernelFit


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
