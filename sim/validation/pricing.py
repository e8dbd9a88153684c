"""Predicts the times of the iterations that were observed, with the cost model.

It times their own composition, so that what differs is the cost model's doing and not that of
another order of batches. Seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sim.cost import CostModel, Deployment
from sim.plans import Chunk
from sim.request import Request
from sim.validation.iterations import Floats, Iterations


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
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


def priced(iterations: Iterations, deployment: Deployment) -> Prices:
    """The predicted times of ``iterations`` in ``deployment``."""
    cost = CostModel(deployment)
    bare = CostModel(without_host(deployment))
    whole, kernels, prefill = [], [], []
    for sequences, context, chunks, admitted in _plans(iterations):
        whole.append(_seconds(cost, sequences, context, chunks, admitted))
        kernels.append(_seconds(bare, sequences, context, chunks, admitted))
        prefill.append(cost.attention.prefill_seconds(chunks, sequences)[0] if chunks else 0.0)
    computed = iterations.computed.astype(np.float64)
    tokens = computed + iterations.prefill_tokens
    decode = cost.attention.decode(computed, iterations.context.astype(np.float64))
    return Prices(
        seconds=np.array(whole),
        kernels=np.array(kernels),
        growth=_per_token(cost, tokens) - _per_token(cost, np.ones(1)),
        decode_attention=np.where(computed > 0, decode.seconds, 0.0),
        prefill_attention=np.array(prefill),
        sequences=computed + iterations.prefill_seqs,
        prompts=iterations.prefill_seqs.astype(np.float64),
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


def _plans(iterations: Iterations) -> Iterator[tuple[int, int, list[Chunk], int]]:
    computed, context = iterations.computed.tolist(), iterations.context.tolist()
    admitted = iterations.admitted.tolist()
    nobody = Request(-1, 0.0, 1, 1)
    for number, parts in enumerate(iterations.prefills):
        chunks = [Chunk(nobody, part.tokens, part.before) for part in parts]
        yield computed[number], context[number], chunks, admitted[number]


def _seconds(
    cost: CostModel, sequences: int, context: int, chunks: list[Chunk], admitted: int
) -> float:
    if chunks:
        return cost.iteration(sequences, context, chunks, admitted)[0]
    if not sequences:
        return 0.0
    _, intercept, slope = cost.decode_line(sequences, context)
    return intercept + slope * context


def _per_token(cost: CostModel, tokens: Floats) -> Floats:
    sizes, places = np.unique(np.maximum(tokens, 1.0), return_inverse=True)
    total = np.zeros(len(sizes))
    for operator in cost.operators.per_token(sizes):
        total += operator.seconds
    found: Floats = total[places]
    return found
