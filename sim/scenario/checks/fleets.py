"""Lists what does not go with fleets that are scaled, prefill and decode apart, or serve several
models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sim.routers import WEIGHTED, LeastOutstanding, PowerOfTwo, Random, RoundRobin
from sim.scenario.checks.subjects import (
    AHEAD,
    BY_RANK,
    HOST_MEMORY,
    IN_PHASES,
    PIPELINES,
    WITHOUT_BLOCKS,
    OneClass,
    OnePool,
    WholeFleet,
    classes,
)
from sim.scenario.clash import Chapter, Clash, itself
from sim.scenario.pools import BOTH, DECODE, PREFILL
from sim.scenario.sections.autoscaling import TO_NONE
from sim.schedulers.abilities import DECODES, DRAINS, PREFILLS, Ability

STATELESS = (LeastOutstanding.name, PowerOfTwo.name, RoundRobin.name, Random.name)
"""Routers that remember nothing of a replica by its place."""

COME_AND_GO = "router {scenario.router} is not modelled for replicas that come and go"
SUPPORTED = f"supported: {', '.join(STATELESS)}"


def _without_target(fleet: WholeFleet) -> bool:
    given = fleet.scenario.autoscaling
    return given is not None and given.by_rate and "target" not in given.model_fields_set


def _to_none(each: OnePool) -> bool:
    return each.pool.scales is not None and not each.pool.scales.min


SCALED_FLEETS: Chapter[WholeFleet, WholeFleet] = Chapter(
    "autoscaling",
    itself,
    Clash(
        "pools of a fixed size",
        lambda f: f.scenario.autoscaling is not None and not any(f.scaled()),
        "nothing is scaled: give a pool `replicas: {{min: 1, max: 8}}`",
        where=("autoscaling",),
    ),
    Clash(
        "a policy that goes by requests/s, and no target",
        lambda f: any(f.scaled()) and _without_target(f),
        "policy: {scenario.autoscaling.policy} needs the requests/s that a replica holds "
        "within the SLO, as `infersim find` has them",
        where=("autoscaling.target", "autoscaling.policy"),
    ),
    Clash(
        "a router that remembers replicas by their places",
        lambda f: any(f.scaled()) and f.scenario.router not in STATELESS,
        COME_AND_GO,
        SUPPORTED,
        ("router",),
    ),
)

SCALED_POOLS: Chapter[WholeFleet, OnePool] = Chapter(
    "autoscaling",
    WholeFleet.scaled,
    Clash(
        "replicas: {{min: 0}} and a policy that keeps the last replica",
        lambda p: _to_none(p) and p.scaling.policy not in TO_NONE,
        "policy {scaling.policy} keeps one replica at least",
        f"{' and '.join(TO_NONE)} stop the last one, too",
        ("fleet.*.replicas.min", "fleet.*.replicas"),
    ),
    Clash(
        "replicas: {{min: 0}} and metric: kv",
        lambda p: _to_none(p) and p.scaling.metric == "kv",
        "metric: kv is that of replicas, and what waits for one has none: with min: 0 take "
        "queue or running",
        where=("fleet.*.replicas.min", "fleet.*.replicas"),
    ),
    Clash(
        *IN_PHASES,
        "autoscaling is not modelled for {other} ({pool.name!r} has the role {pool.role})",
        where=("fleet.*.replicas",),
    ),
    Clash(
        "batching that does not serve on by itself",
        lambda p: not p.able(DRAINS),
        "autoscaling is not modelled for {knobs.batching} batching",
        where=("scheduler.batching",),
    ),
)


def _next_to_phases(fleet: WholeFleet) -> Iterator[OnePool]:
    """The first pool of both phases, where others have one."""
    both = [each for each in fleet.each() if each.pool.role == BOTH]
    yield from both[:1] if fleet.apart else ()


ROLES: Chapter[WholeFleet, WholeFleet] = Chapter(
    "transfer",
    itself,
    Clash(
        "pools of both phases",
        lambda f: not f.apart and f.scenario.transfer is not None,
        "nothing is handed over: no pool has the role prefill or decode",
        where=("transfer",),
    ),
)

MIXED_ROLES: Chapter[WholeFleet, OnePool] = Chapter(
    "pools of one phase",
    _next_to_phases,
    Clash(
        "pools of both phases",
        lambda _: True,
        "pool {pool.name!r} has the role both next to pools of one phase",
        "give it the role prefill or decode (transfer.min_prompt leaves short prompts to "
        "decode pools)",
        ("fleet.*.role", "fleet.*"),
    ),
)


def _alone(role: str, missing: str) -> Clash[OnePool]:
    return Clash(
        f"no pool of the role {missing}",
        lambda p: p.roles == {role},
        f"every pool has the role {role}, and none the role {missing}",
        where=("fleet.*.role",),
    )


SINGLE_ROLES: Chapter[WholeFleet, OnePool] = Chapter(
    "pools of one phase",
    lambda fleet: list(fleet.each())[:1],
    _alone(PREFILL, DECODE),
    _alone(DECODE, PREFILL),
)


ONE_PHASE = "{found} not modelled for pools of one phase ({pool.name!r} has the role {pool.role})"
PHASES_SUPPORTED = (
    "supported: continuous batching by vLLM's rule, in an order that preempts the newest, with "
    "paged KV memory on the GPU"
)


def _phase(each: OnePool) -> Ability:
    return PREFILLS if each.pool.role == PREFILL else DECODES


def _unmodelled(
    other: str, when: Callable[[OnePool], bool], found: str, key: str
) -> Clash[OnePool]:
    """A row of pools of one phase: what is ``found`` there, at a ``key`` of the pool or else of the
    scenario."""
    where = (f"fleet.*.{key}", key) if "." in key else (f"fleet.*.{key}",)
    return Clash(other, when, ONE_PHASE.replace("{found}", found), PHASES_SUPPORTED, where)


PHASES: Chapter[WholeFleet, OnePool] = Chapter(
    "pools of one phase",
    lambda fleet: fleet.each() if fleet.apart else (),
    _unmodelled(*PIPELINES, "several batches in flight are", "pipeline_parallel"),
    _unmodelled(
        "batching of whole batches",
        lambda p: not p.able(_phase(p)),
        "{knobs.batching} batching is",
        "scheduler.batching",
    ),
    _unmodelled(
        "the rule of another engine than vLLM",
        lambda p: _phase(p) not in p.rule.abilities,
        "the rule of {knobs.rule} is",
        "scheduler.policy",
    ),
    _unmodelled(*AHEAD, "async_scheduling is", "scheduler.async_scheduling"),
    _unmodelled(
        "a cadence of prompts",
        lambda p: p.knobs.prefill_schedule_interval > 1,
        "{other} is",
        "scheduler.prefill_schedule_interval",
    ),
    _unmodelled(*BY_RANK, "the order {knobs.order} is", "scheduler.order"),
    _unmodelled(*WITHOUT_BLOCKS, "{kv.allocator} allocation is", "kv_cache.allocator"),
    _unmodelled(*HOST_MEMORY, "a second tier in the host is", "kv_cache.host_memory"),
    Clash(
        "a prefix cache in a decode pool",
        lambda p: p.kv.enable_prefix_caching and p.pool.role == DECODE,
        "a decode pool ({pool.name!r}) takes all KV of a prompt over the link, so that no "
        "prefix cache is modelled for it",
        "enable it in the prefill pools alone (kv_cache of each pool)",
        ("fleet.*.kv_cache.enable_prefix_caching", "kv_cache.enable_prefix_caching"),
    ),
)

BLOCK_SIZES: Chapter[WholeFleet, WholeFleet] = Chapter(
    "pools of one phase",
    itself,
    Clash(
        "another block_size in each",
        lambda f: f.apart and len(f.block_sizes) > 1,
        "KV is handed over block by block, so that all pools need the same block_size; got {sizes}",
        where=("fleet.*.kv_cache.block_size",),
    ),
)


def _weighted(fleet: WholeFleet) -> Iterator[OnePool]:
    """The first pool of another weight."""
    odd = [each for each in fleet.each() if each.pool.weight != fleet.pools[0].weight]
    yield from odd[:1]


WEIGHTS: Chapter[WholeFleet, OnePool] = Chapter(
    "weights of pools",
    _weighted,
    Clash(
        "a router that does not go by them",
        lambda p: ":" not in p.scenario.router and p.scenario.router not in WEIGHTED,
        "router {scenario.router} does not go by weights",
        f"{', '.join(WEIGHTED)} do",
        ("fleet.*.weight", "router"),
    ),
)

ASKED_MODELS: Chapter[WholeFleet, OneClass] = Chapter(
    "a model that a class asks for",
    classes,
    Clash(
        "pools that all serve others",
        lambda c: c.item.model is not None and c.item.model not in c.models,
        "no pool serves {item.model!r}; there are {served}",
        where=("workload.classes.*.model",),
    ),
)

SERVED_MODELS: Chapter[WholeFleet, OnePool] = Chapter(
    "several models in one fleet",
    lambda fleet: fleet.each() if len(fleet.models) > 1 else (),
    Clash(
        "a model that no class asks for",
        lambda p: p.pool.model.path not in p.wanted,
        "no class of workload.classes asks for {pool.model.path!r}",
        "say which requests are for it, as `classes: [{{name: small, share: 0.5, model: "
        "{pool.model.path}}}, ...]`",
        ("fleet.*.model", "workload.classes", "model"),
    ),
)


def _of_one_model(other: str, when: Callable[[WholeFleet], bool]) -> Clash[WholeFleet]:
    says = "several models in one fleet ({served}) are not modelled with {other}"
    return Clash(other, when, says, where=("fleet",))


SEVERAL_MODELS: Chapter[WholeFleet, WholeFleet] = Chapter(
    "several models in one fleet",
    lambda fleet: [fleet] if len(fleet.models) > 1 else (),
    _of_one_model("pools of one phase", lambda f: f.apart),
    _of_one_model("pools that are scaled", lambda f: any(f.scaled())),
    _of_one_model("failures", lambda f: f.scenario.failures is not None),
    _of_one_model("steering", lambda f: f.scenario.steering is not None),
    _of_one_model(
        "drafts (speculative), which are made for one model",
        lambda f: f.scenario.speculative is not None,
    ),
)

SCALED: tuple[Chapter[WholeFleet, Any], ...] = (SCALED_FLEETS, SCALED_POOLS)
APART: tuple[Chapter[WholeFleet, Any], ...] = (
    *(ROLES, MIXED_ROLES, SINGLE_ROLES, PHASES, BLOCK_SIZES),
    WEIGHTS,
)
MODELS: tuple[Chapter[WholeFleet, Any], ...] = (ASKED_MODELS, SERVED_MODELS, SEVERAL_MODELS)
