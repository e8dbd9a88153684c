"""Matches a published metric with the one of a prediction. Seconds, and rates per second."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from calibrate.scoring.conditions import Conditions
from calibrate.scoring.names import Unrepresentable
from calibrate.scoring.table import Row

Quantity = Literal["throughput", "ttft", "tpot", "itl", "e2el"]

UNITS = {
    "ms": 1e-3,
    "s": 1.0,
    "us": 1e-6,
    "tok/s": 1.0,
    "out_tok/s": 1.0,
    "out_tok/s/gpu": 1.0,
    "tok/s/gpu": 1.0,
    "req/s": 1.0,
    "samples/s": 1.0,
}

_LATENCY = re.compile(
    r"(?P<what>ttft|tpot|itl|e2el|e2e|e2e_latency|latency)_(?P<rank>mean|median|p\d\d|central)"
)

_THROUGHPUT = {
    "output_throughput": "output_throughput",
    "total_throughput": "total_token_throughput",
    "total_token_throughput": "total_token_throughput",
    "request_throughput": "request_throughput",
    "samples_per_s": "request_throughput",
}


class ScoredFigure(NamedTuple):
    """A published metric: what kind it is, the key of the summary that predicts it, and what the
    summary's value is multiplied with (summaries have milliseconds)."""

    quantity: Quantity
    key: str
    factor: float


def figure(row: Row, known: Conditions) -> ScoredFigure:
    """How the metric of ``row`` is predicted. Raises Unrepresentable if it is not."""
    metric = row["metric"].lower()
    if row["unit"].lower() not in UNITS:
        raise Unrepresentable(f"the unit {row['unit']} of {metric} is not one that is predicted")
    if not row.value > 0:
        raise Unrepresentable(f"{row['value']!r} is no positive figure")
    if metric == "first_token_latency":
        return ScoredFigure("ttft", "mean_ttft_ms", 1e-3)
    if metric == "decode_tokens_per_s":
        return ScoredFigure("throughput", "decode_rate", 1.0)
    per_gpu = metric.endswith("_per_gpu") and not known.whole_system
    name = metric.removesuffix("_per_gpu")
    if name in _THROUGHPUT:
        return ScoredFigure("throughput", _THROUGHPUT[name], 1 / known.gpus if per_gpu else 1.0)
    found = _LATENCY.match(metric)
    if found is None:
        raise Unrepresentable(f"{metric} is not predicted")
    return _latency(found["what"], found["rank"])


def _latency(what: str, rank: str) -> ScoredFigure:
    quantity: Quantity = "e2el" if what in ("e2e", "e2e_latency", "latency") else what  # type: ignore[assignment]
    order = "mean" if rank == "central" else rank
    return ScoredFigure(quantity, f"{order}_{quantity}_ms", 1e-3)


def measured(row: Row) -> float:
    """The published value in seconds, or per second."""
    return row.value * UNITS[row["unit"].lower()]


def predicted(found: ScoredFigure, summary: Mapping[str, Any]) -> float | None:
    """The predicted value in seconds, or per second; None if nothing of the kind happened."""
    value = summary.get(found.key)
    return None if value is None else float(value) * found.factor
