"""Fits SGLang's attention by Triton, where its usual attention is another one.

On Hopper SGLang takes FlashAttention 3. It falls back to Triton for heads wider than 256, for the
windows of models with such heads, and for a cache in e5m2 (server_args.py). Published tables have
heads of 512, and heads of 256 with a window of 1,024 tokens, but none of the third. What narrower
heads take is extrapolated from these, and counts as not measured. On RTX PRO 6000, where heads of
128 were timed as well, the decode form fitted to 256 and 512 is 14 / 49 % off at 128 in 16 bits,
and 14 / 51 % with an fp8 cache.

- generation: contexts are what the window leaves of them; grouped heads alone, since one query head
  to each KV head has another kernel
- context: heads of 256, in prompts of up to 1,024 tokens, which their window does not cut. Heads of
  512 are cut into other tiles, of 32 rows instead of 128. Queries are in 16 bits over either cache,
  and an fp8 cache makes the kernel quicker, by a third. One width does not say what exponentials
  take, so that all time is taken to grow with the width. That clocks fall in long kernels is left
  out: none of these takes more than some milliseconds

There are fits where the usual kernel is FlashAttention 3, which alone falls back so, and where
two widths of decodes were timed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from calibrate.data import Data
from calibrate.fit import fit
from calibrate.importers.aiconfigurator.attention import ceilings
from calibrate.importers.aiconfigurator.tables import KernelTable, Tables, require
from sim.cost.kernels import prefill_attention, triton_attention
from sim.cost.kernels.form import Floats, Form
from sim.specs.profile import TRITON, KernelFit

FRAMEWORK, USUAL, KERNEL = "sglang", "fa3", "triton"

PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8"}
"""The tables' ``kv_cache_dtype`` for each precision of the simulator."""

HEAD_DIMS = (64, 128, 256, 512)
"""Heads of 192 have values of 128, and are left out."""

WIDTHS = 2
"""Head sizes that tell what the width takes."""

OF_TILES = 256
"""Head size of the prompts: the widest that is cut into tiles of 128 rows."""

UNSEEN = {"softmax": 1.0, "unit_width": 0.0, "packing": 0.0, "droop": 0.0}
"""Parameters of prompts that these rows do not tell; that kernel packs no heads into a tile."""

SHAPE = ("q_heads", "kv_heads", "head_dim")


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """Fits by operator and KV-cache precision; none but of SGLang where Triton is its second
    kernel. Errors are those of head numbers and sizes that a fit had not seen."""
    if framework != FRAMEWORK:
        return {}
    decodes = tables.read(system, "attention", framework, "generation_attention_perf", version)
    prompts = tables.read(system, "attention", framework, "context_attention_perf", version)
    if not second_kernel(decodes.frame) or prompt_rows(prompts, "bf16").empty:
        return {}
    found: dict[str, dict[str, KernelFit]] = {}
    for precision in PRECISIONS:
        rows = decode_rows(decodes, precision)
        form = triton_attention.form(precision)
        fits = found.setdefault("decode_attention" + TRITON, {})
        fits[precision] = _fitted(form, rows, "context", decodes)
        rows = prompt_rows(prompts, precision)
        form = prefill_attention.form(precision).given(**UNSEEN)
        fits = found.setdefault("prefill_attention" + TRITON, {})
        fits[precision] = _fitted(form, rows, "isl", prompts)
    return found


def second_kernel(frame: pd.DataFrame) -> bool:
    """Whether Triton is in a table of decoding with ``WIDTHS`` widths, and ``USUAL`` is the kernel
    with most rows at heads of 128."""
    if not {"kernel_source", "head_dim"} <= set(frame):
        return False
    usual = frame.loc[frame["head_dim"] == triton_attention.WIDTH, "kernel_source"].value_counts()
    if usual.empty or usual.index[0] != USUAL:
        return False
    heads = frame.loc[frame["kernel_source"] == KERNEL, "head_dim"]
    return heads[heads.isin(HEAD_DIMS)].nunique() >= WIDTHS


def decode_rows(table: KernelTable, precision: str) -> pd.DataFrame:
    """Triton's rows of the generation table, grouped heads alone, with what each sequence sees."""
    rows = _of_triton(table, precision)
    rows = rows[rows["q_heads"] > rows["kv_heads"]]
    context, window = rows["step"] + 1, rows["window_size"]
    return rows.assign(context=context.where(window == 0, np.minimum(context, window)))


def prompt_rows(table: KernelTable, precision: str) -> pd.DataFrame:
    """Triton's rows of the context table at heads of ``OF_TILES``, in prompts without a cut."""
    rows = _of_triton(table, precision)
    uncut = (rows["window_size"] == 0) | (rows["isl"] <= rows["window_size"])
    sixteen = rows["attn_dtype"] == "bfloat16"
    found: pd.DataFrame = rows.loc[
        uncut & sixteen & (rows["head_dim"] == OF_TILES) & (rows["isl"] > 1) & (rows["step"] == 0)
    ]
    return found


def _of_triton(table: KernelTable, precision: str) -> pd.DataFrame:
    needed = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "attn_dtype")
    require(table, (*needed, "kv_cache_dtype", "kernel_source", "window_size", "latency"))
    rows = table.frame
    chosen = (rows["kernel_source"] == KERNEL) & (rows["kv_cache_dtype"] == PRECISIONS[precision])
    chosen &= rows["head_dim"].isin(HEAD_DIMS)
    rows = rows.loc[chosen & (rows["latency"] > 0)]
    return rows.assign(q_heads=rows["num_heads"], kv_heads=rows["num_key_value_heads"])


def _fitted(form: Form, rows: pd.DataFrame, length: str, table: KernelTable) -> KernelFit:
    """``form`` fitted to ``rows``, each shape judged by a fit to others."""
    keys = ["batch_size", length, *SHAPE]
    medians = rows.groupby(keys)["latency"].median().reset_index()
    shape: dict[str, Floats] = {name: medians[name].to_numpy(dtype=np.float64) for name in keys}
    shape["batch"] = shape.pop("batch_size")
    seconds = medians["latency"].to_numpy(dtype=np.float64) / 1e3
    if length == "context":
        shape["skew"] = np.ones(len(seconds))
    else:
        shape["tokens"] = shape.pop(length)
        shape["context"] = np.zeros(len(seconds))
    data = Data(shape, seconds, np.ones(len(seconds)))
    every = np.ones(len(seconds), dtype=bool)
    found = fit(form, data, ceilings(table.system), kernel=table.source(rows), judged=every)
    unvaried = ("skew",) if length == "context" else ("context",)
    ranges = {name: span for name, span in found.ranges.items() if name not in unvaried}
    return replace(found, ranges=ranges)
