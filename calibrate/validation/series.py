"""Provides what is drawn of a validation: every iteration, and every gap between tokens.

Plain columns. Seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrate.validation.document import Validation
from calibrate.validation.iterations import Floats
from calibrate.validation.observed import ObservedRun
from calibrate.validation.regimes import NAMES, regime_of
from sim.metrics.latency.gaps import Gaps

MOST_GAPS = 200_000
"""Of more gaps evenly spaced ones of their order are kept."""


def series(validation: Validation) -> dict[str, Any]:
    """``iterations``: their start, duration, predicted time and regime (None if not recorded);
    ``itl``: gaps between tokens of both sides, ascending, each with how many saw it."""
    run, expected = validation.run, validation.expected
    iterations = None
    if run.iterations is not None and expected is not None:
        places = regime_of(run.iterations)
        iterations = {
            "start": run.iterations.start.tolist(),
            "observed": run.iterations.duration.tolist(),
            "predicted": expected.seconds.tolist(),
            "regime": [NAMES[place] for place in places],
            "regimes": list(NAMES),
        }
    record = validation.predicted.result.record
    gaps = Gaps.recorded(record.plans, record.gaps)
    predicted = gaps.written_out() if len(gaps) else (np.zeros(0), np.zeros(0))
    ours = observed_gaps(run)
    return {
        "iterations": iterations,
        "itl": {
            "observed": None if ours is None else _thinned(np.sort(ours), np.ones(len(ours))),
            "predicted": _thinned(*predicted),
        },
    }


def observed_gaps(run: ObservedRun) -> Floats | None:
    """Every gap between two tokens of a request; None where it was not recorded which request got
    which.
    """
    iterations = run.iterations
    if iterations is None or iterations.decodes is None or "first_token_s" not in run.requests:
        return None
    if iterations.decode.any() and not any(iterations.decodes):
        return None
    ids = run.requests["request_id"].tolist()
    prompts = dict(zip(ids, run.requests["prompt_tokens"].tolist(), strict=True))
    last: dict[int, float] = {}
    tokens = dict.fromkeys(ids, 0)
    gaps = []
    ends = iterations.end.tolist()
    for end, parts, decodes in zip(ends, iterations.prefills, iterations.decodes, strict=True):
        complete = [
            p.request
            for p in parts
            if p.request in prompts
            and p.before + p.tokens >= prompts[p.request] + tokens[p.request]
        ]
        for request in (*complete, *decodes):
            if request in last:
                gaps.append(end - last[request])
            last[request] = end
            tokens[request] = tokens.get(request, 0) + 1
    return np.array(gaps)


def _thinned(values: Floats, weights: Floats) -> dict[str, list[float]]:
    """Columns of at most ``MOST_GAPS`` values; a value stands for those left out before it."""
    step = -(-len(values) // MOST_GAPS) or 1
    if step > 1:
        starts = np.arange(0, len(values), step)
        weights = np.add.reduceat(weights, starts)
        values = values[np.minimum(starts + step - 1, len(values) - 1)]
    return {"values": values.tolist(), "weights": weights.tolist()}
