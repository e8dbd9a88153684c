"""Accounts for every output token: decoded, first of an answer, or made by a repeated prefill.

A policy that passes a decoding sequence over gives it its next token in a chunk of one token, since
it is no longer in the batch that decodes together. The engine's kernels see a prompt, and it is
timed as one; the tables of a run count what it is, a decode. ``sim.loop.recorder`` notes the end
of each chunk that brought a token to a request that had some before: of a request that was out of
the batch it is a resumption, of any other one such a late decode.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.metrics.record.run_record import RunRecord

Counts = NDArray[np.int64]


class TokenAccounts(NamedTuple):
    """``resumptions``: prefills, completed, that made up for a preemption after the first token;
    each brings one token. ``late_plans`` has the row of the plan of each late decode, ``contexts``
    the KV tokens that its sequence held before it."""

    resumptions: int
    late_plans: Counts
    contexts: Counts


def token_accounts(run: RunRecord) -> TokenAccounts | None:
    """The accounts of a run; None for one that was observed, not simulated, or where it was not
    recorded which request was out of the batch and when.
    """
    if run.trail is None or run.observed:
        return None
    chunks, absences = run.trail
    resumptions, late = _caught_up(run.requests["first_token"], absences)
    if late:
        mine = chunks[np.isin(chunks["request"], [request for request, _ in late])]
        ends = run.plans["end"][mine["plan"]].tolist()
        late_chunks = {*late}
        at = [key in late_chunks for key in zip(mine["request"].tolist(), ends, strict=True)]
        chunks = mine[np.array(at)]
    else:
        chunks = chunks[:0]
    return TokenAccounts(
        resumptions, chunks["plan"].astype(np.int64), chunks["context"].astype(np.int64)
    )


def _caught_up(
    first_tokens: NDArray[np.float64], absences: NDArray[np.void]
) -> tuple[int, list[tuple[int, float]]]:
    """How many requests caught up after an absence, and which did so, when, without one."""
    resumptions, late, out = 0, [], set[int]()
    for request, time, left in absences[["request", "time", "out"]].tolist():
        if left:
            if time >= first_tokens[request]:  # else its first token makes up for it
                out.add(request)
        elif request in out:
            out.discard(request)
            resumptions += 1
        else:
            late.append((request, time))
    return resumptions, late
