"""Fits attention to the published tables ``generation_attention_perf`` and ``context_...``.

How they were measured: one layer's attention over and over on the same tensors, all sequences of a
batch alike. So keys and values that fit the L2 cache were found there, which those of a model's
layers are not (the forms have terms for it that the simulator switches off), and nothing is known
of unequal contexts, or of prompts on top of a cached prefix: their ranges are left out of the fits.

- generation: every sequence adds one token to ``step`` cached ones, so the context is ``step + 1``
  (tables go 2, 4, 8, ...); queries are 16-bit, also where the cache is fp8
- context: prompts of ``isl`` tokens, ``step`` 0; with one token it is a decode step and left out.
  With an fp8 cache arithmetic is 16-bit or fp8: the 16-bit rows are used unless fp8 has clearly
  more (``MOST``), which ``kernel`` then says

Left out: sliding windows, beams, head sizes other than ``HEAD_DIMS`` (192 is padded by some
kernels and not by others, and no model of the catalogue has it), more than ``MOST_GROUPED`` query
heads per KV head (TensorRT-LLM's grouped kernel and FlashInfer's end there, and the fallback is up
to 20 times slower), and rows of any kernel other than the one with most rows at head size 128.

A table of decoding whose large reads are faster than the memory (TensorRT-LLM 1.0 on A100: up to
1.7 times its bandwidth, as if half the cache were read) timed something else. vLLM's kernels on the
same GPU stand in for it, which ``kernel`` then says.
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
from calibrate.importers.aiconfigurator.tables import L2_BYTES, KernelTable, Tables, gpu_of, require
from sim.cost.kernels import decode_attention, prefill_attention
from sim.cost.kernels.form import Ceilings, Floats, Form
from sim.errors import InfersimError
from sim.specs.profile import KernelFit

PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8"}
"""The tables' ``kv_cache_dtype`` for each precision of the simulator."""

HEAD_DIMS = (64, 128, 256)
NOT_ALONE = ("regroup", "floor_width", "unit_width")
"""Parameters of decoding that are seen only with grouped heads or several head sizes."""

MOST_GROUPED = 16
MOST = 0.9
"""16-bit rows are used if there are at least this many for each fp8 row."""

CACHES = 4
"""Reads of that many times the L2 cache come from memory."""

MOST_IMPOSSIBLE = 0.1
"""Share of such reads above the data sheet's bandwidth from which on a table is not used."""

STAND_IN = "vllm"
"""The framework whose timings are used in its place."""

FEW_HEADS = 4
FEW_WEIGHT = 0.25
"""Weight of a shape with fewer query heads than that: hardly any GPU is left with so few."""

DECODE_AXES: Mapping[str, tuple[float, ...]] = {
    "units": (0.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 13.0),
    "context": (1.0, 6.0, 7.0, 8.0, 9.0, 11.0, 13.0, 16.0),
    "group": (0.0, 1.0, 4.0),
    "head_dim": (6.0, 7.0, 8.0),
}
ALONE_AXES = {name: knots for name, knots in DECODE_AXES.items() if name in ("units", "context")}
PREFILL_AXES: Mapping[str, tuple[float, ...]] = {
    "rows": (8.0, 11.0, 13.0, 15.0, 17.0, 19.0, 21.0, 23.0),
    "tokens": (4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0),
    "group": (0.0, 2.0, 4.0),
    "head_dim": (6.0, 7.0, 8.0),
}
"""Knots of the residual tables, base-2 logarithms: densest where waves of SMs begin to fill and
where the cache overflows."""

SHAPE = ("q_heads", "kv_heads", "head_dim")

UNVARIED = ((0.0, 0.0), (1.0, 1.0))
"""Ranges of the variables that these tables do not vary: no cached prefix, equal contexts."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """Fits by operator and KV-cache precision, from the newest tables unless ``version`` is given.

    ``holdout`` and ``regimes`` are errors at heads of real models (``layer_heads``), each predicted
    by a fit that had not seen these heads. Raises UsageError for names that the tables lack.
    """
    generation = tables.read(system, "attention", framework, "generation_attention_perf", version)
    context = tables.read(system, "attention", framework, "context_attention_perf", version)
    found: dict[str, dict[str, KernelFit]] = {"decode_attention": {}, "prefill_attention": {}}
    for precision in PRECISIONS:
        table, rows = decode_source(tables, generation, precision)
        if len(rows):
            found["decode_attention"][precision] = _fitted(
                decode_attention.form(precision), decode_data(rows), table, rows, DECODE_AXES
            )
        rows = prefill_rows(context, precision)
        if len(rows):
            found["prefill_attention"][precision] = _fitted(
                prefill_attention.form(precision), prefill_data(rows), context, rows, PREFILL_AXES
            )
    if not any(found.values()):
        raise InfersimError(f"{framework} on {system}: no attention in a known precision")
    return found


def fit_alone(table: KernelTable) -> dict[str, KernelFit]:
    """Decode attention with one query head per KV head, by KV-cache precision, from a generation
    table; precisions in which it ever reads faster than the memory are left out."""
    found = {}
    for precision in PRECISIONS:
        rows = decode_rows(table, precision)
        rows = rows[rows["q_heads"] == rows["kv_heads"]]
        if impossible(table, rows) == 0:
            form = _alone(decode_attention.form(precision))
            found[precision] = _fitted(form, decode_data(rows), table, rows, ALONE_AXES)
    return found


def _alone(form: Form) -> Form:
    """``form`` for timings of one query head per KV head and one head size: parameters that these
    cannot determine are fixed. Nor do they tell arithmetic from reads well, so that reads are at
    most as fast as the memory."""
    told = []
    for each in form.parameters:
        given = each.name.startswith("alone_") or each.name in NOT_ALONE
        if given:
            told.append(replace(each, low=each.start, high=each.start))
        else:
            told.append(replace(each, high=1.0) if each.name == "share" else each)
    return replace(form, parameters=tuple(told))


def decode_source(
    tables: Tables, generation: KernelTable, precision: str
) -> tuple[KernelTable, pd.DataFrame]:
    """The table that decode is fitted to and its rows: that of another framework where this one's
    timings cannot be."""
    rows = decode_rows(generation, precision)
    if generation.framework == STAND_IN or impossible(generation, rows) <= MOST_IMPOSSIBLE:
        return generation, rows
    table = tables.read(generation.system, "attention", STAND_IN, "generation_attention_perf")
    return table, decode_rows(table, precision)


def _fitted(
    form: Form,
    data: Data,
    table: KernelTable,
    rows: pd.DataFrame,
    axes: Mapping[str, tuple[float, ...]],
) -> KernelFit:
    kernel = table.source(rows)
    if (rows["attn_dtype"] == "fp8").any():
        kernel += ", fp8 arithmetic"
    fitted = fit(
        form, data, ceilings(table.system), axes=axes, kernel=kernel, judged=at_layers(data)
    )
    ranges = {name: span for name, span in fitted.ranges.items() if span not in UNVARIED}
    return replace(fitted, ranges=ranges)


def ceilings(system: str) -> Ceilings:
    """16-bit peak, memory bandwidth and SMs of the catalogue's GPU, and the cache found warm."""
    gpu = gpu_of(system)
    return Ceilings(gpu.flops("bf16"), gpu.bandwidth, gpu.sms, L2_BYTES[system])


def decode_rows(table: KernelTable, precision: str) -> pd.DataFrame:
    """Rows of the generation table that the fit uses, with ``q_heads`` and ``kv_heads``."""
    return _main_kernel(_usable(table, precision))


def impossible(table: KernelTable, rows: pd.DataFrame) -> float:
    """The share of ``decode_rows`` that read faster than the memory, of those that no cache holds;
    0 if there are none."""
    keys = rows["batch_size"] * (rows["step"] + 1) * rows["kv_heads"] * rows["head_dim"]
    width = np.where(rows["kv_cache_dtype"] == "fp8", 1.0, 2.0)
    read = 2.0 * keys * width
    large = read > CACHES * L2_BYTES[table.system]
    above = read[large] > table.gpu.bandwidth * rows["latency"][large] / 1e3
    return float(above.mean()) if large.any() else 0.0


def prefill_rows(table: KernelTable, precision: str) -> pd.DataFrame:
    """Rows of the context table that the fit uses, with ``q_heads`` and ``kv_heads``."""
    rows = _usable(table, precision)
    rows = rows[(rows["isl"] > 1) & (rows["step"] == 0)]
    sixteen, eight = (rows[rows["attn_dtype"] == name] for name in ("bfloat16", "fp8"))
    return _main_kernel(sixteen if len(sixteen) >= MOST * len(eight) else eight)


def _usable(table: KernelTable, precision: str) -> pd.DataFrame:
    """Rows of that precision without what the module's docstring leaves out."""
    needed = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "attn_dtype")
    require(table, (*needed, "kv_cache_dtype", "beam_width", "kernel_source", "latency"))
    rows = table.frame
    kv_heads = rows["num_key_value_heads"]
    rows = rows.assign(
        q_heads=rows["num_heads"],
        kv_heads=kv_heads.where(kv_heads > 0, rows["num_heads"]),  # older tables: 0 means MHA
    )
    if "head_dim" not in rows:
        rows = rows.assign(head_dim=128)
    if "window_size" in rows:
        rows = rows[rows["window_size"] == 0]
    usable = (
        (rows["kv_cache_dtype"] == PRECISIONS[precision])
        & (rows["beam_width"] == 1)
        & rows["head_dim"].isin(HEAD_DIMS)
        & (rows["q_heads"] <= MOST_GROUPED * rows["kv_heads"])
        & (rows["latency"] > 0)
    )
    chosen: pd.DataFrame = rows.loc[usable]
    return chosen


def _main_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    """The kernel with most rows at head size 128, and it alone."""
    usual = rows.loc[rows["head_dim"] == 128, "kernel_source"]
    main = "" if usual.empty else usual.value_counts().index[0]
    chosen: pd.DataFrame = rows.loc[rows["kernel_source"] == main]
    return chosen


def decode_data(rows: pd.DataFrame) -> Data:
    """Points of the decode form: seconds, and contexts that count the new token."""
    shape, seconds = _columns(rows, "step")
    shape["context"] = shape.pop("step") + 1
    shape["skew"] = np.ones(len(seconds))
    return Data(shape, seconds, _weight(shape))


def prefill_data(rows: pd.DataFrame) -> Data:
    """Points of the prefill form, nothing cached before the prompts."""
    shape, seconds = _columns(rows, "isl")
    shape["tokens"] = shape.pop("isl")
    shape["context"] = np.zeros(len(seconds))
    return Data(shape, seconds, _weight(shape))


def _columns(rows: pd.DataFrame, length: str) -> tuple[dict[str, Floats], Floats]:
    """Columns of the shape and seconds; points measured twice count once, by their median."""
    keys = ["batch_size", length, *SHAPE]
    rows = rows.groupby(keys)["latency"].median().reset_index()
    shape = {name: rows[name].to_numpy(dtype=np.float64) for name in keys}
    shape["batch"] = shape.pop("batch_size")
    return shape, rows["latency"].to_numpy(dtype=np.float64) / 1e3


def _weight(shape: Mapping[str, Floats]) -> Floats:
    weight = np.where(shape["q_heads"] < FEW_HEADS, FEW_WEIGHT, 1.0)
    scaled: Floats = weight / weight.mean()
    return scaled


@cache
def layer_heads() -> frozenset[tuple[int, int, int]]:
    """(query heads, KV heads, head size) of each dense catalogue model on 1, 2, 4 and 8 GPUs."""
    found = set()
    for model in dense_models():
        heads = dense_layer(model).attention
        for gpus in (1, 2, 4, 8):
            if heads.num_heads % gpus == 0:
                kv_heads = max(1, heads.num_kv_heads // gpus)
                found.add((heads.num_heads // gpus, kv_heads, heads.head_dim))
    return frozenset(found)


def at_layers(data: Data) -> NDArray[np.bool_]:
    """Which points have the heads of a real model on one GPU; all of them if none has."""
    shapes = layer_heads()
    columns = (data.shape[name].tolist() for name in SHAPE)
    found = np.array([shape in shapes for shape in zip(*columns, strict=True)], dtype=bool)
    return found if found.any() else ~found
