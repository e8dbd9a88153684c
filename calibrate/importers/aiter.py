"""Fits to the timings of tuned kernels that AMD's library aiter carries (ROCm/aiter, MIT).

Its tuner times every kernel that suits a shape and keeps the quickest: a row has that one's time.
An engine that runs the library as it is tuned takes as long; one that does not takes longer, so
that the fits are lower bounds. Two tables are read, as CSV files that join those of the library:

- products: ``device``, ``dtype``, ``weight_dtype``, ``m``, ``n``, ``k``, ``latency_us``. Inputs
  come in the width of the arithmetic: their quantisation is no part of a timing
- fused experts: ``device``, ``dtype_a``, ``dtype_w``, ``tokens``, ``hidden``, ``inter``,
  ``experts``, ``topk``, ``latency_us``, of both grouped products. The choice of experts and the
  sorting of rows are no part of a timing: ``ROUTING_FLOOR`` is added. Routing is by chance

Left out: batched products, rows without a time, rows faster than the device's ceilings allow, and
formats with timings of fewer than ``LEAST_SHAPES`` matrices or models. Attention has no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.data import Data
from calibrate.fit import fit
from calibrate.importers.aiconfigurator.gemm import AXES, MOST_ROWS, NARROWEST, at_layers
from calibrate.importers.aiconfigurator.moe import AXES as EXPERT_AXES
from calibrate.known_shapes import with_known
from sim import catalog
from sim.cost.kernels import expert_tiles, gemm, moe
from sim.cost.kernels.form import Ceilings, Floats
from sim.cost.parts.mixture_of_experts import ROUTING_FLOOR
from sim.errors import InfersimError, UsageError
from sim.specs.gpu import GpuSpec
from sim.specs.popularity import chances
from sim.specs.profile import KernelFit, Profile

DEVICES: Mapping[str, str] = {
    "mi300x": "MI300X/MI325X (gfx942, 304 CU)",
    "mi355x": "MI350X/MI355X (gfx950, 256 CU)",
}
"""The tables' ``device`` by the catalogue's name of the part whose ceilings are taken: they do not
tell MI300X from MI325X, nor MI350X from MI355X. MI308X is left out: many of its experts have one
time for all numbers of tokens."""

PRODUCTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "bf16": (("bf16", "torch.bfloat16"),),
    "fp8": (("a8w8", "torch.float8_e4m3fn"), ("a8w8", "torch.float8_e4m3fnuz")),
    "fp8-block": (("a8w8-blockscale", ""),),
    "int8": (("a8w8", "torch.int8"),),
    "mxfp4": (("fp4", ""),),
}
"""The tables' ``dtype`` and ``weight_dtype`` of products, by the simulator's precision."""

_FP8 = ("torch.float8_e4m3fn", "torch.float8_e4m3fnuz")
_FP4 = "torch.float4_e2m1fn_x2"
EXPERTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "bf16": (("torch.bfloat16", "torch.bfloat16"),),
    "fp8": tuple((name, name) for name in _FP8),
    "mxfp4": tuple((name, _FP4) for name in _FP8),
    "mxfp4-inputs": ((_FP4, _FP4),),
    "mxfp4-weights": (("torch.bfloat16", _FP4),),
    "int4-weights": (("torch.bfloat16", "torch.int4"),),
}
"""The tables' ``dtype_a`` and ``dtype_w`` of experts, by their name in profiles."""

LEAST_SHAPES = 3
"""Fewer matrices or models are not fitted: hardly one could be held out."""

CEILING = 1.05
"""A row that needs more than that many times the peak FLOP/s or bandwidth is an error of the
table."""

SOURCE = "ROCm/aiter (MIT)"


def from_aiter(products: Path, experts: Path, gpu: str) -> Profile:
    """The profile of the catalogue's ``gpu`` from the tables of products and of fused experts.

    Raises UsageError for a GPU that they lack, InfersimError if nothing could be fitted.
    """
    if gpu not in DEVICES:
        raise UsageError(f"aiter has no timings of {gpu!r}; it has those of {', '.join(DEVICES)}")
    spec = catalog.gpu(gpu)
    kernels = {
        "gemm": fit_products(_rows(products, gpu), spec),
        "moe": fit_experts(_rows(experts, gpu), spec),
    }
    kernels = {operator: fits for operator, fits in kernels.items() if fits}
    if not kernels:
        raise InfersimError(f"{gpu}: no format has enough timings to be fitted")
    return Profile(
        source=(
            f"Timings of the quickest kernel that tuning found on {DEVICES[gpu]}, published in "
            f"{SOURCE}: a lower bound of what an engine takes by default"
        ),
        date=datetime.now(UTC).date().isoformat(),
        facts={
            "gpu": gpu,
            "made with": f"infersim calibrate import aiter PRODUCTS EXPERTS --gpu {gpu} --bare",
            "not measured": "attention, collectives, element-wise operators, quantisation of "
            "inputs, choice and sorting of experts, kernels that were not tuned for a shape",
        },
        kernels=kernels,
    )


def fit_products(rows: pd.DataFrame, gpu: GpuSpec) -> dict[str, KernelFit]:
    """Fits of products by precision, from the ``rows`` of one device."""
    axes = {name: tuple(np.round(np.log2(knots), 4).tolist()) for name, knots in AXES.items()}
    kept = (rows["m"] <= MOST_ROWS) & (rows[["n", "k"]].min(axis=1) >= NARROWEST)
    if "batched" in rows:
        kept &= rows["batched"].isna()
    rows, found = rows[kept], {}
    for precision, names in PRODUCTS.items():
        own = _of(rows, ("dtype", "weight_dtype"), names)
        shape, seconds = _quickest(own, {"m": "m", "n": "n", "k": "k"})
        limits = Ceilings(gpu.flops(precision), gpu.bandwidth, gpu.sms)
        flops = 2 * shape["m"] * shape["n"] * shape["k"]
        moved = shape["n"] * shape["k"] * gemm.WIDTHS[precision].weight
        least = np.maximum(flops / limits.peak, moved / limits.bandwidth) / CEILING
        data = Data(shape, seconds, np.ones(len(seconds))).take(seconds > least)
        if (
            len({*zip(data.shape["n"].tolist(), data.shape["k"].tolist(), strict=True)})
            < LEAST_SHAPES
        ):
            continue
        form = gemm.form(precision)
        if gemm.WIDTHS[precision].converted:
            form = form.given(convert=0.0, row=0.0)
        found[precision] = fit(
            form, data, limits, axes=axes, kernel=_kernel(), judged=at_layers(data)
        )
    return found


def fit_experts(rows: pd.DataFrame, gpu: GpuSpec) -> dict[str, KernelFit]:
    """Fits of fused experts by their name in profiles, from the ``rows`` of one device."""
    columns = {"hidden": "hidden", "width": "inter", "chosen": "topk", "experts": "experts"}
    rows, found = rows[rows["topk"] > 0], {}
    for precision, names in EXPERTS.items():
        own = _of(rows, ("dtype_a", "dtype_w"), names)
        if len(own[list(columns.values())].drop_duplicates()) < LEAST_SHAPES:
            continue
        kind = moe.FORMATS[precision]
        limits = Ceilings(gpu.flops(kind.arithmetic), gpu.bandwidth, gpu.sms)
        shape, seconds = _quickest(own, {**columns, "tokens": "tokens"})
        ones, tokens = np.ones(len(seconds)), shape["tokens"]
        shape |= {"gpus": ones, "ranks": ones, "matrices": 3 * ones}
        shape |= {"rows": tokens * shape["chosen"]}
        shape |= _counted(tokens, shape["experts"], shape["chosen"])
        moved = moe.weight_bytes(shape, kind.weight) / limits.bandwidth
        least = np.maximum(moe.flops(shape) / limits.peak, 0.5 * moved) / CEILING
        data = Data(shape, seconds, ones).take(seconds > least)
        form, every = moe.form(precision), np.ones(len(data), dtype=bool)
        fitted = fit(form, data, limits, kernel=_kernel(), judged=every)
        ranges = {n: s for n, s in fitted.ranges.items() if n in (*moe.GROUP, "tokens", "matrices")}
        fitted = with_known(fitted, form, data, limits, EXPERT_AXES, ("tokens",), every)
        latency = fitted.parameters["latency"] + ROUTING_FLOOR
        parameters = {**fitted.parameters, "latency": latency}
        intervals = {n: span for n, span in fitted.intervals.items() if n != "latency"}
        found[precision] = replace(
            fitted, ranges=ranges, parameters=parameters, intervals=intervals
        )
    return found


def _counted(tokens: Floats, experts: Floats, chosen: Floats) -> dict[str, Floats]:
    """Experts touched and tiles of each height that chance gives the tokens of each row."""
    found = np.zeros((len(tokens), 1 + len(moe.HEIGHTS)))
    for count, each in {*zip(experts.tolist(), chosen.tolist(), strict=True)}:
        at = (experts == count) & (chosen == each)
        among = chances(int(count), int(each))
        tiles = expert_tiles.expected(tokens[at], among, (np.inf, *moe.HEIGHTS))
        found[at] = np.column_stack(tiles)
    return dict(zip(("touched", *moe.TILES), found.T, strict=True))


def _rows(path: Path, gpu: str) -> pd.DataFrame:
    """The timings of a device in a table, without those that have no time."""
    table = pd.read_csv(path, low_memory=False)
    if not {"device", "latency_us"} <= set(table.columns):
        raise UsageError(f"{path}: not a table of aiter's timings (no device, no latency_us)")
    return table[(table["device"] == DEVICES[gpu]) & (table["latency_us"] > 0)]


def _quickest(rows: pd.DataFrame, columns: Mapping[str, str]) -> tuple[dict[str, Floats], Floats]:
    """The different shapes, by the names in ``columns`` of the table's own, and the shortest time
    of each in seconds."""
    keys = [*columns.values()]
    table = pd.DataFrame(rows.groupby(keys)["latency_us"].min()).reset_index()
    shape = {new: table[old].to_numpy(dtype=np.float64) for new, old in columns.items()}
    return shape, table["latency_us"].to_numpy(dtype=np.float64) / 1e6


def _of(
    rows: pd.DataFrame, columns: tuple[str, str], names: tuple[tuple[str, str], ...]
) -> pd.DataFrame:
    pairs = rows[list(columns)].fillna("").apply(tuple, axis=1)
    return rows[pairs.isin(names)]


def _kernel() -> str:
    return f"aiter: the quickest that tuning found ({SOURCE})"
