"""Scales a trace: overlaid copies for more users, multiplied gaps for the same users in less time.

Times in seconds. Overlaying leaves a burst as long as it was recorded and adds others next to it;
multiplying gaps makes each burst denser and shorter. With twice the users the first is what comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.rng import stream
from sim.workload.traces.base import Trace

MOST = 10_000_000
"""Requests of an overlaid trace; the results of more take many gigabytes."""


def overlaid(trace: Trace, copies: float, seed: int) -> Trace:
    """So many copies of ``trace``, merged in order of arrival, the first request at 0.

    ``trace`` is sorted and begins at 0. Of ``copies`` (above 0), rounded up to N, copy k (from 0)
    is shifted by k/N of the recording's period, and what is then beyond its end comes at its
    start. The period is the span plus one mean gap, so that the rate is the same across the seam;
    of requests that all come at once it is 0. Of a fraction of a copy, which is the last one, that
    share of the requests is kept (rounded, at least one): those with the lowest of as many draws
    from the stream "overlay" under ``seed``, so a larger share keeps what a smaller one does. Of
    requests at one time those of earlier copies come first. Copies are of other users: their
    prompts have nothing in common. UsageError for more than ``MOST``.
    """
    if copies == 1:
        return trace
    requests = len(trace)
    if copies * requests > MOST:
        raise UsageError(
            f"an overlay of {copies:g} copies of {requests:,} requests is more than {MOST:,} "
            "requests; overlay fewer, or a part of the trace (its limit)"
        )
    number, whole = math.ceil(copies), math.floor(copies)
    period = _period(trace)
    rows, times = [], []
    for copy in range(number):
        kept = np.arange(requests)
        if copy == whole:
            kept = kept[_sample(requests, copies - whole, seed)]
        shifted = trace.arrivals[kept] + period * copy / number
        rows.append(kept)
        times.append(np.where(shifted < period, shifted, shifted - period) if copy else shifted)
    arrivals = np.concatenate(times)
    order = np.argsort(arrivals, kind="stable")
    arrivals = arrivals[order]
    merged = trace.taken(np.concatenate(rows)[order]).moved(arrivals - arrivals[0])
    if merged.blocks is None and merged.session_ids is None:
        return merged
    copy_of = np.repeat(np.arange(number), [len(kept) for kept in rows])[order]
    named = merged.session_ids
    if named is not None:
        named = np.where(named < 0, -1, named + copy_of * (int(named.max()) + 1))
    blocks = None if merged.blocks is None else merged.blocks.apart(copy_of)
    return replace(merged, blocks=blocks, session_ids=named)


def time_scale_to(trace: Trace, rate: float) -> float:
    """Factor of the gaps of ``trace`` with which ``rate`` requests arrive per second on average.

    UsageError for requests that all come at one time.
    """
    own = mean_rate(trace)
    if own is None:
        raise UsageError(
            "all requests of the trace come at one time: it has no rate that could be scaled"
        )
    return own / rate


def mean_rate(trace: Trace) -> float | None:
    """Requests per second: one over the mean gap; None if all come at one time."""
    span = float(trace.arrivals[-1] - trace.arrivals[0])
    return (len(trace) - 1) / span if span > 0 else None


def _period(trace: Trace) -> float:
    rate = mean_rate(trace)
    return 0.0 if rate is None else len(trace) / rate


def _sample(requests: int, share: float, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The requests that a share of a copy keeps."""
    draws = stream(seed, "overlay").random(requests)
    kept = np.zeros(requests, dtype=np.bool_)
    kept[np.argsort(draws, kind="stable")[: max(1, round(share * requests))]] = True
    return kept


@dataclass(frozen=True)
class TracePlay:
    """The changes to a trace before it is played, in this order.

    ``spread`` is the tick (s) of a clock that was too coarse: each arrival moves on by its share of
    a tick, drawn uniformly from the stream "arrivals" under ``seed``, and all are sorted again.
    ``busiest`` keeps the stretch of so many seconds in which most tokens arrive, and ``limit`` the
    first requests by arrival. ``overlay`` merges that many copies of them
    (``overlaid``), and ``requests`` keeps the first of what that gives. ``time_scale`` multiplies
    all gaps (0.25: four times as fast); ``rate``, requests per second on average, replaces it.
    """

    spread: float | None = None
    busiest: float | None = None
    limit: int | None = None
    overlay: float = 1.0
    requests: int | None = None
    time_scale: float = 1.0
    rate: float | None = None
    seed: int = 0

    def of(self, trace: Trace) -> Trace:
        """``trace`` with these changes, sorted by arrival, the first of them at 0."""
        trace = _sorted(trace)
        if self.spread is not None:
            shares = stream(self.seed, "arrivals").random(len(trace))
            trace = _sorted(trace.moved(trace.arrivals + self.spread * shares))
        kept = np.arange(len(trace))
        if self.busiest is not None:
            tokens = trace.prompt_tokens + trace.output_tokens
            kept = kept[busiest(trace.arrivals, tokens, self.busiest)]
        trace = trace.taken(kept[: self.limit])
        trace = overlaid(trace.moved(trace.arrivals - trace.arrivals[0]), self.overlay, self.seed)
        trace = trace.taken(np.arange(len(trace))[: self.requests])
        scale = self.time_scale if self.rate is None else time_scale_to(trace, self.rate)
        with np.errstate(over="ignore"):  # beyond all numbers: infinite, for the caller to see
            return trace.moved(trace.arrivals * scale)


def busiest(arrivals: NDArray[np.float64], tokens: NDArray[np.int64], length: float) -> slice:
    """The requests within the ``length`` seconds from one arrival on that bring most ``tokens``;
    the earliest of equals. ``arrivals`` are sorted."""
    ends = np.searchsorted(arrivals, arrivals + length, side="left")
    before = np.concatenate(([0], np.cumsum(tokens)))
    first = int(np.argmax(before[ends] - before[:-1]))
    return slice(first, int(ends[first]))


def _sorted(trace: Trace) -> Trace:
    return trace.taken(np.argsort(trace.arrivals, kind="stable"))
