"""Builds the traffic section: lengths of prompts and outputs, and the gaps between arrivals."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.figures import histogram
from reports.frame.content import Plot, to_json
from reports.frame.decimate import Floats
from reports.frame.formats import phrase
from sim.units import show_number, time_scale


def workload(requests: pd.DataFrame) -> list[Plot]:
    """Three histograms of all requests that arrived, the rejected ones included."""
    prompts, outputs = (
        requests[name].to_numpy(float) for name in ("prompt_tokens", "output_tokens")
    )
    return [
        _lengths("prompts", "Prompt tokens", "input_tokens", "prompt_tokens", prompts),
        _lengths("outputs", "Output tokens", "output_tokens", "output_tokens", outputs),
        _gaps(requests["arrival_s"].to_numpy(float)),
    ]


MANY = 0.01
"""Share of requests of the longest length from which on a page says so, whatever the others are."""


def _lengths(name: str, title: str, definition: str, metric: str, values: Floats) -> Plot:
    values = values[np.isfinite(values)]
    if not values.size:
        return Plot(name, title, definition, "No request arrived.", None)
    drawn = histogram.figure(values, title=title.lower(), metric=metric, whole=True)
    caption = f"{phrase(values.size, 'count', 'requests')}: {_statistics(values, 'tokens')}."
    return Plot(name, title, definition, caption + _pile(values), to_json(drawn), kind="low")


def _pile(values: Floats) -> str:
    """A sentence about the bar at the right end, where many requests have the longest length, or
    more than in the bar before it."""
    if values.min() == values.max():
        return ""
    longest = values == values.max()
    share, counts = float(longest.mean()), histogram.binned(values, whole=True).counts
    if share < MANY and (len(counts) < 2 or longest.sum() <= max(1.0, float(counts[-2]))):
        return ""
    length = phrase(float(values.max()), "count", "tokens")
    return f" The bar at the right end: {phrase(share, 'share')} have the longest length, {length}."


def _gaps(arrivals: Floats) -> Plot:
    title = "Time between arrivals"
    gaps = np.diff(np.sort(arrivals[np.isfinite(arrivals)]))
    if not gaps.size:
        none = "Fewer than two requests arrived: there is no time between them."
        return Plot("gaps", title, "arrival_gaps", none, None)
    if not gaps.any():
        return Plot("gaps", title, "arrival_gaps", "All requests arrived at once.", None)
    longest = float(gaps.max())
    unit, factor = time_scale(longest)
    shown = gaps * factor
    drawn = histogram.figure(shown, title=f"time between arrivals ({unit})", metric="arrivals")
    caption = (
        f"{_statistics(shown, unit).capitalize()}; coefficient of variation "
        f"{show_number(float(gaps.std() / gaps.mean()))} (Poisson arrivals: 1)."
    )
    return Plot("gaps", title, "arrival_gaps", caption, to_json(drawn), kind="low")


def _statistics(values: Floats, unit: str) -> str:
    if values.min() == values.max():
        return f"all {phrase(float(values[0]), 'number', unit)}"
    p50, p99 = np.percentile(values, [50, 99])
    mean = phrase(float(values.mean()), "number", unit)
    return f"mean {mean}, p50 {show_number(float(p50))}, p99 {show_number(float(p99))}"
