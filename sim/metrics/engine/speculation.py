"""Sums up what speculation brought: drafts, how many were accepted, and with how many it pays.

Whether it pays is asked of the cost model that timed the run: the tokens a second of a batch with
drafts over those of the same batch without. Small batches wait for weights, which a pass reads once
however many tokens are checked; large ones compute, and rejected drafts are computed in vain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sim.catalog.acceptance import tables
from sim.cost import CostModel
from sim.growth.kept_rows import PlanRows
from sim.growth.leaps import ACCEPTED, CHECKED, DELIVERED
from sim.iteration import Batch
from sim.metrics.record.run_record import RunRecord
from sim.pools import PreparedPool
from sim.specs.speculation import Speculation
from sim.units import number


def borrowed_note(pool: PreparedPool) -> str | None:
    """A note on a published table of acceptance that is another model's, or of other drafts."""
    given = pool.settings.speculative
    if given is None or given.acceptance is None or given.acceptance.table is None:
        return None
    name, model = given.acceptance.table, pool.deployment.model.name
    table = tables()[name]
    measured = f"{table.model} with drafts by {table.method}"
    asked = f"{model} with drafts by {given.method}"
    if table.method == given.method and table.model in model.lower():
        return None
    return (
        f"speculative.acceptance: {name} was published for {measured}; what {asked} accepts may be "
        "far from it. Give rates or a length of your own if you have them."
    )


def speculation(run: RunRecord) -> dict[str, Any]:
    """The entry ``speculation`` of a summary; nothing where no tokens were drafted.

    ``drafts`` are rounds of drafting that were checked, one of each decoding sequence and
    iteration, ``draft_tokens`` the tokens in them and ``accepted_tokens`` those that were right;
    ``acceptance_length`` is 1 + accepted tokens over drafts, all as vLLM counts them: rounds for
    which nothing was drafted (``match_rate``, if there are any) are none.
    Where their number follows the batch, ``by_drafts`` says of each number how many iterations
    checked that many drafts of a sequence, with how many sequences on average.
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
    drafts = round(given.match * int((plans["decode"] * iterations)[plans[CHECKED] > 0].sum()))
    sequences = int((plans["decode"] * iterations).sum())
    drafted = round(given.match * int((plans["decode"] * iterations * plans[CHECKED]).sum()))
    accepted = int(plans[ACCEPTED].sum())
    decoding = int(iterations[plans["decode"] > 0].sum())
    held = float((plans["context"] * iterations).sum())
    context = round(held / sequences) if sequences else 0
    return {
        "speculation": {
            "method": given.method,
            "num_tokens": given.num_tokens,
            "drafts": drafts,
            "draft_tokens": drafted,
            "accepted_tokens": accepted,
            "acceptance_rate": accepted / drafted if drafted else None,
            "acceptance_length": 1.0 + accepted / drafts if drafts else None,
            "expected_length": _expected(given),
            **({} if given.match == 1.0 else {"match_rate": given.match}),
            **_by_drafts(plans, given),
            "tokens_per_iteration": int(plans[DELIVERED].sum()) / decoding if decoding else None,
            **pays(pool, context),
        }
    }


def _expected(given: Speculation) -> float | None:
    """The acceptance length of rounds for which tokens were drafted; None where none ever are."""
    if given.match == 1.0:
        return given.length
    return 1.0 + (given.length - 1.0) / given.match if given.match else None


def _by_drafts(plans: PlanRows, given: Speculation) -> dict[str, Any]:
    """How many iterations checked how many drafts; nothing where all check as many."""
    if not given.by_batch:
        return {}
    decoding = plans[plans["decode"] > 0]
    times = decoding["iterations"].astype(np.int64)
    found = []
    for drafts in sorted({*given.by_batch, *decoding[CHECKED].tolist()}, reverse=True):
        mine = decoding[CHECKED] == drafts
        ran = int(times[mine].sum())
        running = float((decoding["decode"] * times)[mine].sum()) / ran if ran else None
        found.append({"drafts": drafts, "iterations": ran, "mean_running": running})
    return {"by_drafts": found}


def pays(pool: PreparedPool, context: int) -> dict[str, Any]:
    """``context``, ``speedups`` and ``pays_up_to``, as in the summary; every number of sequences
    that memory holds at once is a power of two, or the largest."""
    drafting, d = pool.cost, pool.deployment
    assert d.speculation is not None
    plain, given = CostModel(replace(d, speculation=None, drafter=None)), d.speculation

    def speedup(running: int) -> float:
        batch, length = Batch(running, running * context), given.at(running).length
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


def _told_by_drafts(rows: list[dict[str, Any]]) -> str:
    """A sentence on how many drafts were checked when."""
    ran = [row for row in rows if row["iterations"]]
    if not ran:
        return ""
    told = ", ".join(
        f"{row['drafts']} in {row['iterations']:,} ({number(row['mean_running'])} decoding)"
        for row in ran
    )
    return f"Drafts of a sequence, by iterations: {told}."


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
    if "by_drafts" in own:
        found = f"{_told_by_drafts(own['by_drafts'])} {found}"
    return f"{found} (decoding at {own['context']:,} tokens each: {listed})."
