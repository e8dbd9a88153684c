"""Builds the section with the timeline of the fleet and the slots of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from reports.figures import fleet, slots, timeline
from reports.figures.slot_view import caption as slot_caption
from reports.figures.slot_view import slot_view
from reports.figures.steps import nice_width, replica_count
from reports.frame.content import Plot, to_json
from reports.frame.run_directory import known, pick
from reports.pages.run.missing import is_observed
from sim.results.trail_files import Trail


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
        timeseries,
        requests,
        kv_tokens=kv_tokens,
        replicas=replicas,
        power=charts.get("power"),
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


def pools(charts: Mapping[str, Any]) -> list[Plot]:
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
