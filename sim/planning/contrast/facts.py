"""Gathers what a comparison says of a variant in addition to its figures, from its runs' summaries.

Times in seconds, dollars an hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.fleet.drain import mean_while_arriving
from sim.metrics.load.busiest import busiest_of

Summaries = Sequence[Mapping[str, Any]]


def facts_of(summaries: Summaries) -> dict[str, Any]:
    """Further entries of a variant, those alone that its runs know: the fullest replica where the
    router deals unevenly, rates while requests came (``mean_while_arriving``), what bounds it
    (``bounds_of``), and dollars an hour."""
    found = {
        "busiest_replica": busiest_of([each["infersim"]["verdict"] for each in summaries]),
        "while_arriving": mean_while_arriving(summaries),
        "bounds": bounds_of(summaries),
        "hourly_usd": _hourly(summaries),
    }
    return {key: value for key, value in found.items() if value is not None}


def _hourly(summaries: Summaries) -> float | None:
    """The mean cost of an hour of the runs; None where the price of a GPU is not known."""
    rates = [
        cost["usd"] / each["duration"] * 3600
        for each in summaries
        if (cost := each["infersim"].get("cost")) and each["duration"]
    ]
    known = len(rates) == len(summaries) > 0
    return math.fsum(rates) / len(rates) if known else None


def bounds_of(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The means over repetitions of a variant: the shares ``bound_by`` of the busy time, and of the
    first the ``weights_bytes`` of a GPU and the ``kv_tokens`` of all caches, None where pools
    differ; None of a run that was observed, whose operators are not known."""
    details = [summary["infersim"] for summary in summaries]
    if not details or not all(own.get("bound_by") for own in details):
        return None
    own, shares = details[0], [each["bound_by"] for each in details]
    caches, tokens = own.get("data_ranks", own["replicas"]), own["kv_cache"].get("tokens")
    keys = dict.fromkeys(key for each in shares for key in each)
    return {
        "bound_by": {
            key: math.fsum(each.get(key) or 0.0 for each in shares) / len(shares) for key in keys
        },
        "weights_bytes": own["memory"].get("weights_bytes"),
        "kv_tokens": None if tokens is None else tokens * caches,
    }
