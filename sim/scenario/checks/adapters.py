"""Lists what does not go with LoRA adapters."""

from __future__ import annotations

from collections.abc import Callable

from sim.scenario.checks.subjects import (
    DATA_RANKS,
    HOST_MEMORY,
    IN_PHASES,
    PIPELINES,
    OnePool,
    WholeFleet,
)
from sim.scenario.clash import Chapter, Clash
from sim.schedulers import SglangRule, VllmRule, follows_rule
from sim.schedulers.orders import FirstCome


def _unadapted(
    other: str, when: Callable[[OnePool], bool], key: str, says: str, hint: str = ""
) -> Clash[OnePool]:
    where = key if key.startswith("fleet") or "." not in key else f"*.{key}"
    return Clash(other, when, f"lora: adapters are not modelled {says}", hint, (where, "lora"))


POOLS: Chapter[WholeFleet, OnePool] = Chapter(
    "LoRA adapters (lora)",
    lambda fleet: () if fleet.scenario.lora is None else fleet.each(),
    _unadapted(
        "batching that does not follow an engine's rule",
        lambda p: not follows_rule(p.knobs.batching),
        "scheduler.batching",
        "with {knobs.batching} batching",
    ),
    _unadapted(
        "the rule of another engine than vLLM and SGLang",
        lambda p: p.knobs.rule not in (VllmRule.name, SglangRule.name),
        "scheduler.policy",
        "with policy: {knobs.rule}",
        f"`policy: {VllmRule.name}` has vLLM's rule under any engine",
    ),
    _unadapted(
        "an order but fcfs",
        lambda p: p.knobs.order != FirstCome.name,
        "scheduler.order",
        "with order: {knobs.order}, in which it is not known where a request waits that was "
        "passed over",
    ),
    _unadapted(
        "drafts (speculative)",
        lambda p: p.pool.speculative is not None,
        "speculative",
        "with drafts, whose tokens go through them as well",
    ),
    _unadapted(*IN_PHASES, "fleet.*.role", "where prompts are computed apart"),
    _unadapted(*DATA_RANKS, "fleet.*.data_parallel", "on data ranks, which step together"),
    _unadapted(*PIPELINES, "fleet.*.pipeline_parallel", "over the stages of a pipeline"),
    _unadapted(*HOST_MEMORY, "kv_cache.host_memory", "next to blocks that move over the same link"),
    _unadapted(
        "several models in one fleet", lambda p: len(p.models) > 1, "fleet", "of several models"
    ),
)
