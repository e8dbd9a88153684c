"""Sums up what speculation brought: drafts, how many were accepted, and with how many it pays.

Whether it pays is asked of the cost model that timed the run: the tokens a second of a batch with
drafts over those of the same batch without. Small batches wait for weights, which a pass reads once
however many tokens are checked; large ones compute, and rejected drafts are computed in vain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.cost import CostModel
from sim.growth.leaps import ACCEPTED, DELIVERED
from sim.iteration import Batch
from sim.metrics.run_record import RunRecord
from sim.units import number

if TYPE_CHECKING:
    from sim.pools import PreparedPool


def speculation(run: RunRecord) -> dict[str, Any]:
    """The entry ``speculation`` of a summary; nothing where no tokens were drafted.

    ``drafts`` are rounds of drafting that were checked, one of each decoding sequence and
    iteration, ``draft_tokens`` the tokens in them and ``accepted_tokens`` those that were right;
    ``acceptance_length`` is 1 + accepted tokens over drafts, all as vLLM counts them.
    ``tokens_per_iteration`` are those that a decoding batch got of an iteration; tokens of a last
    draft that go beyond the end of an answer are accepted and not delivered. ``speedups`` has the
    tokens a second by the number that decode, over those without drafts, with ``context`` tokens
    each, as in the run; ``pays_up_to`` is the largest number with which that is above 1.
    """
    pool, *_ = run.pools
    plans = run.plans
    given = pool.deployment.speculation  # the same of all pools
    if given is None or DELIVERED not in (plans.dtype.names or ()):
        return {}
    iterations = plans["iterations"].astype(np.int64)
    drafts = int((plans["decode"] * iterations).sum())
    drafted, accepted = drafts * given.num_tokens, int(plans[ACCEPTED].sum())
    decoding = int(iterations[plans["decode"] > 0].sum())
    held = float((plans["context"] * iterations).sum())
    context = round(held / drafts) if drafts else 0
    return {
        "speculation": {
            "method": given.method,
            "num_tokens": given.num_tokens,
            "drafts": drafts,
            "draft_tokens": drafted,
            "accepted_tokens": accepted,
            "acceptance_rate": accepted / drafted if drafted else None,
            "acceptance_length": 1.0 + accepted / drafts if drafts else None,
            "expected_length": given.length,
            "tokens_per_iteration": int(plans[DELIVERED].sum()) / decoding if decoding else None,
            **pays(pool, context),
        }
    }


def pays(pool: PreparedPool, context: int) -> dict[str, Any]:
    """``context``, ``speedups`` and ``pays_up_to``, as in the summary; every number of sequences
    that memory holds at once is a power of two, or the largest."""
    drafting, d = pool.cost, pool.deployment
    assert d.speculation is not None
    plain, length = CostModel(replace(d, speculation=None)), d.speculation.length

    def speedup(running: int) -> float:
        batch = Batch(running, running * context)
        return length * plain.seconds(batch) / drafting.seconds(batch)

    fitting = max(1, pool.kv_tokens // max(1, context))
    most = min(pool.limits.max_num_seqs, fitting)
    asked = sorted({*(1 << power for power in range(most.bit_length())), most})
    found = {running: speedup(running) for running in asked}
    low = max((running for running in asked if found[running] > 1), default=0)
    high = min((running for running in asked if running > low), default=low + 1)
    while low and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if speedup(middle) > 1 else (low, middle)
    return {
        "context": context,
        "speedups": [{"running": running, "speedup": found[running]} for running in asked],
        "pays_up_to": low,
    }


def pays_note(own: dict[str, Any]) -> str:
    """A sentence on when drafts pay, from an entry ``speculation``."""
    told = own["speedups"]
    most, low = told[-1]["running"], own["pays_up_to"]
    shown = [each for at, each in enumerate(told) if at % 2 == 0 or each is told[-1]]
    listed = ", ".join(f"x{number(each['speedup'])} with {each['running']:,}" for each in shown)
    if not low:
        found = "Drafts never pay"
    elif low == most:
        found = f"Drafts pay with any number of running requests, up to {most:,}"
    else:
        found = f"Drafts pay with up to {low:,} running requests"
    return f"{found} (decoding at {own['context']:,} tokens each: {listed})."
