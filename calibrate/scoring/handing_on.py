"""The wait of first tokens for the launch of the iteration after theirs.

An engine whose loop launches an iteration before it looks at the results of the last one hands a
first token on late where prompts follow prompts: kernels are launched one by one, and the launch
ends only when the GPU is through with most of them. Runs give tokens at the end of their
iteration; what a client measures follows from the rows of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.metrics.run_record import RunRecord

Seconds = NDArray[np.float64]


class Launching(NamedTuple):
    """How an engine launches prompts: in ``least`` seconds, and not before ``share`` of the
    iteration has run."""

    least: float
    share: float

    def of(self, lasting: Seconds) -> Seconds:
        """How long it takes for iterations that last so long."""
        return np.minimum(lasting, np.maximum(self.least, self.share * lasting))


def launching(record: RunRecord) -> Launching | None:
    """How the engine of a run launches; None where tokens do not wait for that, or where prefill
    and decode are apart, and the first token is another engine's."""
    pool, *others = record.pools
    if others:
        return None
    deployment = pool.deployment
    engine = deployment.engine
    layers = deployment.model.num_layers, deployment.model.expert_layers
    if not (engine.launches_first and engine.eager_prefill):
        return None
    return Launching(engine.launch_time(*layers, prompts=True), engine.late_share(*layers))


def waits(plans: NDArray[np.void], requests: NDArray[np.void], how: Launching) -> Seconds:
    """Seconds for which the first token of each of ``requests`` waits for the launch of the next
    of ``plans``, if there are prompts in it. The host launches that as soon as it is through with
    the plan of the token, which it may be before the GPU is."""
    found = np.zeros(len(requests))
    for replica in np.unique(requests["replica"]):
        rows = plans[plans["replica"] == replica]
        ours = np.flatnonzero(requests["replica"] == replica)
        if len(rows) < 2:
            continue
        first = requests["first_token"][ours]
        at = np.minimum(np.searchsorted(rows["end"], first), len(rows) - 2)
        own, following = rows[at], rows[at + 1]
        at_once = (own["end"] == first) & (following["start"] == first)
        prompts = following["prefill_seqs"] > 0
        lasted, lasting = own["end"] - own["start"], following["end"] - following["start"]
        ahead = lasted - how.of(lasted)
        wait = np.minimum(lasting, np.maximum(how.least - ahead, how.share * lasting))
        found[ours] = np.where(at_once & prompts, wait, 0.0)
    return found


def handed_on(record: RunRecord, numbers: Mapping[str, float]) -> dict[str, float]:
    """The mean times that clients measure where first tokens wait for a launch; none changed where
    they do not. An answer ends when it did."""
    how, requests = launching(record), record.requests
    if how is None or (requests["output_tokens"] < 2).any():  # a single token would end later
        return {}
    late = waits(record.plans, requests, how)
    each = late / (requests["output_tokens"] - 1)
    return {
        "mean_ttft_ms": numbers["mean_ttft_ms"] + 1e3 * float(late.mean()),
        "mean_tpot_ms": numbers["mean_tpot_ms"] - 1e3 * float(each.mean()),
    }
