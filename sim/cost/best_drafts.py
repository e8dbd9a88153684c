"""Finds with how many drafts a batch of each size makes most tokens a second, as predicted."""

from __future__ import annotations

from sim.cost.model import CostModel
from sim.iteration import Batch, PassConditions
from sim.specs.deployment import Deployment

CONTEXT = 8192
"""Tokens of context of each request at which drafts are weighed: those at which vLLM 0.32 times
its passes for adaptive verification (``VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN``)."""


def best_by_batch(d: Deployment, most: int, longest: int) -> tuple[int, ...]:
    """Drafts for batches of 1 to ``most`` requests of up to ``longest`` tokens, of those that the
    speculation of ``d`` may make.

    Weighed as vLLM's adaptive verification weighs its budget, the expected tokens over the time of
    drafting and checking, but with as many drafts for each request, whatever the drafter is sure
    of.
    """
    assert d.speculation is not None
    given = d.speculation
    cost, context = CostModel(d), min(CONTEXT, longest)

    def best(running: int) -> int:
        batch = Batch(running, running * context)
        rates = [
            given.length_of(drafts)
            / cost.under(PassConditions(drafts=(drafts, drafts))).seconds(batch)
            for drafts in range(given.num_tokens + 1)
        ]
        return rates.index(max(rates))

    return tuple(best(running) for running in range(1, most + 1))
