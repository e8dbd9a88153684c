"""Fits all-reduces to the published tables ``custom_allreduce_perf``.

``message_size`` counts elements of 16 bits, so bytes are twice it: the library's own table has the
same times for half as many fp16 as int8 elements. Where a framework's kernels were timed both
launched one by one and in a CUDA graph, the graph is used: that is how engines decode. Sizes are
held out whole, for all numbers of GPUs together; a size has its neighbours, so this says how well
the law interpolates, not how it would do on another number of GPUs.

Sums that are one kernel with the norm after them are FlashInfer's in vLLM and SGLang, which took
that kernel over from TensorRT-LLM (flashinfer, comm/trtllm_allreduce_fusion.cuh): they are fitted
to TensorRT-LLM's sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from calibrate.data import Data
from calibrate.fit import fit, solve
from calibrate.importers.aiconfigurator.tables import KernelTable, Tables, gpu_of, require
from sim.cost.kernels import all_reduce
from sim.cost.kernels.form import Ceilings, Form
from sim.specs.profile import FUSED, KernelFit

ELEMENT_BYTES = 2.0

LIMITS = (0.26e6, 1e6, 3e6, 6e6, 12e6, 24e6, 50e6, 400e6)
"""Bytes at which the search for the largest tensor of a framework's own kernels starts: between
these the error does not say in which direction to go."""

MOST_GPUS = {("vllm", "gb300"): 4}
"""GPUs of the largest sums that are fitted, by framework and system. Beyond the four GPUs of a
compute tray vLLM has NCCL instead of kernels of its own: a small sum takes 7 us on 4 GPUs, 13 on 8
and 46 on 16, which is no form of one library."""

FUSES = {
    "vllm": frozenset({"h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300"}),
    "sglang": frozenset({"b200_sxm", "b300_sxm", "gb200", "gb300"}),
}
"""Systems on which a framework takes FlashInfer's kernel of sum and norm."""

OWNER = "trtllm"
"""The framework whose kernel that one is."""

AXES = {
    "bytes": (8.0, 14.0, *(float(power) for power in range(16, 27)), 28.0, 30.0),
    "gpus": (1.0, 2.0, 3.0),
}
"""Knots of the residual table, base-2 logarithms."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """The fit of ``all_reduce`` in bf16, from the newest table unless ``version`` is given, and of
    sums that are fused with norms where the framework has any.

    Raises UsageError for names that the tables lack.
    """
    table = tables.read(system, "comm", framework, "custom_allreduce_perf", version)
    found = {"all_reduce": {"bf16": fit_table(table)}}
    if system in FUSES.get(framework, ()) and OWNER in tables.frameworks(system, "comm"):
        fused = tables.read(system, "comm", OWNER, "custom_allreduce_perf")
        found["all_reduce" + FUSED] = {"bf16": fit_table(fused)}
    return found


def fit_table(table: KernelTable) -> KernelFit:
    """The fit of one table, in 16 bits."""
    require(table, ("kernel_source", "allreduce_dtype", "num_gpus", "message_size", "latency"))
    rows = all_reduce_rows(table.frame)
    rows = rows[rows["num_gpus"] <= MOST_GPUS.get((table.framework, table.system), np.inf)]
    data = to_data(rows)
    link = gpu_of(table.system).link
    ceilings = Ceilings(peak=1.0, bandwidth=link.bandwidth, sms=1)
    form = _started(all_reduce.form(link.kind), data, ceilings)
    return fit(
        form,
        data,
        ceilings,
        axes=AXES,
        kernel=table.source(rows),
        judged=np.ones(len(data), dtype=bool),
    )


def all_reduce_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """16-bit sums, from a CUDA graph where the table has both."""
    rows = frame[
        frame["allreduce_dtype"].isin(["bfloat16", "half", "float16"]) & (frame["latency"] > 0)
    ]
    graph = rows["kernel_source"].str.endswith("_graph")
    return rows[graph] if graph.any() else rows


def to_data(rows: pd.DataFrame) -> Data:
    """Points of the form; those measured twice count once, by their median."""
    keys = ["message_size", "num_gpus"]
    rows = rows.groupby(keys)["latency"].median().reset_index()
    size, gpus, latency = (rows[name].to_numpy(dtype=np.float64) for name in (*keys, "latency"))
    shape = {"bytes": ELEMENT_BYTES * size, "gpus": gpus}
    return Data(shape, latency / 1e3, np.ones(len(rows)))


def _started(form: Form, data: Data, ceilings: Ceilings) -> Form:
    """The form with, as its start, the best of the fits that begin at each of ``LIMITS``.

    So which kernel serves which size is settled on all sizes, before any is held out: it is a
    constant in the framework's source, and neighbours of a size cannot tell it.
    """
    candidates = []
    for limit in LIMITS:
        found, _ = solve(_beginning(form, {"limit": limit}), data, ceilings)
        error = np.abs(np.log(form.seconds(found, data.shape, ceilings) / data.seconds))
        candidates.append((float(error.mean()), found))
    best = min(candidates, key=lambda pair: pair[0])[1]
    return _beginning(form, best)


def _beginning(form: Form, starts: Mapping[str, float]) -> Form:
    """The form with other starts for some of its parameters."""
    changed = (replace(p, start=starts[p.name]) if p.name in starts else p for p in form.parameters)
    return replace(form, parameters=tuple(changed))
