"""Builds the memory section: what a GPU's memory holds, and how full the KV cache is over time."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import pandas as pd

from reports.figures import kv_map, memory_use
from reports.figures.memory_use import TITLES, Memory, gpu_memory
from reports.figures.steps import replica_count
from reports.frame.content import Plot, to_json
from reports.frame.formats import phrase, show
from reports.frame.run_directory import known, pick
from reports.pages.run import pools
from reports.pages.run.missing import is_observed, reason
from sim.findings import Cell, Column, Table
from sim.memory import ALLOCATORS
from sim.metrics.engine.prefix_words import shares_nothing
from sim.schedulers import POLICIES
from sim.units import show_time

UNKNOWN = "What was in the memory of the GPU is not in the record."


def whole_gpu(summary: Mapping[str, Any], timeseries: pd.DataFrame) -> tuple[Plot, Table | None]:
    """The memory of one GPU when its KV cache is fullest, as a figure and as a table."""
    title = "Memory of one GPU"
    memory = known(summary, "infersim.memory")
    if memory is None:
        note = reason(summary, UNKNOWN)
        return Plot("gpu-memory", title, "gpu_memory", note, None), None
    if None in memory.values():
        note = "The GPUs of the pools differ: the table of pools says how full each was."
        return Plot("gpu-memory", title, "gpu_memory", note, None), None
    found = gpu_memory(memory, timeseries)
    replicas = replica_count(timeseries, timeseries)
    plot = Plot(
        *(
            "gpu-memory",
            title,
            "gpu_memory",
            _caption(found, replicas),
            to_json(memory_use.figure(found)),
        ),
        kind="own",
    )
    return plot, _table(found)


def _caption(found: Memory, replicas: int) -> str:
    when = "The KV cache was never used."
    where = f" in any of {replicas} replicas" if replicas > 1 else ""
    if isfinite(found.time):
        when = f"At {show_time(found.time)}, when the KV cache was fullest{where}."
    if found.short > 0:
        when += (
            f" The number of KV blocks was given, and takes {phrase(found.short / 2**30, 'number')}"
            " GiB more than the GPU has left for it."
        )
    return when


def _table(found: Memory) -> Table:
    columns = (
        Column("Memory of one GPU", False, "gpu_memory"),
        Column("GiB"),
        Column("Share (%)"),
    )
    rows = [
        (
            Cell(title, title),
            Cell(*show(found.parts[name] / 2**30, "number")),
            Cell(*show(found.parts[name] / found.total, "share")),
        )
        for name, title in TITLES.items()
    ]
    total = (found.total + found.short) / 2**30
    shares = show((found.total + found.short) / found.total, "share")
    rows.append((Cell("all", "all"), Cell(*show(total, "number")), Cell(*shares)))
    return Table("gpu-memory", "Memory of one GPU, KV cache at its fullest", columns, tuple(rows))


def cache_over_time(
    summary: Mapping[str, Any], requests: pd.DataFrame, timeseries: pd.DataFrame
) -> Plot:
    """Used, wasted and free parts of the KV cache."""
    title = "KV cache over time"
    tokens = pick(summary, "infersim.kv_cache.tokens")
    if not len(timeseries):
        note = "No iteration is known, so that there is nothing to draw."
        return Plot("kv-map", title, "kv_map", note, None)
    if is_observed(summary) and pick(summary, "infersim.kv_cache.mean_used") is None:
        note = "How full the blocks in use were is not in the record."
        return Plot("kv-map", title, "kv_map", note, None)
    if not tokens and pools.several(summary):
        note = "The KV caches of the pools differ: the table of pools says how full each was."
        return Plot("kv-map", title, "kv_map", note, None)
    if not tokens:
        note = "The size of the KV cache was not recorded: the timeline has it in tokens."
        return Plot("kv-map", title, "kv_map", note, None)
    replicas = replica_count(timeseries, requests)
    drawn = kv_map.figure(timeseries, requests, kv_tokens=tokens, replicas=replicas)
    caption = (
        f"Of {phrase(tokens * replicas, 'count', 'tokens')}"
        f"{f' in {replicas} replicas' if replicas > 1 else ''}. "
    )
    caption += _waste(summary)
    caption += _sharing(summary)
    return Plot("kv-map", title, "kv_map", caption, to_json(drawn))


def _sharing(summary: Mapping[str, Any]) -> str:
    """The gain from prefixes, where they are cached."""
    cache, tier = (known(summary, f"infersim.{name}") for name in ("prefix_cache", "host_tier"))
    rate = None if cache is None else cache["hit_rate"]
    if cache is None or rate is None or shares_nothing(cache):
        return ""
    text = f" Prefix cache: {phrase(rate, 'share')} of the prompt tokens were found"
    host = None if tier is None else tier["hit_rate"]
    text += "" if not host else f", {phrase(host, 'share')} came from the host"
    left, asked = cache.get("evicted"), cache["queries"]
    if left and asked:
        text += f"; {phrase(left / asked, 'share')} had been there and had made room"
    return text + ". While a replica rests, all that it last held counts as cached."


def _waste(summary: Mapping[str, Any]) -> str:
    """The reason why memory is reserved and empty."""
    policy = POLICIES.get(str(pick(summary, "infersim.batching")))
    if policy is not None and policy.shape.whole:
        return (
            "Reserved and empty: a batch that is served as a whole has at its launch the memory "
            "that its members may need, up to their longest, and keeps it until the last is done."
        )
    allocator = ALLOCATORS.get(str(pick(summary, "infersim.kv_cache.allocator")))
    if allocator is not None and allocator.reserves_longest:
        return "Reserved and empty: every request that runs owns the maximum length."
    return "Reserved and empty: the unfilled end of the last block of each request."
