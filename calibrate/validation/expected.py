"""Predicts the times of the iterations that were observed, with the cost model.

It times their own composition, so that what differs is the cost model's doing and not that of
another order of batches. Seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from calibrate.validation.iterations import Floats, ObservedIterations
from sim.cost import CostModel, Deployment
from sim.iteration import Batch, Part


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """One entry for each iteration.

    ``seconds`` is the whole predicted time, ``kernels`` that of an engine whose host takes no time.
    The parts: ``growth`` is what everything that depends on the tokens in the pass takes beyond a
    pass of one token, then the two attentions; ``sequences`` positions are sampled, ``prompts`` are
    prefilled, ``admitted`` requests are new. What is left of ``kernels`` is nearly the same for all
    iterations.
    """

    seconds: Floats
    kernels: Floats
    growth: Floats
    decode_attention: Floats
    prefill_attention: Floats
    sequences: Floats
    prompts: Floats
    admitted: Floats


def expect(iterations: ObservedIterations, deployment: Deployment) -> Expected:
    """The predicted times of ``iterations`` in ``deployment``."""
    cost = CostModel(deployment)
    bare = CostModel(without_host(deployment))
    batches = list(_batches(iterations, len(deployment.model.windows)))
    columns = cost.columns(batches)
    growth, decode = np.zeros(len(batches)), np.zeros(len(batches))
    for ran in cost.operators(columns):
        if ran.by == "tokens":
            growth += ran.each(ran.operator.seconds)
        elif ran.by == "decodes":
            decode += ran.each(ran.operator.seconds)
    growth -= _one_token(cost)
    return Expected(
        seconds=np.array([cost.seconds(batch) for batch in batches]),
        kernels=np.array([bare.seconds(batch) for batch in batches]),
        growth=np.where(columns.tokens > 0, growth, 0.0),
        decode_attention=np.where(columns.sequences > 0, decode, 0.0),
        prefill_attention=columns.prefill_attention,
        sequences=columns.outputs.astype(np.float64),
        prompts=columns.prompts.astype(np.float64),
        admitted=iterations.admitted.astype(np.float64),
    )


def without_host(deployment: Deployment) -> Deployment:
    """``deployment`` under an engine whose host needs no time between passes; kernel launches stay,
    since they belong to the pass."""
    idle = replace(
        deployment.engine,
        per_iteration=0.0,
        per_sequence=0.0,
        per_new_request=0.0,
        per_streamed_token=0.0,
        overlapped=False,
    )
    return replace(deployment, engine=idle)


def _batches(iterations: ObservedIterations, windows: int) -> Iterator[Batch]:
    """What is seen through that many ``windows`` is as it was observed, if it is known."""
    columns = (iterations.sequences, iterations.context, iterations.admitted)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    known = zip(iterations.prefills, iterations.seen, strict=True)
    for (sequences, context, admitted), (prefills, seen) in zip(rows, known, strict=True):
        parts = [Part(part.tokens, part.before) for part in prefills]
        yield Batch(sequences, context, parts, admitted, seen if len(seen) == windows else ())


def _one_token(cost: CostModel) -> float:
    """Seconds of a pass of one token that depend on the tokens in it."""
    alone = cost.operators(cost.columns([Batch(1, 0)]))
    return sum(float(ran.each(ran.operator.seconds)[0]) for ran in alone if ran.by == "tokens")
