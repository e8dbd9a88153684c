"""Fits the exchange of tokens between experts to published tables: DeepEP, and kernels over NVLink.

``moe_a2a_perf`` (vLLM, TensorRT-LLM; eight GPUs of a node) is in **microseconds**, with the time
of the framework around the kernels; its rows of ``default`` width are taken as 16 bits.
``wideep_deepep_ll_perf`` and ``wideep_deepep_normal_perf`` (SGLang) are microseconds, too, of the
kernels alone, dispatched in fp8 with a scale for 128 numbers and combined in 16 bits; on H100 and
H200 an older release was timed on 1, 2, 4 and 8 nodes. Kernels of high throughput count with
``SMS`` of the GPU, and with what they take to be notified.

``trtllm_alltoall_perf`` (TensorRT-LLM's kernels over NVLink, GB200 alone, 2 to 64 GPUs of a rack)
is in milliseconds. Its routing is balanced: a token's experts are on as many GPUs as there are, or
on one GPU each.

Left out: high throughput on eight nodes, which took twice as long as the network explains; results
combined in fewer bits than 16, which no backend asks for. Where a table has one node, what the
network takes is given, as SGLang's on H100 was fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from calibrate.data import Data
from calibrate.fit import fit
from calibrate.importers.aiconfigurator.tables import KernelTable, Tables
from sim.cost.kernels import all_to_all
from sim.cost.kernels.form import Ceilings
from sim.errors import UsageError
from sim.specs.profile import KernelFit

SMS = 24
"""SMs that the kernels of high throughput may use, of the numbers timed."""

GPUS_OF_A_NODE = 8
MOST_NODES = {"ht": 4}
FP8 = all_to_all.WIDTHS["fp8"]
WIDTHS = {"default": 2.0, "bfloat16": 2.0, **all_to_all.WIDTHS}
OF_SEVERAL = ("step", "network_share", "overlap")
"""Parameters that one node does not determine."""

IN_BYTES = ("width", "chosen", "met")
"""Variables that only say how many bytes there are: no range is stated of them."""

KEYS = ["tokens", "hidden", "width", "chosen", "gpus", "nodes"]

OVER_NVLINK = {"NVLinkOneSided": "one_sided", "NVLinkTwoSided": "two_sided"}
"""The simulator's kind for each ``kernel_source`` of ``trtllm_alltoall_perf``."""

STEPS = {"dispatch": ("alltoall_prepare", "alltoall_dispatch"), "combine": ("alltoall_combine",)}
"""The ``op_name`` of the kernels that make up each phase there."""


def fit_system(
    tables: Tables, system: str, framework: str, version: str | None = None
) -> dict[str, dict[str, KernelFit]]:
    """Fits by operator, under ``bf16``. UsageError for names that the tables lack."""
    found: dict[str, dict[str, KernelFit]] = {}
    rows = list(_rows(tables, system, framework, version))
    for operator in all_to_all.OPERATORS:
        parts = [part for name, part, _ in rows if name == operator and len(part)]
        if parts:
            tables_read = [table for name, part, table in rows if name == operator and len(part)]
            found[operator] = {"bf16": fit_rows(tables_read, operator, pd.concat(parts))}
    if not found:
        raise UsageError(f"{framework} on {system}: no exchange of tokens to fit")
    return found


def fit_rows(tables: list[KernelTable], operator: str, rows: pd.DataFrame) -> KernelFit:
    """The fit of one operator to rows of ``KEYS`` and ``seconds``."""
    gpu = tables[0].gpu
    keys = [key for key in (*KEYS, "met") if key in rows]
    rows = rows.groupby(keys)["seconds"].median().reset_index()
    shape = {key: rows[key].to_numpy(dtype=np.float64) for key in keys}
    shape["network"] = np.full(len(rows), gpu.node.network.bandwidth)
    data = Data(shape, rows["seconds"].to_numpy(dtype=np.float64), np.ones(len(rows)))
    form = all_to_all.form(operator)
    kind = all_to_all.kind_of(operator)
    kernels = {ours: theirs for theirs, ours in OVER_NVLINK.items()}.get(kind, "deepep")
    if shape["nodes"].max() == 1 and kind not in all_to_all.OVER_NVLINK:
        usual = all_to_all.USUAL[operator]
        form = form.given(**{name: usual[name] for name in OF_SEVERAL})
    known = ", ".join(f"{t.framework} {t.version}" for t in tables)
    found = fit(
        form,
        data,
        Ceilings(1.0, gpu.link.bandwidth, gpu.sms),
        kernel=f"{known}: {kernels}",
        judged=np.ones(len(data), dtype=bool),
    )
    ranges = {name: span for name, span in found.ranges.items() if name not in IN_BYTES}
    return replace(found, ranges=ranges)


def _rows(
    tables: Tables, system: str, framework: str, version: str | None
) -> Iterator[tuple[str, pd.DataFrame, KernelTable]]:
    """Operator, rows and table."""
    if framework != "sglang":
        table = tables.read(system, "comm", framework, "moe_a2a_perf", version)
        for kind in ("ll", "ht"):
            for phase in all_to_all.PHASES:
                yield f"{kind}_{phase}", _of_framework(table.frame, kind, phase), table
        yield from _over_nvlink(tables, system, framework)
        return
    for kind, name in (("ll", "wideep_deepep_ll_perf"), ("ht", "wideep_deepep_normal_perf")):
        versions = tables.versions(system, "comm", framework, name)
        if not versions:
            raise UsageError(f"{framework} on {system}: no {name} in any version")
        for each in [version] if version is not None else versions:
            table = tables.read(system, "comm", framework, name, each)
            for phase in all_to_all.PHASES:
                yield f"{kind}_{phase}", _of_sglang(table.frame, kind, phase), table


def _over_nvlink(
    tables: Tables, system: str, framework: str
) -> Iterator[tuple[str, pd.DataFrame, KernelTable]]:
    """Timings of TensorRT-LLM's kernels over NVLink, where there are any."""
    name = "trtllm_alltoall_perf"
    if not tables.versions(system, "comm", framework, name):
        return
    table = tables.read(system, "comm", framework, name)
    for source, kind in OVER_NVLINK.items():
        rows = table.frame[table.frame["kernel_source"] == source]
        for phase in all_to_all.PHASES:
            yield f"{kind}_{phase}", _of_steps(rows, phase), table


def _of_steps(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """The kernels of one phase, one after the other."""
    keys = ["num_tokens", "hidden_size", "moe_dtype", "topk", "moe_ep_size"]
    steps = rows[rows["op_name"].isin(STEPS[phase])]
    each = steps.groupby([*keys, "op_name"])["latency"].median().unstack()
    rows = each.dropna().sum(axis=1).rename("latency").reset_index()
    return pd.DataFrame(
        {
            "tokens": rows["num_tokens"],
            "hidden": rows["hidden_size"],
            "width": rows["moe_dtype"].map(WIDTHS) if phase == "dispatch" else 2.0,
            "chosen": rows["topk"],
            "gpus": rows["moe_ep_size"],
            "nodes": 1.0,
            "met": np.minimum(rows["topk"], rows["moe_ep_size"]).astype(float),
            "seconds": rows["latency"] / 1e3,
        }
    )


def _of_framework(frame: pd.DataFrame, kind: str, phase: str) -> pd.DataFrame:
    rows = frame[frame["comm_backend"].str.endswith(f"deepep_{kind}") & (frame["phase"] == phase)]
    return pd.DataFrame(
        {
            "tokens": rows["num_tokens"],
            "hidden": rows["hidden_size"],
            "width": rows["comm_dtype"].map(WIDTHS) if phase == "dispatch" else 2.0,
            "chosen": rows["topk"],
            "gpus": rows["ep_size"],
            "nodes": rows["node_num"],
            "seconds": rows["latency"] / 1e6,
        }
    )


def _of_sglang(frame: pd.DataFrame, kind: str, phase: str) -> pd.DataFrame:
    if kind == "ll":
        rows, micros = frame, frame[f"{phase}_avg_t_us"]
    else:
        kept = (frame["dispatch_sms"] == SMS) & (frame["node_num"] <= MOST_NODES[kind])
        rows = frame[kept]
        micros = rows[f"{phase}_transmit_us"] + rows[f"{phase}_notify_us"]
    return pd.DataFrame(
        {
            "tokens": rows["num_token"],
            "hidden": rows["hidden_size"],
            "width": FP8 if phase == "dispatch" else 2.0,
            "chosen": rows["num_topk"],
            "gpus": GPUS_OF_A_NODE * rows["node_num"],
            "nodes": rows["node_num"],
            "seconds": micros / 1e6,
        }
    )
