"""Checks fleets whose pools prefill and decode apart: which go together, and what they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.memory import ALLOCATORS
from sim.routers import WEIGHTED, LeastOutstanding, PowerOfTwo, Random, RoundRobin
from sim.scenario.autoscaling import TO_NONE, Autoscaling
from sim.scenario.fields import trouble
from sim.scenario.pools import PoolSettings, weighted
from sim.schedulers import ORDERS, RULES, able
from sim.schedulers.abilities import DECODES, DRAINS, PREFILLS

if TYPE_CHECKING:
    from sim.scenario.transfer import Transfer

BOTH, PREFILL, DECODE = "both", "prefill", "decode"

STATELESS = (LeastOutstanding.name, PowerOfTwo.name, RoundRobin.name, Random.name)
"""Routers that remember nothing of a replica by its place."""


def check_roles(pools: Sequence[PoolSettings], transfer: Transfer | None) -> None:
    """Raise the error of a scenario whose ``pools`` do not make a fleet, or whose ``transfer``
    nothing uses."""
    roles = {pool.role for pool in pools}
    if roles == {BOTH}:
        if transfer is not None:
            raise trouble(
                "nothing is handed over: no pool has the role prefill or decode", ("transfer",)
            )
        return
    if BOTH in roles:
        odd = next(pool for pool in pools if pool.role == BOTH)
        raise trouble(
            f"pool {odd.name!r} has the role both next to pools of one phase; give it the role "
            "prefill or decode (transfer.min_prompt leaves short prompts to decode pools)",
            ("fleet", odd.index, "role"),
            ("fleet", odd.index),
        )
    if len(roles) == 1:
        (role,) = roles
        missing = DECODE if role == PREFILL else PREFILL
        raise trouble(
            f"every pool has the role {role}, and none the role {missing}",
            ("fleet", pools[0].index, "role"),
        )
    for pool in pools:
        _check_pool(pool)
    sizes = {pool.kv_cache.block_size for pool in pools}
    if len(sizes) > 1:
        raise trouble(
            "KV is handed over block by block, so that all pools need the same block_size; got "
            + " and ".join(f"{size:,}" for size in sorted(sizes)),
            *(("fleet", pool.index, "kv_cache", "block_size") for pool in pools),
        )


def _check_pool(pool: PoolSettings) -> None:
    """Raise the error of a pool of one phase that runs what is not modelled for it."""
    knobs, kv, order = pool.scheduler, pool.kv_cache, ORDERS.get(pool.scheduler.order)
    phase = PREFILLS if pool.role == PREFILL else DECODES
    if pool.layout.pipeline > 1:
        found, key = "several batches in flight are", "pipeline_parallel"
    elif not able(knobs.batching, phase):
        found, key = f"{knobs.batching} batching is", "batching"
    elif phase not in RULES[knobs.rule].abilities:
        found, key = f"the rule of {knobs.rule} is", "policy"
    elif knobs.plans_ahead:
        found, key = "async_scheduling is", "async_scheduling"
    elif knobs.prefill_schedule_interval > 1:
        found, key = "a cadence of prompts is", "prefill_schedule_interval"
    elif order is None or order.preempts_by_rank:
        found, key = f"the order {knobs.order} is", "order"
    elif ALLOCATORS[kv.allocator].reserves_longest:
        found, key = f"{kv.allocator} allocation is", "allocator"
    elif kv.host_memory or kv.preemption != "recompute":
        found, key = "a second tier in the host is", "host_memory"
    elif kv.enable_prefix_caching and pool.role == DECODE:
        raise trouble(
            f"a decode pool ({pool.name!r}) takes all KV of a prompt over the link, so that no "
            "prefix cache is modelled for it; enable it in the prefill pools alone (kv_cache of "
            "each pool)",
            ("fleet", pool.index, "kv_cache", "enable_prefix_caching"),
            ("kv_cache", "enable_prefix_caching"),
        )
    else:
        return
    section = "kv_cache" if key in ("allocator", "host_memory") else "scheduler"
    places = [("fleet", pool.index, section, key), (section, key), ("fleet", pool.index, key)]
    raise trouble(
        f"{found} not modelled for pools of one phase ({pool.name!r} has the role {pool.role}); "
        "supported: continuous batching by vLLM's rule, in an order that preempts the newest, with "
        "paged KV memory on the GPU",
        *(places[::-1] if key == "pipeline_parallel" else places),
    )


def check_weights(pools: Sequence[PoolSettings], router: str) -> None:
    """Raise the error of a scenario whose ``router`` does not heed the weights of ``pools``."""
    if weighted(pools) and ":" not in router and router not in WEIGHTED:
        odd = next(pool for pool in pools if pool.weight != pools[0].weight)
        raise trouble(
            f"router {router} does not go by weights; {', '.join(WEIGHTED)} do",
            ("fleet", odd.index, "weight"),
            ("router",),
        )


def check_scaling(
    pools: Sequence[PoolSettings], autoscaling: Autoscaling | None, router: str
) -> None:
    """Raise the error of a scenario whose pools cannot be scaled, or whose ``autoscaling`` nothing
    uses."""
    scaled = [pool for pool in pools if pool.scales is not None]
    if not scaled:
        if autoscaling is not None:
            raise trouble(
                "nothing is scaled: give a pool `replicas: {min: 1, max: 8}`", ("autoscaling",)
            )
        return
    if (
        autoscaling is not None
        and autoscaling.by_rate
        and "target" not in autoscaling.model_fields_set
    ):
        raise trouble(
            f"policy: {autoscaling.policy} needs the requests/s that a replica holds within the "
            "SLO, as `infersim find` has them",
            ("autoscaling", "target"),
            ("autoscaling", "policy"),
        )
    if router not in STATELESS:
        raise trouble(
            f"router {router} is not modelled for replicas that come and go; supported: "
            f"{', '.join(STATELESS)}",
            ("router",),
        )
    asked = autoscaling or Autoscaling()
    for pool in scaled:
        assert pool.scales is not None
        if not pool.scales.min:
            _check_none(pool, asked)
        if pool.role != BOTH:
            raise trouble(
                f"autoscaling is not modelled for pools of one phase ({pool.name!r} has the role "
                f"{pool.role})",
                ("fleet", pool.index, "replicas"),
            )
        if not able(pool.scheduler.batching, DRAINS):
            raise trouble(
                f"autoscaling is not modelled for {pool.scheduler.batching} batching",
                ("scheduler", "batching"),
            )


def _check_none(pool: PoolSettings, autoscaling: Autoscaling) -> None:
    """Raise the error of a pool that is never without replicas, or that nothing would bring
    back."""
    where = ("fleet", pool.index, "replicas", "min"), ("fleet", pool.index, "replicas")
    if autoscaling.policy not in TO_NONE:
        raise trouble(
            f"policy {autoscaling.policy} keeps one replica at least; {' and '.join(TO_NONE)} stop "
            "the last one, too",
            *where,
        )
    if autoscaling.metric == "kv":
        raise trouble(
            "metric: kv is that of replicas, and what waits for one has none: with min: 0 take "
            "queue or running",
            *where,
        )
