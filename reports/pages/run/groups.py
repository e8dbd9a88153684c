"""Shows how each pool and each class of the traffic was served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from reports.figures import overlaid
from reports.figures.latency_cdf import TITLES
from reports.figures.series import MOST_LINES, styles
from reports.frame.content import Plot, to_json
from reports.frame.formats import Kind, show
from reports.frame.run_directory import known
from reports.pages.run.slo import judged, limits, percent
from sim.findings import Cell, Column, Table
from sim.metrics.terms.definitions import METRIC

OF_POOL: Mapping[str, tuple[str, str, Kind]] = {
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


def has_pools(summary: Mapping[str, Any]) -> bool:
    """Whether the fleet had several pools."""
    return known(summary, "infersim.pools") is not None


def pools_table(summary: Mapping[str, Any], definitions: Mapping[str, Any]) -> Table:
    """A row for each pool; none where the fleet is one pool."""
    columns = [Column("Pool", False), Column("GPU", False), Column("Serves", False)]
    for title, definition, _ in OF_POOL.values():
        columns.append(Column(title, True, definition if definition in definitions else None))
    rows = []
    for pool in known(summary, "infersim.pools") or []:
        names = [Cell(pool[key], pool[key]) for key in ("name", "gpu", "role")]
        cells = [Cell(*show(pool[key], kind)) for key, (_, _, kind) in OF_POOL.items()]
        rows.append((*names, *cells))
    return Table("pools", "Pools", tuple(columns), tuple(rows))


NAMED = 4
"""Classes of which a sentence has the share within the SLO."""

DRAWN = ("ttft", "tpot")

OF_CLASS: Mapping[str, tuple[str, str, Kind]] = {
    "priority": ("Priority", "", "count"),
    "deadline_ms": ("TTFT limit", "", "ms"),
    "submitted": ("Submitted", "", "count"),
    "completed": ("Completed", "", "count"),
    "preemptions": ("Preemptions", "preemptions", "count"),
    "attainment": ("Within limits (%)", "attainment", "share"),
    **{
        f"{rank}_{name}_ms": (METRIC[f"{rank}_{name}_ms"].head, name, "ms")
        for name in DRAWN
        for rank in ("p50", "p99")
    },
}
"""Key of a class in the summary -> heading, definition, kind of value."""

SAME = ("priority", "deadline_ms", "preemptions")
"""Columns that are left out where they say of no class anything that they do not say of all."""


def sentence(summary: Mapping[str, Any]) -> str:
    """The share of each class within its limits, for the answer about the SLO; empty where there
    are no classes, no limits or too many to name."""
    found = [each for each in _classes(summary) if each["attainment"] is not None]
    if not found or len(found) > NAMED or not limits(summary):
        return ""
    wanted = judged(summary)["target"]
    shares = (f"{each['name']} {percent(each['attainment'], wanted)}" for each in found)
    return f"By class: {', '.join(shares)}."


def classes_table(summary: Mapping[str, Any], definitions: Mapping[str, Any]) -> Table:
    """A row for each class; none where the traffic has none. Classes of a run of before may lack
    figures that are known today."""
    found = _classes(summary)
    shown = {
        key: given
        for key, given in OF_CLASS.items()
        if any(key in each for each in found)
        and not (key in SAME and len({each.get(key) for each in found}) == 1)
        and not all(each.get(key) is None for each in found)
    }
    columns = [Column("Class", False)]
    for title, definition, kind in shown.values():
        about = definition if definition in definitions else None
        columns.append(Column(title, True, about, unit="ms" if kind == "ms" else ""))
    rows = []
    for each in found:
        cells = [Cell(*show(each.get(key), kind)) for key, (_, _, kind) in shown.items()]
        rows.append((Cell(each["name"], each["name"]), *cells))
    return Table("classes", "Classes of the traffic", tuple(columns), tuple(rows))


def plots(summary: Mapping[str, Any], requests: pd.DataFrame) -> Sequence[Plot]:
    """TTFT and TPOT of the classes, a line each; none where there are fewer than two, or more than
    can be distinguished."""
    names = [str(each["name"]) for each in _classes(summary)]
    if not 2 <= len(names) <= MOST_LINES or "class" not in requests:
        return []
    looks = styles([{"class": name} for name in names])
    drawn = [
        overlaid.DrawnVariant(name, look, "", requests[requests["class"] == name], pd.DataFrame(),
                              None)
        for name, look in zip(names, looks, strict=True)
    ]  # fmt: skip
    found = []
    for name in DRAWN:
        limit_ms = _one_limit(summary, name)
        spec = overlaid.distributions(drawn, name, None if limit_ms is None else limit_ms / 1e3)
        if spec is not None:
            note = "Completed requests of each class."
            note += "" if limit_ms is None else " Dashed: the limit."
            found.append(
                Plot(f"classes-{name}", f"{TITLES[name]} by class", name, note, to_json(spec))
            )
    return found


def _one_limit(summary: Mapping[str, Any], name: str) -> float | None:
    """The limit of ``name`` (ms), where there is one, and one for all classes."""
    found: set[float | None] = {
        limit.limit_ms for limit in limits(summary).values() if limit.metric == name
    }
    if name == "ttft":
        found |= {each.get("deadline_ms") for each in _classes(summary)}
    return found.pop() if len(found) == 1 else None


def _classes(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(known(summary, "infersim.classes") or [])
