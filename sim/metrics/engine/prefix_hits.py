"""Sums up what the prefix caches of a run found, in tokens of prompts, and what they did not.

Caches start empty. A prompt misses what was never there, its own text among it, and what was there
and had to leave. A run says how much of each there was in its warm-up and after it, and whether the
share of hits had stopped growing by then.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.record.run_record import RunRecord

BATCHES = 10
"""Equal parts of each half of a run, whose differences say how sure the difference of the halves
is."""

SURE = 3.0
"""Standard errors of a difference that chance does not make."""

SMALL = 0.01
"""A difference in the share of hits that changes no decision."""


def prefix_cache(run: RunRecord) -> dict[str, Any]:
    """The entry ``prefix_cache`` of a summary; nothing where no pool has a prefix cache.

    ``queries`` are the tokens of all prompts that were admitted, ``hits`` those found when they
    first were; ``hit_rate`` is None before any. As in vLLM, what a preempted request finds of
    itself later is in neither. ``evicted`` are tokens that had been in the cache of the GPU and
    were not any longer, ``first_seen`` those of texts that others may share, looked up for the
    first time; None where that was not recorded. ``warmup`` and ``after`` have the shares of both
    parts of the run; ``steady`` is whether hits no longer became more, None if too few requests
    say so.
    """
    if not run.cached:
        return {}
    served = admitted(run)
    asked, found = run.requests["prompt_tokens"], run.found
    queries, hits = int(asked[served].sum()), int(found[served].sum())
    left, new = _missed(run)
    cold, rest = served & run.warmup, served & ~run.warmup
    shares = {
        name: _shares(asked[which], found[which], left[which], new[which])
        for name, which in (("warmup", cold), ("after", rest))
    }
    recorded = run.lookups is not None
    return {
        "prefix_cache": {
            "queries": queries,
            "hits": hits,
            "hit_rate": hits / queries if queries else None,
            "evicted": int(left.sum()) if recorded else None,
            "first_seen": int(new.sum()) if recorded else None,
            **shares,
            "steady": _steady(found[rest], asked[rest]),
        }
    }


def admitted(run: RunRecord) -> NDArray[np.bool_]:
    """The requests that a prefix cache was asked for."""
    admitted = ~np.isnan(run.requests["scheduled"])
    cached = np.zeros(len(admitted), dtype=bool)
    for part in run.parts:
        if part.pool.settings.kv_cache.enable_prefix_caching:
            cached[part.places] = True
    return np.asarray(admitted & cached)


def _missed(run: RunRecord) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens of each request that had left the cache of the GPU, and that are new to it."""
    left, new = (np.zeros(len(run.requests), dtype=np.int64) for _ in range(2))
    if run.lookups is not None and len(run.lookups):
        places = np.searchsorted(run.requests["id"], run.lookups["request"])
        left[places], new[places] = run.lookups["left"], run.lookups["new"]
    return left, new


def _shares(
    asked: NDArray[np.int64],
    found: NDArray[np.int64],
    left: NDArray[np.int64],
    new: NDArray[np.int64],
) -> dict[str, Any]:
    """Tokens found and not found, as shares of those looked up; None if there were none."""
    total = int(asked.sum())
    amounts = {"hit_rate": found, "evicted": left, "first_seen": new}
    return {
        "requests": len(asked),
        **{name: int(amount.sum()) / total if total else None for name, amount in amounts.items()},
    }


def _steady(found: NDArray[np.int64], asked: NDArray[np.int64]) -> bool | None:
    """Whether the second half of the requests found no more than the first, apart from chance."""
    size = len(asked) // (2 * BATCHES)
    if not size:
        return None
    used = 2 * BATCHES * size
    hits = found[:used].reshape(2, BATCHES, size).sum(axis=2)
    rates = hits / asked[:used].reshape(2, BATCHES, size).sum(axis=2)
    early, late = rates.mean(axis=1)
    error = math.sqrt(float((rates.var(axis=1, ddof=1) / BATCHES).sum()))
    return bool(late - early <= max(SMALL, SURE * error))
