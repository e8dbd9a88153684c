"""Counts arrivals, completions, preemptions and tokens in equal stretches of a run.

Everything is counted in Python, so that a page draws a few hundred bins whatever the run's length.
Times in seconds since the start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from reports.figures.steps import Floats, spread


class PerIteration(NamedTuple):
    """Tokens in an iteration, bin by bin: the mean over its iterations and the most in any."""

    mean: Floats
    most: Floats


def happened(times: npt.ArrayLike, edges: Floats) -> Floats:
    """How many of ``times`` lie in each bin; what is not finite is left out."""
    values = np.asarray(times, dtype=float)
    counted: Floats = np.histogram(values[np.isfinite(values)], bins=edges)[0].astype(np.float64)
    return counted


def rate(times: npt.ArrayLike, edges: Floats, until: float) -> Floats:
    """The numbers per second; the last bin counts only up to ``until``, when the run ended."""
    ends = np.minimum(edges[1:], max(until, edges[-2] + (edges[-1] - edges[-2]) * 1e-6))
    per_second: Floats = happened(times, edges) / (ends - edges[:-1])
    return per_second


def preempted(timeseries: pd.DataFrame, edges: Floats) -> Floats | None:
    """Preemptions in each bin; None where they were not recorded."""
    counts = timeseries["preemptions"].to_numpy(float)
    if not np.isfinite(counts).any():
        return None
    weights = np.nan_to_num(counts)
    found = np.histogram(timeseries["start_s"].to_numpy(float), bins=edges, weights=weights)[0]
    return np.asarray(found, dtype=np.float64)


def per_iteration(timeseries: pd.DataFrame, column: str, edges: Floats) -> PerIteration:
    """``column`` (tokens of one iteration of a plan), over the iterations in each bin that have
    any; 0 where none has.
    """
    start, end = (timeseries[name].to_numpy(float) for name in ("start_s", "end_s"))
    amount = np.nan_to_num(timeseries[column].to_numpy(float))
    times = timeseries["iterations"].to_numpy(float) * (amount > 0)
    ran = spread(start, end, times, edges)
    tokens = spread(start, end, times * amount, edges)
    some = ran > 1e-9 * max(1.0, float(ran.max(initial=0.0)))  # the rest is rounding
    mean = np.divide(tokens, ran, out=np.zeros_like(ran), where=some)
    return PerIteration(mean, np.where(some, _most(start, end, amount, edges), 0.0))


def _most(start: Floats, end: Floats, amount: Floats, edges: Floats) -> Floats:
    """The largest ``amount`` of what touches each bin; a long plan touches many."""
    bins = len(edges) - 1
    first = np.clip(np.searchsorted(edges, start, "right") - 1, 0, bins - 1)
    last = np.maximum(np.clip(np.searchsorted(edges, end, "left") - 1, 0, bins - 1), first)
    touched = last - first + 1
    before = np.cumsum(touched) - touched
    place = np.arange(int(touched.sum())) + np.repeat(first - before, touched)
    most = np.zeros(bins)
    np.maximum.at(most, place, np.repeat(amount, touched))
    return most
