"""Fits the experts of a layer to the published tables ``moe_perf``.

How they were measured: one layer's call over and over in a CUDA graph, from the router's scores to
the sum of the results, on a single GPU with its share of the experts: all of them cut along their
width (``moe_tp_size``) or some of them whole (``moe_ep_size``), never both in vLLM's tables. Tokens
are those of all GPUs together; the busiest one is timed. There is one copy of the weights, so that
small ones are found in the cache again: the form has a term for it that the simulator leaves out.

Left out, since the timings are not of what they say:

- more than ``MOST_RANKS`` ranks, of which each has hardly an expert
- widths of an expert that are no multiple of 16 on one GPU, whose kernels take twice as long
  (except in mxfp4, where they are padded)
- ``UNLIKE``: vLLM limits this model's tokens to four of eight groups of experts, so that the
  routing that was asked for is not the one that was timed (half as many experts are read)
- vLLM's ``fp8`` on Hopper, 5 to 7 times as slow as ``fp8_block``, which is what models are
  published in: that is its fp8 here
- series of ``TIMED_AGAIN`` whose kernel was chosen badly in that run
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.data import Data
from calibrate.fit import fit
from calibrate.importers.aiconfigurator.routing import COUNTS, with_counts
from calibrate.importers.aiconfigurator.tables import L2_BYTES, KernelTable, Tables, require
from calibrate.known_shapes import with_known
from sim.cost.kernels import moe
from sim.cost.kernels.form import Ceilings
from sim.errors import InfersimError
from sim.specs.experts import PADDED
from sim.specs.profile import KernelFit

PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "bf16": ("bfloat16",),
    "fp8": ("fp8_block",),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("w4a8_mxfp4_mxfp8",),
    "mxfp4-weights": ("w4a16_mxfp4",),
    "int4-weights": ("int4_wo",),
}
"""The tables' ``moe_dtype`` for each precision of the simulator, the first that there is."""

MARLIN = ("w4a16_mxfp4", "int4_wo")
"""The ``moe_dtype`` that Marlin multiplies, both with one kernel; they are fitted together, as the
precision of that name."""

MARLIN_TABLES = {"sglang": ("0.5.10", "0.5.14"), "vllm": ("0.24.0",)}
"""Versions by framework whose rows of Marlin are fitted together: where several timed a model
(Kimi-K2) their medians are within 5 %. vLLM 0.19 takes two to five times as long on H200, and
SGLang's rows of GPUs with whole experts are up to twice what their own tokens take."""

OF_FRAMEWORK = {"trtllm": {"fp8": ("fp8", "fp8_block")}}
"""Formats of one framework where they differ: TensorRT-LLM's fp8 by tensor is as fast as it should
be."""

MODEL = ("hidden_size", "inter_size", "topk", "num_experts")
"""The columns of a model's own shape."""

SPLIT = ("moe_tp_size", "moe_ep_size")
"""GPUs that share the width of each expert, and ranks that share the experts."""

SERIES = (*MODEL, *SPLIT, "distribution")
"""The common columns of a series of timings; its members differ in tokens."""

NOT_GATED = frozenset({(2688, 1856), (1024, 2688), (2048, 5120), (8192, 5120)})
"""(hidden size, width) of Nemotron's experts, which have two matrices instead of three."""

UNLIKE = {"vllm": frozenset({(7168, 2048, 8, 256)})}
"""By framework: hidden size, width, chosen and number of experts of DeepSeek-V3."""

TIMED_AGAIN: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("trtllm", "nvfp4"): ("b200_sxm", "b300_sxm", "gb200", "gb300")
}
"""By framework and precision, systems that timed the same series (a model, its layout and a
routing, over all tokens) with one release, on memory of one bandwidth. TensorRT-LLM times the
variants of a kernel as a process begins, and keeps to what it found: whole series take 1.4 to 1.9
times as long as the same ones elsewhere, a single token as well, which is the same work in every
routing."""

WEIGHTS_DECIDE = 64
"""Tokens up to which such series are compared: reading the weights takes most of the time."""

CHOSEN_BADLY = 1.25
"""A series that takes more than that many times the quickest of them is left out: few lie between
1.1 and 1.3."""

MOST_RANKS = 64
JUDGED = 8
"""Errors are stated for layers on up to that many GPUs."""

LEAST_SHAPES = 2
"""Fewer models are not fitted: none could be held out."""

AXES = {
    "tokens": (0.0, 3.0, 5.0, 7.0, 9.0, 11.0, 14.0),
    "split": (-6.0, -3.0, 0.0, 1.0, 3.0),
}
"""Knots of the tables of known shapes, base-2 logarithms."""

PARTED = "gptossmxfp4moe_triton"
"""Part of the names of kernels that rank by expert themselves where a GPU holds all experts. Where
it holds some, vLLM replaces the numbers of experts by its own and sorts the rows with kernels of
PyTorch's and Triton's (``make_routing_data`` of gpt_oss_triton_kernels_moe.py)."""

FAMILIES = ("trtllm", "cutlass", "triton", "marlin", "deep_gemm", "deepgemm")
"""Words in the names of kernels that tell libraries apart, in this order."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """Fits by operator and precision, from the newest whole table unless ``version`` is given: some
    releases timed a few models again, and these alone.

    ``moe_ranks`` is there where another library's kernels serve GPUs with whole experts. Errors are
    on models held out whole. Raises UsageError for names that the tables lack.
    """
    table = (
        _newest(tables, system, framework)
        if version is None
        else tables.read(system, "moe", framework, "moe_perf", version)
    )
    require(table, (*MODEL, *SPLIT, "moe_dtype", "kernel_source", "num_tokens", "latency"))
    found: dict[str, dict[str, KernelFit]] = {"moe": {}, "moe_ranks": {}}
    for precision, names in {**PRECISIONS, **OF_FRAMEWORK.get(framework, {})}.items():
        for name in names:
            rows = usable(table, name)
            for operator, all_of_it in by_operator(rows).items():
                own = well_chosen(tables, table, all_of_it, precision)
                if len(own[list(MODEL)].drop_duplicates()) >= LEAST_SHAPES:
                    found[operator][precision] = fit_rows(table, own, precision)
            if precision in found["moe"]:
                break
    if framework in MARLIN_TABLES:
        marlin = fit_marlin(tables, system)
        found["moe"] |= {} if marlin is None else {moe.MARLIN: marlin}
    if not found["moe"]:
        raise InfersimError(f"{framework} {table.version} on {system}: no experts to fit")
    return {operator: fits for operator, fits in found.items() if fits}


def _newest(tables: Tables, system: str, framework: str) -> KernelTable:
    """The newest table with at least half as many rows as the longest."""
    versions = tables.versions(system, "moe", framework, "moe_perf")
    found = [tables.read(system, "moe", framework, "moe_perf", version) for version in versions]
    most = max((len(table.frame) for table in found), default=0)
    whole = [table for table in found if 2 * len(table.frame) >= most]
    return whole[-1] if whole else tables.read(system, "moe", framework, "moe_perf")


def usable(table: KernelTable, name: str) -> pd.DataFrame:
    """Rows of one ``moe_dtype`` without what the module's docstring leaves out."""
    rows = table.frame
    kept = (rows["moe_dtype"] == name) & (rows["latency"] > 0) & (rows["moe_ep_size"] <= MOST_RANKS)
    if not any(moe.FORMATS[p].pads for p, names in PRECISIONS.items() if name in names):
        kept &= rows["inter_size"] / rows["moe_tp_size"] % moe.ALIGNED == 0
    for model in UNLIKE.get(table.framework, ()):
        kept &= ~(rows[list(MODEL)] == np.array(model)).all(axis=1)
    chosen: pd.DataFrame = rows.loc[kept]
    return chosen


def well_chosen(
    tables: Tables, table: KernelTable, rows: pd.DataFrame, precision: str
) -> pd.DataFrame:
    """The rows without series of ``TIMED_AGAIN`` that a system with the same memory ran much
    quicker."""
    systems = TIMED_AGAIN.get((table.framework, precision), ())
    if rows.empty or table.system not in systems:
        return rows
    where = ("moe", table.framework, "moe_perf")
    having = [each for each in systems if table.version in tables.versions(each, *where)]
    timed = [_of_few_tokens(rows)]
    for system in having:
        found = tables.read(system, *where, table.version).frame
        found = found[found["moe_dtype"].isin(rows["moe_dtype"].unique())]
        timed.append(_of_few_tokens(found).reindex(timed[0].index))
    quickest = pd.concat(timed, axis=1).min(axis=1)
    slower = (timed[0] / quickest).groupby(level=[*SERIES, "kernel_source"]).median()
    kept = slower[slower <= CHOSEN_BADLY].index
    chosen: pd.DataFrame = rows[
        pd.MultiIndex.from_frame(rows[[*SERIES, "kernel_source"]]).isin(kept)
    ]
    return chosen


def _of_few_tokens(rows: pd.DataFrame) -> pd.Series[float]:
    """Their latency by series, kernel and tokens."""
    rows = rows[rows["num_tokens"] <= WEIGHTS_DECIDE]
    return rows.groupby([*SERIES, "kernel_source", "num_tokens"])["latency"].median()


def fit_marlin(tables: Tables, system: str) -> KernelFit | None:
    """The fit of Marlin on GPUs that share the width of every expert, from all tables of it:
    whichever framework bundles it, it is one library. None for fewer than ``LEAST_SHAPES`` models.
    """
    found: list[pd.DataFrame] = []
    told = []
    for framework, versions in MARLIN_TABLES.items():
        if framework not in tables.frameworks(system, "moe"):
            continue
        known = tables.versions(system, "moe", framework, "moe_perf")
        for version in (each for each in versions if each in known):
            table = tables.read(system, "moe", framework, "moe_perf", version)
            rows = pd.concat([usable(table, name) for name in MARLIN])
            of_it = rows["kernel_source"].map(_family) == moe.MARLIN
            rows = rows[of_it & (rows["moe_ep_size"] == 1)]
            if not rows.empty:
                found.append(_padded(rows))
                told.append(f"{framework} {version}")
    if not found or len(pd.concat(found)[list(MODEL)].drop_duplicates()) < LEAST_SHAPES:
        return None
    fitted = fit_rows(table, pd.concat(found), moe.MARLIN)
    return replace(fitted, kernel=f"Marlin of {', '.join(told)}")


def _padded(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the sizes that are computed."""
    padded = (rows["moe_dtype"] == MARLIN[0]).to_numpy()
    into, across = (np.where(padded, multiple, 1) for multiple in PADDED)
    gpus = rows["moe_tp_size"].to_numpy()
    hidden, width = rows["hidden_size"].to_numpy(), rows["inter_size"].to_numpy() / gpus
    inner = np.ceil(width / across) * across * gpus
    return rows.assign(hidden_size=np.ceil(hidden / into) * into, inter_size=inner)


def by_operator(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of ``moe`` and, if its library is another, of ``moe_ranks``: each of the library
    that has most rows of it."""
    if rows.empty:
        return {}
    library = rows["kernel_source"].map(_family)
    apart = rows["moe_ep_size"] > 1
    own, ranks = (str(library[part].mode().max()) if part.any() else "" for part in (~apart, apart))
    if own == ranks or not own or not ranks:
        return {"moe": rows[library == (own or ranks)]}
    return {"moe": rows[~apart & (library == own)], "moe_ranks": rows[apart & (library == ranks)]}


def _family(kernel: str) -> str:
    return next((word for word in FAMILIES if word in kernel.lower()), kernel)


def fit_rows(table: KernelTable, rows: pd.DataFrame, precision: str) -> KernelFit:
    """The fit of one precision to the ``rows`` of it, with the tables of their shapes."""
    form, data, limits = moe.form(precision), to_data(rows), ceilings(table, precision)
    if not rows["kernel_source"].str.contains(PARTED).all():
        alike = tuple(each for each in form.parameters if each.name != "apart")
        form = replace(form, parameters=alike)
    found = fit(form, data, limits, kernel=table.source(rows), judged=on_few_gpus(data))
    kept = {name: span for name, span in found.ranges.items() if name not in COUNTS}
    one_way = data.take((data.shape["gpus"] == 1) | (data.shape["ranks"] == 1))
    at, judged = ("tokens", "gpus", "ranks"), on_few_gpus(one_way)
    found = with_known(found, form, one_way, limits, AXES, at, judged)
    return replace(found, ranges=kept)


def to_data(rows: pd.DataFrame) -> Data:
    """Points of the form, in seconds; what was timed twice counts once, by its median."""
    keys = [*MODEL, *SPLIT, "num_tokens", "distribution"]
    rows = with_counts(rows.groupby(keys)["latency"].median().reset_index())
    named = dict(zip((*MODEL, *SPLIT), (*moe.GROUP, "gpus", "ranks"), strict=True))
    named |= {"num_tokens": "tokens"} | {name: name for name in COUNTS}
    columns = {new: rows[old].to_numpy(dtype=np.float64) for old, new in named.items()}
    sizes = zip(rows["hidden_size"], rows["inter_size"], strict=True)
    columns["matrices"] = np.array([2.0 if size in NOT_GATED else 3.0 for size in sizes])
    seconds = rows["latency"].to_numpy(dtype=np.float64) / 1e3
    return Data(columns, seconds, np.ones(len(rows)))


def ceilings(table: KernelTable, precision: str) -> Ceilings:
    """The GPU's data sheet, and the cache that the collector left warm."""
    gpu = table.gpu
    peak = gpu.flops(moe.FORMATS[precision].arithmetic)
    return Ceilings(peak, gpu.bandwidth, gpu.sms, L2_BYTES[table.system])


def on_few_gpus(data: Data) -> NDArray[np.bool_]:
    """Which points are of a layer on up to ``JUDGED`` GPUs."""
    return np.asarray(data.shape["gpus"] * data.shape["ranks"] <= JUDGED)
