"""Fits to the profiling tables of the simulator Vidur: ``mlp.csv`` and ``attention.csv``.

They lie below ``data/profiling/compute/GPU/MODEL/`` of its repository (microsoft/vidur), a file of
each kind for a model. How they were measured: kernels of Sarathi-Serve on random 16-bit (fp16)
tensors, one layer over and over, durations of kernels as the GPU's profiler reports them, in
milliseconds. So neither launches nor gaps between kernels are part of a timing, and durations are
rounded to a microsecond.

- ``mlp.csv``: products of ``num_tokens`` rows, of the four projections that the columns
  ``attn_pre_proj``, ``attn_post_proj``, ``mlp_up_proj`` (gate and up in one) and ``mlp_down_proj``
  time, on one of ``num_tensor_parallel_workers`` GPUs. Between two timings of a product the rest of
  the layer passes through the cache: layers smaller than ``SMALLEST`` are left out, since their
  weights would be found there
- ``attention.csv``: a decode step adds one token to ``kv_cache_size`` cached ones in each of
  ``batch_size`` sequences; a prompt has ``prefill_chunk_size`` new tokens on top of as many.
  Writing new keys and values to the cache (``attn_kv_cache_save``) is added, where it is a kernel
  of its own and was timed. Calls are repeated on the same tensors, which the last-level cache may
  hold (``L2_BYTES``)

Only rows of the attention kernel and the block size with most rows are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibrate.data import Data
from calibrate.fit import fit, groups
from calibrate.importers.aiconfigurator.attention import DECODE_AXES, PREFILL_AXES
from calibrate.importers.aiconfigurator.gemm import AXES, MOST_ROWS
from sim.cost.kernels import decode_attention, gemm, prefill_attention
from sim.cost.kernels.form import Ceilings, Floats, Form
from sim.errors import InfersimError, UsageError
from sim.specs.gpu import GpuSpec
from sim.specs.profile import KernelFit

PRECISION = "fp16"

L2_BYTES = {
    "a100-pcie": 40e6,
    "a100-sxm-40gb": 40e6,
    "a100-sxm-80gb": 40e6,
    "h100-pcie": 50e6,
    "h100-sxm": 50e6,
}
"""Last-level cache (NVIDIA's architecture whitepapers) of the GPUs that Vidur has tables of, by
their names in the catalogue; of others it is taken as 0, which fits the least favourable case."""

SMALLEST = 5e7
"""Bytes of a layer's projections below which they might be found in the cache again: the largest of
``L2_BYTES``. (A layer of 55 MB on an A100 is read at the speed of memory.)"""

LEAST_SHAPES = 3
"""Fewer products or sets of heads cannot be distinguished, and none could be held out."""

WIDTH = {"attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj"}
"""The timed operators of ``mlp.csv`` that are products."""

LAYER = (
    *("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp"),
    *("num_tokens", "num_tensor_parallel_workers"),
)
ATTENTION = (
    *("n_embd", "n_q_head", "n_kv_head", "num_tensor_parallel_workers", "block_size"),
    *("batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill", "attention_backend"),
)
DECODE, PREFILL, SAVE = "attn_decode", "attn_prefill", "attn_kv_cache_save"


class FoundTable(NamedTuple):
    """The points of one operator, and the kernel that they timed."""

    data: Data
    kernel: str


def fit_files(paths: Sequence[Path], gpu: GpuSpec) -> dict[str, dict[str, KernelFit]]:
    """Fits by operator and precision, from files of either kind, distinguished by their columns.

    An operator with too few shapes is left out. Raises UsageError for a file that cannot be read or
    is of neither kind, InfersimError where nothing is left to fit.
    """
    points = to_points(paths)
    cold = Ceilings(gpu.flops(PRECISION), gpu.bandwidth, gpu.sms)
    cache = L2_BYTES.get(gpu.name, 0.0)
    warm = Ceilings(cold.peak, cold.bandwidth, cold.sms, cache)
    forms: dict[str, tuple[Form, Ceilings, Mapping[str, tuple[float, ...]]]] = {
        "gemm": (gemm.form(PRECISION), cold, gemm_axes()),
        "decode_attention": (decode_attention.form(PRECISION), warm, DECODE_AXES),
        "prefill_attention": (prefill_attention.form(PRECISION), warm, PREFILL_AXES),
    }
    fits: dict[str, dict[str, KernelFit]] = {}
    for operator, found in points.items():
        form, ceilings, axes = forms[operator]
        if groups(form, found.data).max() + 1 < LEAST_SHAPES:
            continue
        every = np.ones(len(found.data), dtype=bool)
        fits[operator] = {
            PRECISION: fit(form, found.data, ceilings, axes=axes, kernel=found.kernel, judged=every)
        }
    if not fits:
        raise InfersimError(
            f"nothing to fit: no operator has {LEAST_SHAPES} shapes; give files of several models, "
            "or of one on several numbers of GPUs"
        )
    return fits


def gemm_axes() -> dict[str, tuple[float, ...]]:
    """Knots of the residual table of products, base-2 logarithms."""
    return {name: tuple(np.round(np.log2(knots), 4).tolist()) for name, knots in AXES.items()}


def to_points(paths: Sequence[Path]) -> dict[str, FoundTable]:
    """The points of all files by operator; an operator without any is absent.

    Raises UsageError for a file that cannot be read or is of neither kind.
    """
    layers, attention = [], []
    for path in paths:
        table = _read(path)
        if set(LAYER) <= set(table.columns):
            layers.append(table)
        elif set(ATTENTION) <= set(table.columns):
            attention.append(table)
        else:
            missing = sorted(set(LAYER) - set(table.columns))
            raise UsageError(
                f"{path}: neither an mlp.csv (it lacks {', '.join(missing)}) nor an attention.csv "
                f"(it lacks {', '.join(sorted(set(ATTENTION) - set(table.columns)))})"
            )
    points = {}
    if layers:
        points["gemm"] = FoundTable(
            products(pd.concat(layers)), "Sarathi-Serve: linear layers, fp16"
        )
    if attention:
        rows = _main(pd.concat(attention))
        backend = str(rows["attention_backend"].iloc[0]).rpartition(".")[2].lower()
        points["decode_attention"] = FoundTable(decodes(rows), f"Sarathi-Serve: {backend}")
        points["prefill_attention"] = FoundTable(prefills(rows), f"Sarathi-Serve: {backend}")
    return {operator: found for operator, found in points.items() if len(found.data)}


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path).drop_duplicates()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # pandas' errors, and those of encodings
        raise UsageError(f"{path}: not a table ({error})") from None


def products(rows: pd.DataFrame) -> Data:
    """The four projections of each row of ``mlp.csv``; a point timed twice counts by its median."""
    rows = rows[rows["num_tokens"] <= MOST_ROWS]
    hidden, workers = rows["n_embd"], rows["num_tensor_parallel_workers"]
    width = hidden // rows["n_head"]
    gated = 1 + rows["use_gated_mlp"].astype(str).str.lower().eq("true").astype(int)
    sizes = {
        "attn_pre_proj": ((rows["n_head"] + 2 * rows["n_kv_head"]) * width // workers, hidden),
        "attn_post_proj": (hidden, rows["n_head"] * width // workers),
        "mlp_up_proj": (gated * rows["n_expanded_embd"] // workers, hidden),
        "mlp_down_proj": (hidden, rows["n_expanded_embd"] // workers),
    }
    weights = 2 * sum(n * k for n, k in sizes.values())
    tables = []
    for name, (n, k) in sizes.items():
        if (column := _column(name)) in rows:
            table = pd.DataFrame({"m": rows["num_tokens"], "n": n, "k": k, "time": rows[column]})
            tables.append(table[weights >= SMALLEST])
    if not tables:
        raise UsageError(f"an mlp.csv without timings: none of {', '.join(sorted(WIDTH))}")
    return _data(pd.concat(tables), ("m", "n", "k"))


def decodes(rows: pd.DataFrame) -> Data:
    """Decode steps; the context counts the new token."""
    rows = rows[~_flags(rows["is_prefill"])]
    context = rows["kv_cache_size"] + 1
    shape = {"batch": rows["batch_size"], "context": context, "skew": context / context}
    return _attention(rows, DECODE, shape)


def prefills(rows: pd.DataFrame) -> Data:
    """Prompts of more than one token, on top of what is cached before them."""
    rows = rows[_flags(rows["is_prefill"]) & (rows["prefill_chunk_size"] > 1)]
    shape = {
        "batch": rows["batch_size"],
        "tokens": rows["prefill_chunk_size"],
        "context": rows["kv_cache_size"],
    }
    return _attention(rows, PREFILL, shape)


def _attention(rows: pd.DataFrame, timed: str, shape: Mapping[str, pd.Series[int] | float]) -> Data:
    workers = rows["num_tensor_parallel_workers"]
    heads = {
        "q_heads": rows["n_q_head"] // workers,
        "kv_heads": np.maximum(rows["n_kv_head"] // workers, 1),
        "head_dim": rows["n_embd"] // rows["n_q_head"],
    }
    seconds = rows[_column(timed)] if _column(timed) in rows else pd.Series(np.nan, rows.index)
    if _column(SAVE) in rows:
        seconds = seconds + rows[_column(SAVE)].fillna(0.0)
    table = pd.DataFrame({**shape, **heads, "time": seconds}, index=rows.index)
    return _data(table, (*shape, *heads))


def _main(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the attention kernel, and then of the block size, that has most of them."""
    for name in ("attention_backend", "block_size"):
        rows = rows[rows[name] == rows[name].value_counts().index[0]]
    return rows


def _data(table: pd.DataFrame, variables: Iterable[str]) -> Data:
    """Points with a time, in seconds; those of equal shape counted once, by their median."""
    table = table[table["time"] > 0]
    keys = list(variables)
    rows = table.groupby(keys)["time"].median().reset_index()
    shape: dict[str, Floats] = {name: rows[name].to_numpy(dtype=np.float64) for name in keys}
    seconds = rows["time"].to_numpy(dtype=np.float64) / 1e3
    return Data(shape, seconds, np.ones(len(rows)))


def _column(operator: str) -> str:
    return f"time_stats.{operator}.median"


def _flags(column: pd.Series[bool]) -> pd.Series[bool]:
    """True and False, whether pandas or the file spells them."""
    return column.astype(str).str.lower() == "true"
