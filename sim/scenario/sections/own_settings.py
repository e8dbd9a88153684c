"""Completes the settings of a scenario before they are validated: what its engine chooses, by pool.

What a scenario leaves out is what the release of its engine chooses on the GPU of a pool: the rule
of batching, planning ahead, the limits of a batch, the share of memory, the prefix cache. A choice
that is not modelled together with the rest of the scenario is left out. A pool has the scenario's
scheduler and KV cache wherever it states nothing else. Works on plain data as written; what is
malformed is left to validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sim import catalog
from sim.catalog.releases import spelled
from sim.errors import UsageError
from sim.memory import PagedAllocator
from sim.memory.static_share import static_share
from sim.schedulers import ORDERS, ROLES, RULES, ChunkedPrefill, VllmRule, follows_rule
from sim.specs.engine import EngineSpec
from sim.specs.gpu import GpuSpec
from sim.specs.model import ModelSpec

Plain = Mapping[str, Any]

SCHEDULER, CACHE = "scheduler", "kv_cache"
"""The sections that an engine chooses in, and a pool may have of its own."""
OF_RULES = f"{SCHEDULER}."
PREFIXES = f"{CACHE}.enable_prefix_caching"
SEQUENCES, TOKENS = f"{SCHEDULER}.max_num_seqs", f"{SCHEDULER}.max_num_batched_tokens"
SHARE = f"{CACHE}.gpu_memory_utilization"


def completed(data: Plain, base: Path | None) -> Plain:
    """``data``, a scenario, with its engine's choices in ``scheduler`` and ``kv_cache``, and the
    whole of both in each pool that has others. ``base`` is the folder of the files it names."""
    fleet = data.get("fleet")
    pools = fleet if isinstance(fleet, list) else []
    own = [pool.get(name) for pool in pools if isinstance(pool, Mapping) for name in SECTIONS]
    sections = [data.get(name) for name in SECTIONS]
    plain = all(each is None or isinstance(each, Mapping) for each in (*sections, *own))
    if not (pools and plain and all(isinstance(pool, Mapping) for pool in pools)):
        return data
    usual = _Asked(data, {k: v for k, v in pools[0].items() if k not in OWN}, base)
    found: dict[str, Any] = {**data, **usual.completed()}
    if usual.preset is not None:
        found["engine"] = _released(usual.engine, usual.preset)
    return {**found, "fleet": [_with_own(data, pool, found, base) for pool in pools]}


SECTIONS = (SCHEDULER, CACHE)
OWN = (*SECTIONS, "engine")
"""Keys of a pool that stand for those of the scenario."""


def _with_own(data: Plain, pool: Plain, usual: Plain, base: Path | None) -> Plain:
    """``pool`` with the whole of the sections in which it is not as the scenario, ``usual``."""
    asked = _Asked(data, pool, base)
    mine = asked.completed()
    found: dict[str, Any] = {
        name: mine.get(name, {})
        for name in SECTIONS
        if pool.get(name) or mine.get(name, {}) != (usual.get(name) or {})
    }
    if pool.get("engine") and asked.preset is not None:
        found["engine"] = _released(asked.engine, asked.preset)
    return {**pool, **found}


def _released(engine: str, preset: EngineSpec) -> str:
    """An engine of the catalogue with its release, however it is spelt."""
    return preset.label if preset.name == spelled(engine).name else engine


@dataclass(frozen=True)
class _Asked:
    """What a ``pool`` of the scenario ``data`` asks for."""

    data: Plain
    pool: Plain
    base: Path | None

    @property
    def engine(self) -> Any:
        """The engine as it is spelt."""
        return self.pool.get("engine") or self.data.get("engine") or VllmRule.name

    @cached_property
    def preset(self) -> EngineSpec | None:
        """The engine; None where there is none, which is said of the key itself."""
        try:
            return catalog.engine(self.engine, self.base)
        except (UsageError, TypeError, ValueError):
            return None

    @cached_property
    def gpu(self) -> GpuSpec | None:
        """The GPU; None where there is none."""
        kernels = catalog.DEFAULT_KERNELS if self.preset is None else self.preset.kernels
        try:
            return catalog.gpu(self.pool["gpu"], self.base, kernels)
        except (UsageError, LookupError, TypeError, ValueError):
            return None

    @cached_property
    def model(self) -> ModelSpec | None:
        """The model; None where there is none."""
        asked: Any = self.pool.get("model") or self.data.get("model")
        try:
            return catalog.model(asked["path"] if isinstance(asked, Mapping) else asked, self.base)
        except (UsageError, LookupError, TypeError, ValueError):
            return None

    def stated(self, section: str) -> dict[str, Any]:
        """What is written of a section: of the pool, and of the scenario for the rest."""
        return {**(self.data.get(section) or {}), **(self.pool.get(section) or {})}

    def said(self, key: str) -> Any:
        """The value of a dotted key, None where it is left out."""
        section, _, name = key.partition(".")
        return self.stated(section).get(name)

    def completed(self) -> dict[str, dict[str, Any]]:
        """Both sections with the engine's choices for what they leave out."""
        found = {name: self.stated(name) for name in SECTIONS}
        for key, value in self.choices().items():
            section, _, name = key.partition(".")
            if found[section].get(name) is None:
                found[section][name] = value
        return {name: section for name, section in found.items() if section or self.data.get(name)}

    def choices(self) -> dict[str, Any]:
        """The engine's choices by dotted key, as far as they are modelled here."""
        preset, batching = self.preset, self.said(f"{SCHEDULER}.batching") or ChunkedPrefill.name
        rule = self.said(f"{SCHEDULER}.policy")
        whole = {f"{SCHEDULER}.chunked_prefill": False} if _is_whole(rule) else {}
        if preset is None:
            return whole
        chosen = {} if self.gpu is None else preset.defaults_on(self.gpu.title, self.gpu.memory)
        if not follows_rule(batching):
            kept = {key: each for key, each in chosen.items() if not key.startswith(OF_RULES)}
            return {key: each for key, each in kept.items() if key != PREFIXES}
        if rule is None and self._keeps_rule(preset.policy):
            rule = chosen[f"{SCHEDULER}.policy"] = preset.policy
        rule = rule if rule in RULES else VllmRule.name
        if preset.plans_ahead and self._plans_ahead(rule):
            chosen[f"{SCHEDULER}.async_scheduling"] = True
        if chosen.get(PREFIXES) and not self._has_prefixes(rule):
            del chosen[PREFIXES]
        if preset.fraction_of_static and SHARE not in chosen and self.gpu is not None:
            tokens = self.said(TOKENS) or chosen.get(TOKENS)
            chunk = tokens if isinstance(tokens, int) else 0
            chosen[SHARE] = static_share(self.gpu.memory, chunk, self._gpus())
        return self._within_tokens(rule, {**chosen, **whole})

    def _keeps_rule(self, rule: str) -> bool:
        """Whether the engine's own rule of batching has all that is asked for."""
        of_another = RULES[VllmRule.name].knobs & self.stated(SCHEDULER).keys()
        paged = (self.said(f"{CACHE}.allocator") or PagedAllocator.name) == PagedAllocator.name
        if rule not in RULES or of_another or self._is_special() or not paged:
            return False
        tiers = self.said(f"{CACHE}.host_memory") is not None
        return not self.said(PREFIXES) or (bool(RULES[rule].prefix_cache) and not tiers)

    def _is_special(self) -> bool:
        """Whether prefill and decode are apart, or pipelines have several batches in flight."""
        return self.pool.get("role") in tuple(ROLES) or self._stages() > 1

    def _stages(self) -> int:
        stages = self.pool.get("pipeline_parallel")
        return stages if isinstance(stages, int) else 1

    def _gpus(self) -> int:
        tensor = self.pool.get("tensor_parallel")
        return (tensor if isinstance(tensor, int) else 1) * self._stages()

    def _plans_ahead(self, rule: str) -> bool:
        """Whether planning ahead is modelled with all that is asked for."""
        if RULES[rule].policy(self._by_rank(), True) is None:
            return False
        if rule != VllmRule.name:
            return True
        drafts = self.data.get("speculative")
        drafts = drafts if isinstance(drafts, Mapping) else None
        if self._is_special() or self.said(f"{CACHE}.host_memory") is not None:
            return False
        if drafts is None:
            return True
        in_ranks = self.pool.get("data_parallel") not in (None, 1)
        windows = self.model is not None and bool(self.model.windows)
        cap = self.said(f"{SCHEDULER}.long_prefill_token_threshold")
        of_batch = drafts.get("num_tokens_per_batch_size") is not None
        return not (in_ranks or windows or cap or of_batch or drafts.get("method") == "ngram")

    def _by_rank(self) -> bool:
        order = self.said(f"{SCHEDULER}.order")
        return order in ORDERS and ORDERS[order].preempts_by_rank

    def _has_prefixes(self, rule: str) -> bool:
        """Whether a prefix cache is modelled with all that is asked for."""
        paged = (self.said(f"{CACHE}.allocator") or PagedAllocator.name) == PagedAllocator.name
        tiers = self.said(f"{CACHE}.host_memory") is not None
        if not RULES[rule].prefix_cache or not paged or tiers or self.pool.get("role") == "decode":
            return False
        if self.model is None or self.model.keeps_state:
            return False
        if not self.model.windows:
            return True
        alone = self.data.get("speculative") is None and self._stages() == 1
        return rule == VllmRule.name and alone and not self._by_rank()

    def _within_tokens(self, rule: str, chosen: dict[str, Any]) -> dict[str, Any]:
        """``chosen`` with no more sequences than an iteration has tokens for, under the rules by
        which they share iterations with prompts (vLLM, ``EngineArgs.get_batch_defaults``)."""
        tokens = self.said(TOKENS) or chosen.get(TOKENS)
        if SEQUENCES not in chosen or not isinstance(tokens, int) or rule == "sglang":
            return chosen
        drafts = self.data.get("speculative")
        each = 1
        if isinstance(drafts, Mapping) and isinstance(drafts.get("num_tokens"), int):
            one = 1 + (drafts.get("method") == "draft_model")
            each = one + int(drafts["num_tokens"])
        return {**chosen, SEQUENCES: max(1, min(chosen[SEQUENCES], tokens // each))}


def _is_whole(rule: object) -> bool:
    """Whether a rule never cuts prompts."""
    return isinstance(rule, str) and rule in RULES and not RULES[rule].cuts_prompts
