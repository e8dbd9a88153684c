"""Matches a published metric with the one of a prediction. Seconds, and rates per second."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from calibrate.published_names import Unrepresentable
from calibrate.scoring.conditions import Conditions
from calibrate.scoring.table import UNITS, Row
from sim import catalog
from sim.errors import did_you_mean
from sim.specs.precision import precision_bytes

Quantity = Literal[
    "throughput", "ttft", "tpot", "itl", "e2el", "running", "bandwidth", "power", "energy"
]

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


DECODE_RATE, STEADY_RATE, STEADY_RUNNING = "decode_rate", "steady_rate", "steady_running"
"""Figures that a summary lacks: tokens per second of one request once it decodes; while all clients
are busy, output tokens per second and the mean number of running requests."""

STEADY_POWER, STEADY_ENERGY = "steady_power", "steady_energy"
"""Power (W, of all GPUs) and energy (J for an output token) while all clients are busy."""

WHOLE_ENERGY = "joules_per_output_token"
"""J for an output token over a whole run."""


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
        raise Unrepresentable(f"the unit {row['unit']!r} of {metric} is none of {', '.join(UNITS)}")
    if not 0 < row.value < math.inf:
        raise Unrepresentable(f"{row['value']!r} is no positive figure")
    if (single := _single(metric, known) or _drawn(metric, known)) is not None:
        return single
    per_gpu = metric.endswith("_per_gpu")
    name = metric.removesuffix("_per_gpu")
    if name == "output_throughput" and known.steady:
        return ScoredFigure("throughput", STEADY_RATE, 1 / known.gpus if per_gpu else 1.0)
    if name in _THROUGHPUT:
        return ScoredFigure("throughput", _THROUGHPUT[name], 1 / known.gpus if per_gpu else 1.0)
    found = _LATENCY.match(metric)
    if found is None:
        raise Unrepresentable(f"{metric} is not predicted{_known_ones(metric)}")
    return _latency(found["what"], found["rank"])


def _known_ones(metric: str) -> str:
    """The nearest metric that is predicted, and which there are."""
    latencies = [f"{what}_{rank}" for what in ("ttft", "tpot", "itl", "e2el") for rank in RANKS]
    known = [*latencies, *_THROUGHPUT]
    turned = "_".join(reversed(metric.removesuffix("_ms").split("_")))  # as in a run's summary
    nearest = did_you_mean(metric, known) or did_you_mean(turned, known)
    return f"{nearest}; times are ttft, tpot, itl and e2el with {', '.join(RANKS)}, rates " + (
        ", ".join(_THROUGHPUT)
    )


RANKS = ("mean", "median", "p50", "p90", "p95", "p99")
"""The statistics commonly published of a latency."""


def _single(metric: str, known: Conditions) -> ScoredFigure | None:
    """How a metric is predicted that one publisher alone has; None for any other."""
    if metric == "first_token_latency":
        return ScoredFigure("ttft", "mean_ttft_ms", 1e-3)
    if metric == "decode_tokens_per_s":
        return ScoredFigure("throughput", DECODE_RATE, 1.0)
    if metric == "achieved_bandwidth":
        return ScoredFigure("bandwidth", DECODE_RATE, _weights_of_one_gpu(known))
    if metric == "running_mean":
        return ScoredFigure("running", STEADY_RUNNING, 1.0)
    if metric == "scheduled_rate":
        raise Unrepresentable(f"{metric} is a condition of the measurement, not a result")
    return None


def _drawn(metric: str, known: Conditions) -> ScoredFigure | None:
    """How the power or the energy of GPUs is predicted; None for any other metric."""
    if metric == "power_all_gpus" and known.steady:
        return ScoredFigure("power", STEADY_POWER, 1.0)
    if metric == "energy_per_output_token":
        return ScoredFigure("energy", STEADY_ENERGY if known.steady else WHOLE_ENERGY, 1.0)
    return None


def _weights_of_one_gpu(known: Conditions) -> float:
    """Bytes of weights that one GPU reads for a token, as gpt-fast counts them: its share of the
    layers and the whole LM head, both in the weights' format, and no embedding. Raises
    Unrepresentable for a model with experts."""
    model = catalog.model(known.model)
    if model.has_experts:
        raise Unrepresentable("which experts count as read is not stated")
    head, embedding = model.head_parameters(), model.embedding_parameters()
    layers = model.weight_bytes(known.weights) - (head + embedding) * precision_bytes("bf16")
    (pool,) = known.document["fleet"]
    return float(layers / pool["tensor_parallel"] + head * precision_bytes(known.weights))


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
