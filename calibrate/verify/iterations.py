"""Computes the relative error of each iteration's predicted time, by kind of iteration.

The times of the engine's own batches are predicted, so that neither queueing nor a different order
has a part in it: what remains is the error of the cost model.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

import numpy as np

from calibrate.engine.observed import Observed
from sim.cost import CostModel
from sim.cost.recorded import seconds_of
from sim.scenario import Scenario
from sim.setup import prepare


def compare(observed: Observed, scenario: Scenario) -> dict[str, Any]:
    """For iterations of decodes alone, and for those with prompts: the error of the predicted time
    (median of its size, 90th percentile, median with the sign kept), how many there were, their
    share of the time, and the error of their sum."""
    cost = prepare(scenario).only.cost
    errors: dict[str, list[float]] = {"decode": [], "prefill": []}
    took = {"decode": 0.0, "prefill": 0.0}
    predicted = {"decode": 0.0, "prefill": 0.0}
    for iteration, expected in zip(observed.iterations, predictions(observed, cost), strict=True):
        kind = "prefill" if iteration.prefills else "decode"
        seconds = iteration.end - iteration.start
        errors[kind].append(expected / seconds - 1)
        took[kind] += seconds
        predicted[kind] += expected
    total = sum(took.values())
    return {
        kind: {
            **_summary(found),
            "iterations": len(found),
            "share": took[kind] / total,
            "sum": predicted[kind] / took[kind] - 1,
        }
        for kind, found in errors.items()
        if found
    }


def predictions(observed: Observed, cost: CostModel) -> list[float]:
    """What ``cost`` predicts for each iteration of a run."""
    plans = observed.record.plans
    prompts = [[part[1:] for part in iteration.prefills] for iteration in observed.iterations]
    return seconds_of(cost, plans, np.arange(len(plans)), prompts, plans["admitted"].tolist())


def _summary(errors: Sequence[float]) -> dict[str, float]:
    sizes = [abs(error) for error in errors]
    p90 = sizes[0] if len(sizes) == 1 else quantiles(sizes, n=10, method="inclusive")[-1]
    return {"median": median(sizes), "p90": p90, "bias": median(errors)}
