"""Fits matrix products to the published tables ``gemm_perf``.

How they were measured (by the collectors published with the tables): random inputs, several copies
of the layer one after the other in a CUDA graph, the graph replayed; so a launch inside a graph is
part of each timing, host time is not, and small weights are found again in the cache. An fp8
or nvfp4 product there is the layer as the framework runs it: its inputs are quantised (by tensor,
by row or by 16 numbers) and then multiplied, and the fit describes both together; ``quantise`` has
the first part of fp8 alone.

Left out: ``fp8_block`` where ``BLOCKS`` lacks it (calibrate/KERNELS.md says why), matrices narrower
than ``NARROWEST``, which no layer has, and more than ``MOST_ROWS`` rows, which no iteration has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.data import Data
from calibrate.dense import dense_layer, dense_models
from calibrate.fit import fit
from calibrate.importers.aiconfigurator.tables import L2_BYTES, KernelTable, Tables, require
from sim import catalog
from sim.cost.kernels import gemm
from sim.cost.kernels.form import Ceilings, Floats, Parameters, Shape
from sim.errors import InfersimError
from sim.specs.deployment import Deployment
from sim.specs.layout import Layout
from sim.specs.profile import KernelFit

PRECISIONS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "sq": "int8",
    "int8_wo": "int8-weights",
    "int4_wo": "int4-weights",
}
"""The simulator's names for the tables' ``gemm_dtype``; ``sq`` is SmoothQuant, whose inputs come in
8 bits already."""

ARITHMETIC = {"int8-weights": "bf16", "int4-weights": "bf16"}
"""In which precision weight-only products are multiplied; others in their own."""

BLOCKS: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("vllm", "trtllm"), frozenset({"b200_sxm", "b300_sxm", "gb200", "gb300"})
)
"""Systems by framework whose products of weights in blocks are fitted apart: on Blackwell DeepGEMM
takes scales that are powers of two, and a kernel of its own makes them, where products with one
scale for a tensor have theirs from PyTorch's operators (vLLM) or wait for the largest input of all
(TensorRT-LLM). Under vLLM on Hopper both take as long."""

ONE_BY_ONE = frozenset({"vllm"})
"""Frameworks whose collector launches these products one by one, out of no graph."""

LAUNCHED = 1024
"""Rows up to which such a product takes as long as the host to launch it, with most matrices."""

OWN = ("compute", "huge", "droop", "long", "convert", "row")
"""Parameters that such products have of their own: of arithmetic and of conversion. Of the others,
which matter for fewer rows, their timings say nothing."""

NARROWEST = 128
MOST_ROWS = 16384

COPIES = {"vllm": 6, "sglang": 6, "trtllm": 4}
"""Copies of the layer that each collector cycles through: weights of less than the cache over this
are found in it again. TensorRT-LLM's takes between one and five, enough to outgrow the cache; four
describes L40S timings best. On GPUs with HBM the fits are the same for any number."""

USUAL = (512, 16384)
UNUSUAL_WEIGHT = 0.25
"""Weight in the fit of a shape with a side outside ``USUAL`` (the LM head's columns excepted)."""

DECODE_WEIGHT = 0.4
"""Weight of one timing with up to 17 rows: the tables have one for every single number there."""

WIDEST = 52000

AXES = {
    "m": (1, 2, 16, 17, 64, 65, 128, 129, 192, 256, 257, 384, 512, 768, 1024, 1536, 2048, 3072,
          4096, MOST_ROWS),
    "n": (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 51200),
    "k": (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384),
}  # fmt: skip
"""Knots of the residual table; rows are dense where tile sizes change and prompts are cut, and
frameworks treat one row (a matrix-vector product) and 257 (past a block) apart."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, KernelFit]:
    """GEMM fits by precision, from the newest table of the framework unless ``version`` is given.

    ``holdout`` and ``regimes`` are errors at shapes of real layers that the fit had not seen (see
    ``layer_shapes``). Raises UsageError for names that the tables lack.
    """
    table = tables.read(system, "gemm", framework, "gemm_perf", version)
    require(table, ("gemm_dtype", "kernel_source", "m", "n", "k", "latency"))
    found = {}
    for name, precision in PRECISIONS.items():
        rows = table.frame[table.frame["gemm_dtype"] == name]
        if len(rows) and precision not in found:
            found[precision] = fit_precision(table, rows, precision)
    if not found:
        raise InfersimError(f"{framework} {table.version} on {system}: no known precision")
    if system in BLOCKS.get(framework, ()) and "fp8" in found:
        rows = table.frame[table.frame["gemm_dtype"] == "fp8_block"]
        if len(rows) and framework in ONE_BY_ONE:
            found["fp8-block"] = fit_blocks(table, rows, found["fp8"])
        elif len(rows):
            found["fp8-block"] = fit_precision(table, rows, "fp8-block")
    return found


def fit_blocks(table: KernelTable, rows: pd.DataFrame, alike: KernelFit) -> KernelFit:
    """The fit of products by blocks, which the host launches one by one.

    A timing is the longer of product and launch. Those of few rows are launches alone, and what
    only they could tell is as in ``alike``. The error is that of products which take twice as long
    as their launch.
    """
    main = str(rows["kernel_source"].mode()[0])
    rows = rows[rows["kernel_source"] == main]
    launch = float(rows.loc[rows["m"] <= LAUNCHED, "latency"].median()) / 1e3
    data = to_data(rows[rows["m"] > LAUNCHED])
    form = gemm.form("fp8-block")
    given = {name: value for name, value in alike.parameters.items() if name not in OWN}

    def seconds(p: Parameters, shape: Shape, limits: Ceilings) -> Floats:
        total: Floats = np.maximum(form.seconds(p, shape, limits), launch)
        return total

    fitted = fit(
        replace(form.given(**given), seconds=seconds),
        data,
        ceilings(table, "fp8"),
        kernel=table.source(rows),
        judged=data.seconds > 2 * launch,
    )
    ranges = {**fitted.ranges, "m": (alike.ranges["m"][0], fitted.ranges["m"][1])}
    return replace(fitted, ranges=ranges)


def fit_precision(table: KernelTable, rows: pd.DataFrame, precision: str) -> KernelFit:
    """The fit of one precision to the ``rows`` of it."""
    data = to_data(rows)
    axes = {name: tuple(np.round(np.log2(knots), 4).tolist()) for name, knots in AXES.items()}
    return fit(
        gemm.form(precision),
        data,
        ceilings(table, precision),
        axes=axes,
        kernel=table.source(rows),
        judged=at_layers(data),
    )


def to_data(rows: pd.DataFrame) -> Data:
    """The table's rows that the fit uses, in seconds, with their weights."""
    usable = (
        (rows["latency"] > 0)
        & (rows["m"] <= MOST_ROWS)
        & (rows["n"] >= NARROWEST)
        & (rows["k"] >= NARROWEST)
    )
    rows = rows[usable]
    m, n, k = (rows[name].to_numpy(dtype=np.float64) for name in ("m", "n", "k"))
    low, high = USUAL
    unusual = (np.minimum(n, k) < low) | (k > high) | (n > WIDEST)
    weight = np.where(unusual, UNUSUAL_WEIGHT, 1.0) * np.where(m <= 17, DECODE_WEIGHT, 1.0)
    seconds = rows["latency"].to_numpy(dtype=np.float64) / 1e3
    return Data({"m": m, "n": n, "k": k}, seconds, weight / weight.mean())


def ceilings(table: KernelTable, precision: str) -> Ceilings:
    """The GPU's data sheet, with the cache that the collector left warm."""
    gpu = table.gpu
    return Ceilings(
        gpu.flops(ARITHMETIC.get(precision, precision)),
        gpu.bandwidth,
        gpu.sms,
        L2_BYTES[table.system] / COPIES[table.framework],
    )


@cache
def layer_shapes() -> frozenset[tuple[int, int]]:
    """(n, k) of the four projections of every dense catalogue model on 1, 2, 4 and 8 GPUs."""
    gpu, engine = catalog.gpu("h100-sxm"), catalog.engine("reference")
    found = set()
    for model in dense_models():
        for gpus in (1, 2, 4, 8):
            try:
                Deployment(model, gpu, engine, layout=Layout(gpus))
            except ValueError:  # the heads cannot be shared among that many
                continue
            attention, mlp, _ = dense_layer(model)
            one, hidden, inner = attention.share(gpus), model.hidden_size, mlp.share(gpus)
            found |= {
                (one.query_size + 2 * one.kv_size, hidden),
                (hidden, one.query_size),
                (int((mlp.mlp_matrices - 1) * inner), hidden),
                (hidden, int(inner)),
            }
    return frozenset(found)


def at_layers(data: Data) -> NDArray[np.bool_]:
    """Which points have the shape of a real layer; all of them if none has."""
    shapes = layer_shapes()
    pairs = zip(data.shape["n"].tolist(), data.shape["k"].tolist(), strict=True)
    found = np.array([pair in shapes for pair in pairs], dtype=bool)
    return found if found.any() else ~found
