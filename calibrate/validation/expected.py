"""Predicts the times of the iterations that were observed, with the cost model.

It times their own composition, so that what differs is the cost model's doing and not that of
another order of batches. Seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrate.validation.iterations import Floats, ObservedIterations
from sim.cost import CostModel, Deployment
from sim.cost.recorded import remade
from sim.iteration import Batch


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
    bare = CostModel(replace(deployment, engine=deployment.engine.without_host()))
    batches = _batches(iterations, len(deployment.model.windows))
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


def _batches(iterations: ObservedIterations, windows: int) -> list[Batch]:
    """Batches of the iterations; reads through that many ``windows`` are as observed, if known."""
    columns = (iterations.sequences, iterations.context, iterations.admitted)
    sequences, context, admitted = (column.tolist() for column in columns)
    prompts = [[part[1:] for part in parts] for parts in iterations.prefills]
    seen = [each if len(each) == windows else () for each in iterations.seen]
    return remade(sequences, context, prompts, admitted, seen)


def _one_token(cost: CostModel) -> float:
    """Seconds of a pass of one token that depend on the tokens in it."""
    alone = cost.operators(cost.columns(remade([1], [0], [()], [0], [()])))
    return sum(float(ran.each(ran.operator.seconds)[0]) for ran in alone if ran.by == "tokens")
