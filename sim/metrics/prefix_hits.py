"""Sums up what the prefix caches of a run found, in tokens of prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.metrics.run_record import RunRecord


def prefix_cache(run: RunRecord) -> dict[str, Any]:
    """The entry ``prefix_cache`` of a summary; nothing where no pool has a prefix cache.

    ``queries`` are the tokens of all prompts that were admitted, ``hits`` those found when they
    first were; ``hit_rate`` is None before any. As in vLLM, what a preempted request finds of
    itself later is in neither.
    """
    parts = [part for part in run.parts if part.pool.settings.kv_cache.enable_prefix_caching]
    if not parts:
        return {}
    asked = sum(
        int(part.requests["prompt_tokens"][~np.isnan(part.requests["scheduled"])].sum())
        for part in parts
    )
    found = sum(int(part.found.sum()) for part in parts)
    rate = found / asked if asked else None
    return {"prefix_cache": {"queries": asked, "hits": found, "hit_rate": rate}}
