"""Lists the techniques that a scenario uses, and makes the scenario without them.

The naive baseline serves the same traffic with the same model on the same GPUs under the same
engine: static batches of a few requests, the longest sequence reserved for each of them, 16 bits,
prompts in one piece, first come first served, nothing cached, nothing guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import UsageError, did_you_mean
from sim.memory import ContiguousAllocator, PagedAllocator
from sim.planning.causes.counterfactuals import shares_prefixes
from sim.planning.causes.shapley import Coalition
from sim.planning.points.points import Settings
from sim.plugins import is_own
from sim.routers import AFFINE, LeastOutstanding
from sim.scenario import Scenario
from sim.scenario.sections.deployment import SchedulerSettings
from sim.schedulers import ORDERS, Static
from sim.schedulers.orders import FirstCome
from sim.schedulers.rules import RULES
from sim.specs.precision import precision_bytes

SMALL_BATCH = 8
"""Requests in a batch of the baseline, unless another number is asked for."""

PAGING = "paging"


@dataclass(frozen=True)
class Technique:
    """Something that makes serving faster: the settings ``on`` with it, ``off`` without.

    Without all it ``needs`` it changes nothing.
    """

    name: str
    title: str
    on: Settings
    off: Settings
    needs: tuple[str, ...] = ()


def techniques(scenario: Scenario, batch: int = SMALL_BATCH) -> list[Technique]:
    """The techniques of ``scenario`` that the baseline, with batches of ``batch`` requests, lacks;
    in the usual order of adding them."""
    found = [*_batching(scenario, batch), *_memory(scenario), *_precision(scenario)]
    knobs, guesses = scenario.scheduler, scenario.speculative
    if RULES[knobs.rule].in_pages:  # without pages its batches do not run
        found.sort(key=lambda technique: technique.name != PAGING)
    if knobs.order != FirstCome.name:
        order = ORDERS.get(knobs.order)
        of_cache = ("prefix-caching", "paging", f"{_word(scenario)}-batching")
        needs = of_cache if order is not None and order.by_prefix else ()
        found.append(_switch("order", f"queue order {knobs.order}", "scheduler.order",
                             knobs.order, FirstCome.name, needs))  # fmt: skip
    if guesses is not None:
        drafting = ("continuous-batching", "chunked-prefill", "paging")
        found.append(_switch("speculation", f"speculation ({guesses.method})", "speculative",
                             guesses.model_dump(mode="json"), None, drafting))  # fmt: skip
    return found


def _batching(scenario: Scenario, batch: int) -> list[Technique]:
    knobs = scenario.scheduler
    found = []
    word = _word(scenario)
    if knobs.batching != Static.name:
        rule = _of_rule(scenario)
        defaults = {key: SchedulerSettings.model_fields[key].default for key in rule}
        on, off = (
            {"scheduler.batching": batching} | {f"scheduler.{key}": each[key] for key in rule}
            for batching, each in ((knobs.batching, rule), (Static.name, defaults))
        )
        found.append(Technique(f"{word}-batching", f"{word} batching", on, off))
    if knobs.max_num_seqs > batch:
        title = f"batches of up to {knobs.max_num_seqs:,}"
        found.append(
            _switch("large-batch", title, "scheduler.max_num_seqs", knobs.max_num_seqs, batch)
        )
    if knobs.chunked_prefill and "chunked_prefill" in knobs.policy_class(scenario.folders).knobs:
        needs = (f"{word}-batching",)
        found.append(_switch("chunked-prefill", "chunked prefill", "scheduler.chunked_prefill",
                             True, False, needs))  # fmt: skip
    return found


def _of_rule(scenario: Scenario) -> dict[str, Any]:
    """The scenario's settings for keys that only a rule of continuous batching reads; those left to
    its engine change with the batching anyway."""
    knobs = scenario.scheduler
    keys = ("policy", "async_scheduling", *sorted(RULES[knobs.rule].knobs))
    given = scenario.written().get("scheduler") or {}
    return {key: getattr(knobs, key) for key in keys if given.get(key) is not None}


def _word(scenario: Scenario) -> str:
    """The name of its batching technique."""
    batching = scenario.scheduler.batching
    return "own" if is_own(batching) else batching


def _memory(scenario: Scenario) -> list[Technique]:
    kv = scenario.kv_cache
    found = []
    if kv.allocator == PagedAllocator.name:
        found.append(_switch(PAGING, "paged KV cache", "kv_cache.allocator",
                             kv.allocator, ContiguousAllocator.name))  # fmt: skip
    if kv.host_memory is not None:
        found.append(_host(scenario))
    if kv.enable_prefix_caching and _uses_prefixes(scenario):
        needs = ("paging", f"{_word(scenario)}-batching")  # static batches find nothing
        found.append(_switch("prefix-caching", "prefix caching", "kv_cache.enable_prefix_caching",
                             True, False, needs))  # fmt: skip
        if scenario.replicas > 1 and scenario.router in AFFINE:
            found.append(_switch("affinity", f"router {scenario.router}", "router", scenario.router,
                                 LeastOutstanding.name, ("prefix-caching",)))  # fmt: skip
    return found


def _uses_prefixes(scenario: Scenario) -> bool:
    """Whether a prefix cache was asked for, or could do something here."""
    order = ORDERS.get(scenario.scheduler.order)
    asked = scenario.states("kv_cache.enable_prefix_caching")
    return asked or (order is not None and order.by_prefix) or shares_prefixes(scenario)


def _host(scenario: Scenario) -> Technique:
    """The memory of the host: what preempted requests swap to, a second tier of the prefix cache,
    or both."""
    kv = scenario.kv_cache
    keys = ("host_memory", "host_bandwidth", "host_overlap", "preemption")
    on = {f"kv_cache.{key}": getattr(kv, key) for key in keys}
    off = {
        "kv_cache.host_memory": None,
        "kv_cache.host_bandwidth": None,
        "kv_cache.host_overlap": True,
        "kv_cache.preemption": "recompute",
    }
    needs = ["paging", f"{scenario.scheduler.batching}-batching", "chunked-prefill"]
    if kv.preemption == "recompute":
        needs.append("prefix-caching")
    return Technique("host-memory", "memory of the host", on, off, tuple(needs))


def _precision(scenario: Scenario) -> list[Technique]:
    p = scenario.precision
    found = []
    if min(precision_bytes(p.weights), precision_bytes(p.activations)) < 2:
        keys = "precision.weights", "precision.activations"
        on = dict(zip(keys, (p.weights, p.activations), strict=True))
        title = f"{p.weights} weights" + (f", {p.activations} products" * (p.activations != "bf16"))
        found.append(Technique("quantised-weights", title, on, dict.fromkeys(keys, "bf16")))
    if precision_bytes(p.kv_cache) < 2:
        found.append(_switch("quantised-kv", f"{p.kv_cache} KV cache", "precision.kv_cache",
                             p.kv_cache, "bf16"))  # fmt: skip
    return found


def _switch(
    name: str, title: str, key: str, on: object, off: object, needs: tuple[str, ...] = ()
) -> Technique:
    return Technique(name, title, {key: on}, {key: off}, needs)


def effective(present: Collection[str], known: Sequence[Technique]) -> Coalition:
    """The techniques of ``present`` that change anything: whose needs are there too."""
    left = frozenset(present)
    return frozenset(t.name for t in known if t.name in left and left.issuperset(t.needs))


def settings(present: Collection[str], known: Sequence[Technique]) -> Settings:
    """The overrides that leave of all techniques of a scenario only those ``present``."""
    merged: dict[str, object] = {}
    for technique in known:
        merged |= technique.on if technique.name in present else technique.off
    return merged


def ordered(known: Sequence[Technique], names: Sequence[str] | None) -> list[Technique]:
    """``known`` in the order of ``names``, which lists each of them once; None: as they are.

    UsageError for names of none, and for an order that leaves some out.
    """
    if names is None:
        return list(known)
    found = {technique.name: technique for technique in known}
    listed = ", ".join(found)
    for name in names:
        if name not in found:
            raise UsageError(
                f"--order: the scenario uses no technique {name!r}{did_you_mean(name, found)}; "
                f"it uses {listed}"
            )
    if sorted(names) != sorted(found):
        raise UsageError(f"--order: name each technique once: {listed}")
    return [found[name] for name in names]
