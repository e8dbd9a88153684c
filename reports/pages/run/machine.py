"""Builds the sections on the machine: timeline, slots, memory, time by operator, roofline."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import pandas as pd

from reports.figures import fleet, memory_use, operator_work, slots, timeline
from reports.figures.memory_use import TITLES, Memory, gpu_memory
from reports.figures.slot_view import caption as slot_caption
from reports.figures.slot_view import slot_view
from reports.figures.steps import nice_width, replica_count
from reports.frame import theme
from reports.frame.content import Plot, to_json
from reports.frame.formats import MISSING, phrase, show
from reports.frame.run_directory import known, pick
from reports.pages.run import groups
from reports.pages.run.missing import is_observed, reason
from sim.findings import Cell, Column, Table
from sim.memory import ALLOCATORS
from sim.metrics.engine.prefix_words import shares_nothing
from sim.metrics.terms.definitions import bound_name
from sim.results.trail_files import Trail
from sim.schedulers import POLICIES
from sim.units import show_rate, show_time


def whole_run(
    summary: Mapping[str, Any],
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    charts: Mapping[str, Any],
) -> Plot:
    """Everything that changes over time, on one axis."""
    title = "Requests, KV cache, tokens and power over time"
    if not len(timeseries):
        none = "No iteration was recorded" if is_observed(summary) else "No iteration was run"
        return Plot("timeline", title, None, f"{none}: there is nothing to draw.", None)
    replicas = replica_count(timeseries, requests)
    kv_tokens = pick(summary, "infersim.kv_cache.tokens")
    drawn = timeline.figure(
        timeseries, requests, kv_tokens=kv_tokens, replicas=replicas, power=charts.get("power")
    )
    width = nice_width(float(timeseries["end_s"].max()), timeline.BINS)
    told = [
        f"Rates are averages over {width:g} s. Long series are thinned for the screen; lowest and "
        "highest values stay."
    ]
    if any(trace.meta == timeline.MOST for trace in drawn.data):
        told.append("Pale behind a mean: the most of each stretch.")
    if replicas > 1:
        told.insert(0, f"Sum over {replicas} replicas; KV cache: their mean.")
    preemptions = timeseries["preemptions"]
    if not preemptions.notna().any():
        told.append("Preemptions were not recorded.")
    elif not preemptions.sum():
        told.append("No preemptions.")
    if requests["warmup"].any():
        told.append("The shaded start is the warm-up, left out of the latency statistics.")
    return Plot("timeline", title, "timeline", " ".join(told), to_json(drawn), kind="own")


def pool_courses(charts: Mapping[str, Any]) -> list[Plot]:
    """Plots of each pool over time; none where the fleet is one pool of a fixed size."""
    course = charts.get("fleet")
    if course is None:
        return []
    width = course["edges"][1] - course["edges"][0]
    told = (
        f"Means over {width:.3g} s. Replicas are held, and paid for, also while they start and "
        "while they are drained; requests wait for their first iteration."
    )
    title = (
        "Replicas and requests over time"
        if len(course["pools"]) == 1
        else (
            "Replicas, requests and hand-overs of each pool"
            if course["handed"] is not None
            else "Replicas and requests of each pool"
        )
    )
    return [Plot("fleet", title, None, told, to_json(fleet.pools(course)), kind="own")]


def batch_slots(
    summary: Mapping[str, Any],
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    trail: Trail | None,
) -> Plot:
    """Which request each slot of the batch serves."""
    title = "Requests in the batch"
    view = slot_view(requests, timeseries, str(pick(summary, "infersim.batching")), trail)
    if view is None:
        note = "No request was served: there is nothing to draw."
        return Plot("slots", title, None, note, None)
    told = slot_caption(view)
    if known(summary, "infersim.failures") is not None:
        told += " Attempts that came to nothing are not drawn."
    return Plot("slots", title, "slot", told, to_json(slots.chart(view)), kind="slots")


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
            _fullest(found, replicas),
            to_json(memory_use.gpu_bars(found)),
        ),
        kind="own",
    )
    return plot, _memory_table(found)


def _fullest(found: Memory, replicas: int) -> str:
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


def _memory_table(found: Memory) -> Table:
    columns = (Column("Memory of one GPU", False, "gpu_memory"), Column("GiB"), Column("Share (%)"))
    rows = [
        (
            Cell(title, title),
            Cell(*show(found.parts[name] / 2**30, "number")),
            Cell(*show(found.parts[name] / found.total, "share")),
        )
        for name, title in TITLES.items()
        if name in found.parts
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
    if not tokens and groups.has_pools(summary):
        note = "The KV caches of the pools differ: the table of pools says how full each was."
        return Plot("kv-map", title, "kv_map", note, None)
    if not tokens:
        note = "The size of the KV cache was not recorded: the timeline has it in tokens."
        return Plot("kv-map", title, "kv_map", note, None)
    replicas = replica_count(timeseries, requests)
    drawn = memory_use.kv_map(timeseries, requests, kv_tokens=tokens, replicas=replicas)
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


NOT_COUNTED = (
    "The FLOP and the bytes of a real device are not counted, so that it has no points here."
)


def operator_shares(summary: Mapping[str, Any]) -> Plot:
    """The share of the busy time of each operator, by what bound it."""
    title = "Time by operator"
    shares = pick(summary, "infersim.time_by_operator") or {}
    shares = {str(name): share for name, share in shares.items() if share}
    if not shares:
        note = reason(summary, "The record does not say what the engine spent its time on.")
        return Plot("operators", title, "operator", note, None)
    work = known(summary, "infersim.operators") or {}
    caption = "Colours: what each operator waited for (see 'Bound by')."
    if not work:
        caption = (
            "By phase of an iteration, as measured."
            if is_observed(summary)
            else (
                "What bound each operator is not in this run directory: an older version wrote it."
            )
        )
    drawn = operator_work.operator_time(shares, work)
    return Plot("operators", title, "operator", caption, to_json(drawn), kind="own")


def operator_table(summary: Mapping[str, Any]) -> Table:
    """Each operator's share of the busy time, largest first, and what it moved and computed."""
    shares = pick(summary, "infersim.time_by_operator") or {}
    work = known(summary, "infersim.operators") or {}
    if not any(shares.values()):
        shares = {}
    largest = max([share for share in shares.values() if share], default=1.0)
    rows = []
    for name, share in sorted(shares.items(), key=lambda item: -(item[1] or 0.0)):
        shown = show(share, "share")
        row = [Cell(str(name), str(name)), Cell(*shown, None, (share or 0.0) / largest)]
        if work:
            row += _work(work[name]) if name in work else _host(name, share, work)
        rows.append(tuple(row))
    columns = [Column("Operator", False, "operator"), Column("Share of busy time (%)")]
    if work:
        columns += [
            Column("Seconds"),
            Column("FLOP", definition="flop"),
            Column("Bytes", definition="flop"),
            Column("FLOP/B", definition="intensity"),
            Column("FLOP/s", definition="flop"),
            Column("Bound by", False, "bound_by"),
        ]
    return Table("operators", "Time by operator", tuple(columns), tuple(rows))


def _work(done: Mapping[str, float]) -> list[Cell]:
    flop, moved = done["flops"], done["bytes"]
    parts = {bound: done[bound] for bound in theme.BOUNDS if bound in done}
    seconds = sum(parts.values())
    bound = max(parts, key=lambda name: parts[name])
    return [
        Cell(*show(seconds, "number")),
        _prefixed(flop),
        _prefixed(moved),
        Cell(*show(flop / moved if flop and moved else None, "number")),
        _prefixed(flop / seconds if flop and seconds else 0.0),
        Cell(bound_name(bound), bound_name(bound)),
    ]


def _host(name: str, share: float | None, work: Mapping[str, Mapping[str, float]]) -> list[Cell]:
    """The rest of the busy time, which computes and moves nothing."""
    kernels = sum(done[bound] for done in work.values() for bound in theme.BOUNDS if bound in done)
    seconds = None if share is None or share >= 1 else kernels * share / (1 - share)
    nothing = Cell(*show(None, "number"))
    bound = name if name in theme.BOUNDS else MISSING
    return [Cell(*show(seconds, "number")), *[nothing] * 4, Cell(bound, bound)]


def _prefixed(amount: float) -> Cell:
    """``1.2 P`` to read, all digits to sort and to copy; nothing for 0."""
    if not amount:
        return Cell(*show(None, "number"))
    return Cell(show_rate(amount, "").rstrip(), amount)


def operating_points(summary: Mapping[str, Any], charts: Mapping[str, Any]) -> Plot:
    """The points at which the run worked, under the roof of its GPU."""
    title = "Roofline"
    found = charts.get("roofline")
    if found is None or not any(point["flops"] for point in found["points"]):
        return Plot("roofline", title, "roofline", reason(summary, NOT_COUNTED), None)
    ridge = found["peak_flops"] / found["bandwidth"]
    seconds = sum(point["seconds"] for point in found["points"])
    left = sum(
        point["seconds"] for point in found["points"] if point["flops"] < ridge * point["bytes"]
    )
    caption = (
        f"{100 * left / seconds:.3g} % of the busy time lies left of the ridge, where the memory "
        "bandwidth is the limit. The area of a circle is its share of the busy time. The distance "
        "to the roof is what kernels do not reach, what operators take in turn, and the host."
    )
    drawn = operator_work.roofline(found)
    return Plot("roofline", title, "roofline", caption, to_json(drawn), kind="tall")
