"""Computes the relative error of each iteration's predicted time, by kind of iteration.

The times of the engine's own batches are predicted, so that neither queueing nor a different order
has a part in it: what remains is the error of the cost model.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from calibrate.engine.log import Iteration
from calibrate.engine.observed import Observed
from sim.cost import CostModel
from sim.plans import Chunk
from sim.request import Request
from sim.scenario import Scenario
from sim.simulation import prepare


def compare(observed: Observed, scenario: Scenario) -> dict[str, Any]:
    """Of iterations of decodes alone, and of those with prompts: the error of the predicted time
    (median of its size, 90th percentile, median with the sign kept), how many there were, their
    share of the time, and the error of their sum."""
    cost = CostModel(prepare(scenario).deployment)
    errors: dict[str, list[float]] = {"decode": [], "prefill": []}
    took = {"decode": 0.0, "prefill": 0.0}
    priced = {"decode": 0.0, "prefill": 0.0}
    for iteration, row in zip(observed.iterations, observed.record.plans, strict=True):
        kind = "prefill" if iteration.prefills else "decode"
        seconds = iteration.end - iteration.start
        composition = (int(row[name]) for name in ("computed", "context", "admitted"))
        price = price_of(cost, iteration, *composition)
        errors[kind].append(price / seconds - 1)
        took[kind] += seconds
        priced[kind] += price
    total = sum(took.values())
    return {
        kind: {
            **_summary(found),
            "iterations": len(found),
            "share": took[kind] / total,
            "sum": priced[kind] / took[kind] - 1,
        }
        for kind, found in errors.items()
        if found
    }


def price_of(
    cost: CostModel, iteration: Iteration, computed: int, context: int, admitted: int
) -> float:
    """The predicted time of ``iteration``, s."""
    if not iteration.prefills:
        _, intercept, slope = cost.decode_line(computed, context)
        return intercept + slope * context
    chunks = [
        Chunk(Request(request, 0.0, tokens, 1), tokens, at)
        for request, at, tokens in iteration.prefills
    ]
    return cost.iteration(computed, context, chunks, admitted)[0]


def _summary(errors: Sequence[float]) -> dict[str, float]:
    sizes = [abs(error) for error in errors]
    p90 = sizes[0] if len(sizes) == 1 else quantiles(sizes, n=10, method="inclusive")[-1]
    return {"median": median(sizes), "p90": p90, "bias": median(errors)}
