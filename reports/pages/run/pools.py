"""Builds the table of a run's pools: what each is, how busy it was, and what it served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.frame.formats import Kind, show
from reports.frame.run_directory import known
from sim.findings import Cell, Column, Table
from sim.metrics.terms.definitions import METRIC

COLUMNS: Mapping[str, tuple[str, str, Kind]] = {
    "replicas": ("Replicas", "", "count"),
    "gpus": ("GPUs", "", "count"),
    "share": ("Served (%)", "", "share"),
    "output_throughput": (METRIC["output_throughput"].head, "output_throughput", "number"),
    "prefill_throughput": ("Prompt tokens/s", "", "number"),
    "utilisation": ("Of its capacity (%)", "utilisation", "share"),
    "busy": ("Busy (%)", "busy", "share"),
    "mfu": ("MFU (%)", "mfu", "share"),
    "mbu": ("MBU (%)", "mbu", "share"),
    "kv_mean_used": ("KV used (%)", "", "share"),
    "kv_peak_used": ("KV peak (%)", "", "share"),
    "p99_ttft_ms": (METRIC["p99_ttft_ms"].head, "ttft", "ms"),
    "p99_tpot_ms": (METRIC["p99_tpot_ms"].head, "tpot", "ms"),
    "usd": ("Cost (USD)", "", "usd"),
}
"""Key of a pool in the summary -> heading, definition, kind of value."""


def several(summary: Mapping[str, Any]) -> bool:
    """Whether the fleet had several pools."""
    return known(summary, "infersim.pools") is not None


def table(summary: Mapping[str, Any], definitions: Mapping[str, Any]) -> Table:
    """A row for each pool; none where the fleet is one pool."""
    columns = [Column("Pool", False), Column("GPU", False), Column("Serves", False)]
    for title, definition, _ in COLUMNS.values():
        columns.append(Column(title, True, definition if definition in definitions else None))
    rows = []
    for pool in known(summary, "infersim.pools") or []:
        names = [Cell(pool[key], pool[key]) for key in ("name", "gpu", "role")]
        cells = [Cell(*show(pool[key], kind)) for key, (_, _, kind) in COLUMNS.items()]
        rows.append((*names, *cells))
    return Table("pools", "Pools", tuple(columns), tuple(rows))
