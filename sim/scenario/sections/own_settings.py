"""Completes the settings of a scenario before they are validated: rules of engines, and pools.

An engine batches by its own rule, and a pool has the scenario's scheduler and KV cache wherever it
states nothing else. Works on plain data as written; what is malformed is left to validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim import catalog
from sim.errors import UsageError
from sim.memory import PagedAllocator
from sim.schedulers import ROLES, RULES, ChunkedPrefill, VllmRule, follows_rule

Plain = Mapping[str, Any]


def completed(data: Plain, base: Path | None) -> Plain:
    """``data``, a scenario, with the rule of its engine in ``scheduler``, and the whole of
    ``scheduler`` and ``kv_cache`` in each pool that states a part of them or another engine.
    ``base`` is the folder of the engine files that it names."""
    knobs, kv, fleet = data.get("scheduler") or {}, data.get("kv_cache") or {}, data.get("fleet")
    pools = fleet if isinstance(fleet, list) else []
    if not all(isinstance(each, Mapping) for each in (knobs, kv, *pools)):
        return data
    engine = data.get("engine")
    own = [_with_own(pool, engine, knobs, kv, base) for pool in pools]
    found = _ruled(engine, knobs, kv, pools, base)
    if found is not knobs:
        data = {**data, "scheduler": found}
    if any(mine is not pool for mine, pool in zip(own, pools, strict=True)):
        data = {**data, "fleet": own}
    return data


def _with_own(pool: Plain, engine: Any, knobs: Plain, kv: Plain, base: Path | None) -> Plain:
    """``pool`` with the whole of what it changes of the scenario's settings."""
    own = pool.get("scheduler"), pool.get("kv_cache")
    if pool.get("engine") is None and own == (None, None):
        return pool
    if not all(each is None or isinstance(each, Mapping) for each in own):
        return pool
    knobs, kv = {**knobs, **(own[0] or {})}, {**kv, **(own[1] or {})}
    knobs = _ruled(pool.get("engine") or engine, knobs, kv, [pool], base)
    return {**pool, "scheduler": knobs, **({} if own[1] is None else {"kv_cache": kv})}


def _ruled(
    engine: Any, knobs: Plain, kv: Plain, pools: Sequence[Plain], base: Path | None
) -> Plain:
    """``knobs`` with the rule by which ``engine`` batches, and its planning ahead, unless one is
    given, or something is asked for that only another rule can do."""
    if given := knobs.get("policy"):
        whole = given in RULES and not RULES[given].cuts_prompts
        return {"chunked_prefill": False, **knobs} if whole else knobs
    try:
        preset = catalog.engine(engine or VllmRule.name, base)
    except (UsageError, TypeError):
        return knobs  # which is said of the key itself
    rule = preset.policy
    of_another = RULES[VllmRule.name].knobs & knobs.keys()
    phases = any(pool.get("role") in tuple(ROLES) for pool in pools)
    stages = any(pool.get("pipeline_parallel") not in (None, 1) for pool in pools)
    batching = knobs.get("batching") or ChunkedPrefill.name
    if rule not in RULES or of_another or stages or phases or not follows_rule(batching):
        return knobs
    allocator = kv.get("allocator") or PagedAllocator.name
    if allocator != PagedAllocator.name:
        return knobs
    if kv.get("enable_prefix_caching") and (
        not RULES[rule].prefix_cache or kv.get("host_memory") is not None
    ):
        return knobs
    ahead = {"async_scheduling": True} if preset.plans_ahead else {}
    return {**ahead, **knobs, "policy": rule}
