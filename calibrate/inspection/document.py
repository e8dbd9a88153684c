"""Describes a profile as plain data, ready for a page or a table.

The mapping holds texts, numbers, lists and mappings only, so that it can be written to a file
unchanged. Errors are shares (0.05 is 5 %), times seconds, work FLOP and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from calibrate.inspection.curves import KernelCurve, curves, describe
from calibrate.inspection.find import FoundProfile
from calibrate.inspection.kernels import (
    Kernel,
    kernels,
    parameters,
    regime_order,
    score,
    score_document,
)
from calibrate.inspection.measured import Measured
from sim.cost.kernels import moe
from sim.cost.kernels.choice import ARITHMETIC, EXPERTS, OVER_GPUS, work
from sim.cost.kernels.form import Floats, inside
from sim.cost.measured import arithmetic_of
from sim.specs.gpu import GpuSpec
from sim.version import version

NO_MEASUREMENTS = (
    "This profile came without measurements: the tables and the curves of the fitted forms are "
    "all that can be shown."
)


SAMPLE = (
    "The points drawn are a sample of the timings that were fitted: of each operator of nearly "
    "every model, some evenly spaced in the order of their times (aiconfigurator-core, NVIDIA, "
    "Apache-2.0). The errors in the tables are of all timings, each predicted by a fit that had "
    "not seen its shape."
)


def document(found: FoundProfile, measured: Measured | None) -> dict[str, Any]:
    """Everything that a page shows of a profile except the single points."""
    listed = kernels(found, measured)
    unknown = [f"{k.operator} {k.precision}" for k in listed if k.choice is None]
    notes = list(measured.notes) if measured is not None else [NO_MEASUREMENTS]
    if measured is not None and found.holds_sample(measured.path):
        notes += [SAMPLE]
    elif measured is not None:
        notes += _without_fit(listed, measured)
    if unknown:
        notes.append(
            f"No form of this version prices {', '.join(unknown)}: no prediction can be drawn."
        )
    return {
        "name": found.name,
        "title": found.gpu.title,
        "version": version(),
        "source": found.profile.source,
        "date": found.profile.date,
        "facts": dict(found.profile.facts),
        "ceilings": _ceilings(found.gpu, listed),
        "errors": [_errors(kernel, measured) for kernel in listed],
        "regimes": _regimes(listed),
        "parameters": parameters(listed),
        "curves": [entry for kernel in listed for entry in _curves(found.gpu, kernel)],
        "roofline": _roofline(found.gpu, listed),
        "measurements": None if measured is None else _measurements(measured, found),
        "notes": notes,
    }


def _without_fit(listed: list[Kernel], measured: Measured) -> list[str]:
    """A note of the measurements that no fit of the profile is about."""
    fitted = {(kernel.operator, kernel.precision) for kernel in listed}
    rest = [
        f"{o} {p} ({len(own)})" for (o, p), own in measured.points.items() if (o, p) not in fitted
    ]
    return [f"Measured, but not fitted: {', '.join(rest)}."] if rest else []


def points(found: FoundProfile, measured: Measured | None) -> dict[str, list[Any]]:
    """Every measured point as plain columns; ``predicted`` is None where no form is known."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            *("operator", "precision", "kernel", "regime", "shape", "noisy", "inside"),
            *("measured", "low", "high", "predicted", "flop", "bytes"),
        )
    }
    for kernel in kernels(found, measured):
        predicted = kernel.predicted
        if kernel.choice is None or kernel.points is None or predicted is None:
            continue
        shape = kernel.points.shape
        flop, moved = work(kernel.operator, kernel.precision, shape)
        count = len(kernel.points)
        columns["operator"] += [kernel.operator] * count
        columns["precision"] += [kernel.precision] * count
        columns["kernel"] += kernel.points.kernel
        columns["regime"] += kernel.choice.form.regime(shape).tolist()
        columns["shape"] += _described(shape, count)
        columns["noisy"] += kernel.points.noisy
        columns["inside"] += np.broadcast_to(inside(kernel.fit, shape), count).tolist()
        columns["measured"] += kernel.points.seconds.tolist()
        columns["low"] += _plain(kernel.points.low)
        columns["high"] += _plain(kernel.points.high)
        columns["predicted"] += predicted.tolist()
        columns["flop"] += flop.tolist()
        columns["bytes"] += moved.tolist()
    return columns


def _described(shape: Mapping[str, Floats], count: int) -> list[str]:
    return [describe({name: float(c[i]) for name, c in shape.items()}) for i in range(count)]


def _plain(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _errors(kernel: Kernel, measured: Measured | None) -> dict[str, Any]:
    fit, predicted = kernel.fit, kernel.predicted
    own = None
    if predicted is not None and kernel.points is not None:
        own = score_document(score(predicted, kernel.points.seconds))
    return {
        "operator": kernel.operator,
        "precision": kernel.precision,
        "kernel": fit.kernel,
        **score_document(fit.holdout),
        "residual": fit.residual is not None,
        "ranges": {name: list(pair) for name, pair in fit.ranges.items()},
        "regimes": [
            {"name": name, **score_document(fit.regimes[name])}
            for name in sorted(fit.regimes, key=regime_order)
        ],
        "all_points": own,
        "noise": measured.noise.get(kernel.operator) if measured is not None else None,
    }


def _regimes(listed: list[Kernel]) -> dict[str, list[str]]:
    """By operator, the regimes of its measured points from small shapes to large ones."""
    found: dict[str, set[str]] = {}
    for kernel in listed:
        if kernel.choice is not None and kernel.points is not None:
            names = kernel.choice.form.regime(kernel.points.shape)
            found.setdefault(kernel.operator, set()).update(names.tolist())
    return {operator: sorted(names, key=regime_order) for operator, names in found.items()}


def _curves(gpu: GpuSpec, kernel: Kernel) -> Iterator[dict[str, Any]]:
    if kernel.choice is None:
        return
    drawn: list[KernelCurve] = curves(
        kernel.operator, kernel.precision, gpu, kernel.choice, kernel.fit, kernel.points
    )
    for curve in drawn:
        yield {
            "operator": kernel.operator,
            "precision": kernel.precision,
            "label": curve.label,
            "variable": curve.variable,
            **{
                name: getattr(curve, name).tolist()
                for name in ("at", "seconds", "flop", "bytes", "measured_at", "measured")
            },
        }


def _ceilings(gpu: GpuSpec, listed: list[Kernel]) -> list[dict[str, Any]]:
    """The device's ceilings, from its data sheet or measured, with their source."""
    rows = [("memory bandwidth", gpu.bandwidth, "B/s", "bandwidth")]
    if any(kernel.operator in OVER_GPUS for kernel in listed):
        rows.append(("link between GPUs", gpu.link.bandwidth, "B/s", "link"))
    for precision, peak in _peaks(gpu, listed).items():
        rows.append((f"peak, {precision}", peak, "FLOP/s", "peak_flops"))
    return [
        {"name": name, "value": value, "unit": unit, "source": gpu.sources.get(field, "")}
        for name, value, unit, field in rows
    ]


def _peaks(gpu: GpuSpec, listed: list[Kernel]) -> dict[str, float]:
    """Peak FLOP/s of the precisions in which the fitted operators multiply."""
    used = [
        _multiplied_in(kernel)
        for kernel in listed
        if kernel.choice is not None and kernel.operator in ARITHMETIC
    ]
    return {p: gpu.flops(p) for p in dict.fromkeys(used)}


def _multiplied_in(kernel: Kernel) -> str:
    """The precision of the arithmetic of a fit's ceiling."""
    if kernel.operator in EXPERTS:
        return moe.FORMATS[kernel.precision].arithmetic
    return "bf16" if kernel.operator != "gemm" else arithmetic_of(kernel.precision)


def _roofline(gpu: GpuSpec, listed: list[Kernel]) -> dict[str, Any]:
    """Ceilings of the device, and what of them the fits say is reached."""
    reached = []
    for kernel in listed:
        if kernel.choice is None:
            continue
        p, ceilings = kernel.fit.parameters, kernel.choice.ceilings
        share = p.get("bandwidth", p.get("share"))
        compute = p["compute"] * ceilings.peak if kernel.operator == "gemm" else None
        reached.append(
            {
                "operator": kernel.operator,
                "precision": kernel.precision,
                "bandwidth": None if share is None else share * ceilings.bandwidth,
                "compute": compute,
            }
        )
    rates = {"bandwidth": gpu.bandwidth, "link": gpu.link.bandwidth}
    return {**rates, "peaks": _peaks(gpu, listed), "reached": reached}


def _measurements(measured: Measured, found: FoundProfile) -> dict[str, Any]:
    return {
        "file": measured.path.name,
        "sampled": found.holds_sample(measured.path),
        "statuses": dict(measured.statuses),
        "layers": [list(layer) for layer in measured.layers],
    }
