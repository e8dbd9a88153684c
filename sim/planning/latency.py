"""Averages the parts of latency over all requests and over the slowest, in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.metrics.latency_parts import PARTS, TTFT_PARTS, latency_parts
from sim.metrics.run_record import RunRecord

Means = Mapping[str, float]

SLOWEST = 0.01
"""Share of the requests that counts as the slowest: those beyond the p99."""


def mean_parts(run: RunRecord) -> dict[str, Means]:
    """The mean parts of ``ttft`` and ``e2el`` of the requests that count, and of those whose TTFT
    and E2EL are the longest (``slowest_ttft``, ``slowest_e2el``); empty if no request counts."""
    counted = run.completed & ~run.warmup
    if not counted.any():
        return {}
    parts = latency_parts(run)
    found: dict[str, Means] = {}
    for name, latency, of in (("ttft", run.ttft, TTFT_PARTS), ("e2el", run.e2el, PARTS)):
        limit = np.quantile(latency[counted], 1 - SLOWEST)
        slowest = counted & (latency >= limit)
        found[name] = {part: 1e3 * float(parts[part][counted].mean()) for part in of}
        found[f"slowest_{name}"] = {part: 1e3 * float(parts[part][slowest].mean()) for part in of}
    return found
