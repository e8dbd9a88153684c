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


ACTIVATIONS = ("norms", "rotary", "sampling", "embedding", "quantise", "state update")
"""How the names of operators begin that read and write no weights, but activations."""


def bounds_of(summaries: Summaries) -> dict[str, Any] | None:
    """The means over repetitions of a variant: the shares ``bound_by`` of the busy time, the
    ``iteration_ms`` of a mean iteration by what they go to (``_spent``), and the sequences that
    decode in it, ``decode_batch``; of the first run the ``batches`` in flight, and the
    ``weights_bytes`` of a GPU and the ``kv_tokens`` of all caches, None where pools differ. None of
    a run that was observed, whose operators are not known."""
    details = [summary["infersim"] for summary in summaries]
    if not details or not all(own.get("bound_by") for own in details):
        return None
    own = details[0]
    caches, tokens = own.get("data_ranks", own["replicas"]), own["kv_cache"].get("tokens")
    decoding = [each["batch"]["mean_decode_batch"] for each in details]
    return {
        "bound_by": _mean([each["bound_by"] for each in details]),
        "iteration_ms": _mean([_spent(each) for each in details]),
        "decode_batch": math.fsum(map(float, filter(None, decoding))) / len(decoding),
        "batches": caches,
        "weights_bytes": own["memory"].get("weights_bytes"),
        "kv_tokens": None if tokens is None else tokens * caches,
    }


def _spent(own: Mapping[str, Any]) -> dict[str, float]:
    """The time (ms) of a mean iteration by what it goes to: the bounds, ``memory`` as ``weights``,
    ``kv`` and ``activations``; nothing where pools have iterations of different kinds."""
    whole, work = own["batch"]["mean_iteration_ms"], own.get("operators")
    if "pools" in own or not whole or not work:
        return {}
    reads = {"weights": 0.0, "kv": 0.0, "activations": 0.0}
    for name, each in work.items():
        activations = name.startswith(ACTIVATIONS)
        kind = "activations" if activations else "kv" if "attention" in name else "weights"
        reads[kind] += each["memory"]
    total, bounds = math.fsum(reads.values()), dict(own["bound_by"])
    memory = bounds.pop("memory", 0.0)
    spent = {kind: memory * part / total if total else 0.0 for kind, part in reads.items()}
    return {kind: float(whole * part) for kind, part in (bounds | spent).items()}


def _mean(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each entry, which counts as 0 where it is missing."""
    keys = dict.fromkeys(key for each in found for key in each)
    return {key: math.fsum(each.get(key) or 0.0 for each in found) / len(found) for key in keys}
