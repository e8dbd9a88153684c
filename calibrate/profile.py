"""Makes a profile of the measurements of a device, to be named as ``gpu:``.

Every operator and precision that was measured often enough is fitted on its own. The data-sheet
values of a known GPU come from the catalogue; of any other device they are the best measured: the
bandwidth of large copies, the FLOP/s of large products. SI units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from calibrate.bench.routing import COUNTS, whole_shape
from calibrate.data import Data
from calibrate.device import DeviceFacts
from calibrate.fit import JUMPY, SMOOTH, fit, groups
from calibrate.known_shapes import with_known
from calibrate.measurements import SEPARATOR, Measurement
from calibrate.residual import axes_of, jumpy_axes_of
from sim import catalog
from sim.catalog.gpu_file import LEAST
from sim.catalog.gpu_names import named_by_driver
from sim.catalog.profile_file import to_document, to_yaml
from sim.cost.kernels import moe, serial, stream
from sim.cost.kernels.choice import EXPERTS, FORMS, MOVERS
from sim.cost.kernels.form import Ceilings, Floats, Form
from sim.errors import InfersimError, UsageError
from sim.results.whole_file import write_text
from sim.specs.gpu import GpuSpec
from sim.specs.profile import KernelFit, Profile

LEAST_POINTS = 8
LEAST_SHAPES = 4
"""Fewer measurements, or fewer shapes to hold out, are not fitted."""

MOVING = ("memory", "memory_read", "norm", "activation", "rotary", "embedding", "stream")
"""Operators whose fastest timing shows the bandwidth of a device that nothing is known of."""

STREAMS = ("norm", "activation", "stream")
"""Operators that stand for all that only move data: the first that was measured says how much of
the bandwidth they reach."""

ROTATED = {
    "gemm": {"cached": 1.0, "convert": 0.0, "row": 0.0},
    "decode_attention": {"cache_share": 1.0, "cache_speed": 1.0},
    "prefill_attention": {"cache_share": 1.0, "cache_speed": 1.0},
    "window_decode": {"cache_share": 1.0, "cache_speed": 1.0},
    "window_prefill": {"cache_share": 1.0, "cache_speed": 1.0},
    "moe": {"cached": 1.0, "all": 0.0},
}
"""Parameters that our own measurements leave nothing to: their buffers rotate, so nothing is found
in a cache again, and the conversion of inputs is an operator of its own (``quantise``). One device
has no rows but its own, so that nothing is known of those of other ranks (``all``)."""


def write_profile(
    measurements: Sequence[Measurement], device: DeviceFacts, path: Path, *, drift: float = 0.0
) -> Profile:
    """Fit all there is to fit, write a GPU file with the profile in it to ``path``, return it.

    ``drift`` is how much the speed of the device wandered meanwhile, as a share. Raises
    InfersimError if nothing was measured often enough to be fitted.
    """
    like = named_by_driver(device.name)
    known = catalog.gpu(like) if like is not None else None
    limits = _limits(measurements, device, known)
    kernels: dict[str, dict[str, KernelFit]] = defaultdict(dict)
    for operator, precision, rows in _by_kernel(measurements):
        found = _fitted(operator, precision, rows, device, limits)
        if found is not None:
            kernels[operator][precision] = replace(found, drift=drift)
    if not kernels:
        raise InfersimError(
            f"nothing to fit: no operator has {LEAST_POINTS} timings of {LEAST_SHAPES} shapes; "
            "measure for longer (--time-budget, --resume)"
        )
    profile = Profile(
        source=f"Measured on {device.name} with infersim's own benchmarks",
        date=datetime.now(UTC).date().isoformat(),
        facts={"device": device.name, "units": str(device.units), **device.details},
        kernels=kernels,
    )
    hardware = _hardware(device, limits, like, kernels)
    write_text(path, to_yaml({**hardware, "profile": to_document(profile)}))
    return profile


class _Limits:
    """Ceilings by precision, and where they come from."""

    def __init__(self, bandwidth: float, peaks: Mapping[str, float], units: int) -> None:
        self.bandwidth, self.peaks, self.units = bandwidth, peaks, units

    def of(self, precision: str) -> Ceilings:
        """The ceilings under which an operator in ``precision`` is fitted."""
        arithmetic = "bf16" if precision.endswith("-weights") else precision
        peak = self.peaks.get(arithmetic) or max(self.peaks.values())
        return Ceilings(peak, self.bandwidth, self.units)


def _limits(
    measurements: Sequence[Measurement], device: DeviceFacts, known: GpuSpec | None
) -> _Limits:
    if known is not None:
        return _Limits(known.bandwidth, known.peak_flops, known.sms)
    moved = [
        row.shape["bytes"] / row.seconds
        for row in measurements
        if row.operator in MOVING and row.seconds and "bytes" in row.shape
    ]
    products = [
        row
        for row in measurements
        if row.operator == "gemm" and row.seconds and {"m", "n", "k"} <= row.shape.keys()
    ]
    peaks: dict[str, float] = {}
    for row in products:
        if row.precision.endswith("-weights") or row.seconds is None:
            continue
        rate = 2 * row.shape["m"] * row.shape["n"] * row.shape["k"] / row.seconds
        peaks[row.precision] = max(rate, peaks.get(row.precision, LEAST["FLOP/s"]))
    if not moved or not peaks:
        raise InfersimError(
            "the measurements hold no copy and no product, from which the ceilings of a device "
            "that the catalogue does not know are taken; measure for longer (--resume)"
        )
    if "bf16" not in peaks and "fp16" not in peaks:
        peaks["bf16"] = max(peaks.values())
    return _Limits(max(*moved, LEAST["bytes per second"]), peaks, device.units)


def _by_kernel(
    measurements: Sequence[Measurement],
) -> Iterator[tuple[str, str, list[Measurement]]]:
    rows: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for row in measurements:
        if row.seconds:
            rows[row.operator, row.precision].append(row)
    for (operator, precision), found in sorted(rows.items()):
        yield operator, precision, found


def _fitted(
    operator: str, precision: str, rows: Sequence[Measurement], device: DeviceFacts, limits: _Limits
) -> KernelFit | None:
    """The fit of one operator in one precision; None where there is no form or too little."""
    form = _form(operator, precision, device.kind)
    if form is None:
        return None
    data = to_data(form, rows)
    if len(data) >= LEAST_POINTS and groups(form, data).max() + 1 < LEAST_SHAPES:
        form = _finer(form)
    if len(data) < LEAST_POINTS or groups(form, data).max() + 1 < LEAST_SHAPES:
        return None
    jumpy = device.kind == "cpu" and operator == "gemm"
    tabled = operator != "moe" or device.kind == "cpu"
    try:
        found = fit(
            form,
            data,
            limits.of(_arithmetic(operator, precision)),
            axes=(jumpy_axes_of if jumpy else axes_of)(form, data) if tabled else None,
            kernel=", ".join(sorted({_implementation(row) for row in rows})),
            judged=np.ones(len(data), dtype=bool),
            trial=JUMPY if jumpy else SMOOTH,
        )
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        raise UsageError(
            f"{operator} in {precision}: no form can be fitted to these {len(data)} timings "
            f"({error}); they are not as a device was measured"
        ) from None
    if jumpy:
        found = _at_own_sizes(found, form, data, limits.of(_arithmetic(operator, precision)))
    ranges = {name: span for name, span in found.ranges.items() if name not in COUNTS}
    name = serial.NAME if device.kind == "cpu" else ""
    return replace(found, ranges=ranges, form=name)


def _at_own_sizes(found: KernelFit, form: Form, data: Data, ceilings: Ceilings) -> KernelFit:
    """``found`` with a table of each matrix that was timed at ``LEAST_POINTS`` numbers of rows: the
    library of a CPU changes its kernel at other numbers for one matrix than for the next."""
    matrix = groups(form, data)
    own = data.take(np.bincount(matrix)[matrix] >= LEAST_POINTS)
    axes = jumpy_axes_of(form, own) if len(own) else None
    if axes is None or "m" not in axes:
        return found
    rows = {"m": axes["m"]}
    return with_known(found, form, own, ceilings, rows, ("m",), ridges=JUMPY.ridges)


def _implementation(row: Measurement) -> str:
    """The kernel of a row: of experts without the law by which tokens chose them."""
    if row.operator in EXPERTS and row.variant:
        return row.kernel.removeprefix(row.variant + SEPARATOR)
    return row.kernel


def _arithmetic(operator: str, precision: str) -> str:
    """The precision of the ceiling that an operator is fitted under: as ``choose`` has it."""
    if operator in EXPERTS:
        return moe.FORMATS[precision].arithmetic
    return precision if operator == "gemm" else "bf16"


def _finer(form: Form) -> Form:
    """The form, with shapes that differ in length held out too: where one model's heads are all
    that was measured there is nothing else to hold out."""
    lengths = [name for name in form.variables if name in ("tokens", "context")]
    return replace(form, group=(*form.group, *lengths))


def _form(operator: str, precision: str, kind: str) -> Form | None:
    """The form to fit: on a CPU the serial one, which has no tiles."""
    if operator in MOVERS:
        return serial.mover(operator) if kind == "cpu" else stream.form(operator)
    name = serial.NAME if kind == "cpu" else ""
    make = FORMS.get((operator, name))
    if make is None:
        return None
    form = make(precision)
    return form if name else form.given(**ROTATED.get(operator, {}))


def to_data(form: Form, rows: Sequence[Measurement]) -> Data:
    """The measurements as columns; ``skew`` is 1 where none was noted, ``context`` 0."""
    absent = {"skew": 1.0, "context": 0.0}
    sizes = [whole_shape(row.operator, row.shape, row.variant) for row in rows]
    shape: dict[str, Floats] = {
        name: np.array([each.get(name, absent.get(name, np.nan)) for each in sizes])
        for name in form.variables
    }
    seconds = np.array([row.seconds or np.nan for row in rows])
    whole = ~np.isnan(np.column_stack([*shape.values(), seconds])).any(axis=1)
    return Data(
        {name: column[whole] for name, column in shape.items()},
        seconds[whole],
        np.ones(int(whole.sum())),
    )


def _hardware(
    device: DeviceFacts,
    limits: _Limits,
    like: str | None,
    kernels: Mapping[str, Mapping[str, KernelFit]],
) -> dict[str, object]:
    """The part of the GPU file that is not the profile."""
    if like is not None:
        entry = dict(catalog.raw("gpus", like))
        del entry["names"]  # those of the catalogue's part
        entry["title"] = f"{entry['title']}, measured"
        return entry
    best = "best of the measurements"
    document: dict[str, object] = {
        "title": device.name,
        "memory": _sourced(f"{device.memory:.0f}B", "as the system tells"),
        "bandwidth": _sourced(f"{limits.bandwidth / 1e9:.4g}GB/s", best),
        "peak_flops": _sourced(
            {name: f"{peak / 1e12:.4g}TFLOP/s" for name, peak in limits.peaks.items()}, best
        ),
        "sms": _sourced(device.units, "threads used" if device.kind == "cpu" else "as reported"),
    }
    streams = next((kernels[name] for name in STREAMS if name in kernels), {})
    moving = streams.get("bf16") or next(iter(streams.values()), None)
    if moving is not None:
        document["efficiency"] = _sourced(
            {
                "compute": 1.0,
                "bandwidth": round(min(1.0, moving.parameters["share"]), 4),
                "operator_latency": f"{moving.parameters['latency'] * 1e6:.4g}us",
            },
            "norms with their residuals, as measured",
        )
    return document


def _sourced(value: object, source: str) -> dict[str, object]:
    return {"value": value, "source": source}
