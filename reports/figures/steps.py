"""Turns plans and requests into series: states of the fleet as steps, counts in stretches.

Requests running and waiting, fill of the KV cache, and tokens, each over time, from the rows of
``timeseries`` (one per plan of one replica). Arrivals, completions and preemptions are counted
here, so that a page draws a few hundred bins whatever the run's length. Times in seconds since the
start, sizes in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from sim.growth.leaps import Leaps

Floats = npt.NDArray[np.float64]

LEVELS = ("running", "waiting", "kv_used_tokens", "kv_reserved_tokens")
"""The columns that are states of a replica, to be summed over the fleet."""

CACHED = ("kv_shared_tokens", "kv_idle_tokens")
"""States that only runs with a prefix cache have: tokens of the KV cache that several requests
hold, and that are cached but held by no request."""

RESERVED_END = "kv_reserved_end_tokens"
"""The reservation in the last iteration of a plan; ``kv_reserved_tokens`` is of the first."""


@dataclass(frozen=True, slots=True)
class Steps:
    """States of the fleet, each a step function.

    ``levels[name][i]`` is the sum over all replicas from ``time[i]`` until ``time[i + 1]``;
    ``time`` is strictly ascending, and the last value holds from the last time on.
    """

    time: Floats
    levels: dict[str, Floats]


@dataclass(frozen=True, slots=True)
class StepRates:
    """Tokens per second of the fleet: ``output[i]`` is the mean over ``edges[i]..edges[i + 1]``."""

    edges: Floats
    output: Floats
    prompt: Floats


def replica_count(timeseries: pd.DataFrame, requests: pd.DataFrame) -> int:
    """How many replicas the run shows: the highest index that appears, plus one; at least one."""
    seen = [frame["replica"].max() for frame in (timeseries, requests) if len(frame)]
    return max([1, *(int(highest) + 1 for highest in seen)])


def fleet_steps(timeseries: pd.DataFrame, requests: pd.DataFrame) -> Steps:
    """The fleet's states over time.

    A replica runs and holds what its plan says, and nothing between two plans; of a prefix cache it
    then keeps all that was used. A request waits
    from its arrival until it is first scheduled (from ``requests``: plans may last long, and many
    requests arrive meanwhile), and again after a preemption (from the plans).
    """
    names = (*LEVELS, *(name for name in CACHED if name in timeseries))
    if not len(timeseries):
        return Steps(np.empty(0), {name: np.empty(0) for name in names})
    accepted = requests[~requests["status"].isin(("rejected", "failed"))]
    times, changes = _queue_changes(accepted, len(names))
    for replica, plans in timeseries.groupby("replica", sort=True):
        time, levels = _replica_steps(plans, accepted[accepted["replica"] == replica], names)
        times.append(time)
        changes.append(np.diff(levels, axis=1, prepend=0.0))
    time = np.concatenate([[0.0], *times])
    order = np.argsort(time, kind="stable")
    time = time[order]
    change = np.concatenate([np.zeros((len(names), 1)), *changes], axis=1)[:, order]
    settled = np.append(time[1:] != time[:-1], True)  # of simultaneous changes only the outcome
    total = np.cumsum(change, axis=1)[:, settled]
    return Steps(time[settled], dict(zip(names, total, strict=True)))


def _queue_changes(accepted: pd.DataFrame, levels: int) -> tuple[list[Floats], list[Floats]]:
    """One up at each arrival and one down when a request is first scheduled, with their times."""
    arrivals, leaves = _queue_events(accepted)
    change = np.zeros((levels, arrivals.size + leaves.size))
    change[1] = np.repeat([1.0, -1.0], [arrivals.size, leaves.size])
    return [np.concatenate([arrivals, leaves])], [change]


def _replica_steps(
    plans: pd.DataFrame, accepted: pd.DataFrame, names: tuple[str, ...]
) -> tuple[Floats, Floats]:
    """Times (n,) and levels (names, n) of one replica; of the waiting only those that ran
    before."""
    plans = plans.sort_values("start_s", kind="stable")
    start, end = plans["start_s"].to_numpy(float), plans["end_s"].to_numpy(float)
    levels = plans[list(names)].to_numpy(float).T.copy()
    arrivals, leaves = _queue_events(accepted)
    queued = np.searchsorted(arrivals, start, "right") - np.searchsorted(leaves, start, "right")
    levels[1] = np.maximum(levels[1] - queued, 0.0)
    levels[2] += Leaps.saved(plans).gained().astype(float) / 2  # the plan's mean
    if RESERVED_END in plans:  # runs of older versions lack it
        levels[3] = (levels[3] + plans[RESERVED_END].to_numpy(float)) / 2
    levels[3] = np.maximum(levels[2], levels[3])
    rests = np.append(start[1:] > end[:-1], True)
    nothing = np.zeros((len(names), int(rests.sum())))
    if len(names) > len(LEVELS):
        nothing[5] = levels[5, rests] + levels[2, rests]
    time = np.concatenate([end[rests], start])
    order = np.argsort(time, kind="stable")
    return time[order], np.concatenate([nothing, levels], axis=1)[:, order]


def _queue_events(accepted: pd.DataFrame) -> tuple[Floats, Floats]:
    """When these requests arrived, and when they were first scheduled, each ascending."""
    arrivals = accepted["arrival_s"].to_numpy(float)
    leaves = accepted["scheduled_s"].to_numpy(float)
    return np.sort(arrivals[np.isfinite(arrivals)]), np.sort(leaves[np.isfinite(leaves)])


def token_rates(timeseries: pd.DataFrame, requests: pd.DataFrame, width: float) -> StepRates:
    """Tokens per second, averaged over bins ``width`` seconds long.

    Output: one token per decoding sequence and iteration, spread evenly over the plan, plus the
    first token of each request. Prompt: the tokens prefilled, spread evenly over the plan.
    """
    start = timeseries["start_s"].to_numpy(float)
    end = timeseries["end_s"].to_numpy(float)
    finish = end.max() if end.size else 0.0
    bins = max(1, int(np.ceil(round(finish / width, 9))))
    edges = (np.arange(bins + 1) * width).astype(np.float64)
    iterations = timeseries["iterations"].to_numpy(float)
    output = spread(start, end, Leaps.saved(timeseries).tokens().astype(float), edges)
    first = requests["first_token_s"].to_numpy(float)
    output += np.histogram(first[np.isfinite(first)], bins=edges)[0]
    prefilled = timeseries["prefill_tokens"].to_numpy(float) * iterations
    prompt = spread(start, end, prefilled, edges)
    lengths = np.minimum(edges[1:], max(finish, width / 1e6)) - edges[:-1]
    return StepRates(edges, output / lengths, prompt / lengths)


def nice_width(duration: float, bins: int) -> float:
    """The shortest of 1, 2, 5, 10, ... (and 0.5, 0.2, ...) seconds that makes at most ``bins``.

    >>> nice_width(900.0, 300), nice_width(0.0, 300)
    (5.0, 1.0)
    """
    if duration <= 0:
        return 1.0
    smallest = duration / bins
    power = 10.0 ** np.floor(np.log10(smallest))
    return float(next(f * power for f in (1, 2, 5, 10) if f * power >= smallest * (1 - 1e-9)))


def spread(start: Floats, end: Floats, amount: Floats, edges: Floats) -> Floats:
    """``amount[i]`` laid evenly over ``start[i]..end[i]`` and collected in bins."""
    lasting = end > start
    per_second = amount[lasting] / (end[lasting] - start[lasting])
    time = np.concatenate([start[lasting], end[lasting]])
    order = np.argsort(time, kind="stable")
    time = time[order]
    rate = np.cumsum(np.concatenate([per_second, -per_second])[order])
    collected = np.zeros(edges.size)
    if time.size:
        total = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(time))])
        collected = np.interp(edges, time, total)
    moments = np.histogram(start[~lasting], bins=edges, weights=amount[~lasting])[0]
    spread: Floats = np.maximum(np.diff(collected) + moments, 0.0)
    return spread


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
