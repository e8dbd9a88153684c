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
from sim.errors import InfersimError, UsageError
from sim.memory import PagedAllocator
from sim.memory.static_share import static_share
from sim.scenario.text.document import Document
from sim.scenario.text.parsing import scalar
from sim.scenario.values.fields import LARGEST_COUNT, read_switch
from sim.schedulers import ORDERS, ROLES, RULES, ChunkedPrefill, VllmRule, follows_rule
from sim.schedulers.orders import FirstCome
from sim.schedulers.roles import DecodeRole
from sim.specs.engine import CHOICES, EngineSpec
from sim.specs.gpu import GpuSpec
from sim.specs.model import ModelSpec
from sim.units import Bytes, Share

Plain = Mapping[str, Any]

SCHEDULER, CACHE = "scheduler", "kv_cache"
"""The sections that an engine chooses in, and a pool may have of its own."""
OF_RULES = f"{SCHEDULER}."
PREFIXES = f"{CACHE}.enable_prefix_caching"
SEQUENCES, TOKENS = f"{SCHEDULER}.max_num_seqs", f"{SCHEDULER}.max_num_batched_tokens"
BLOCKS = f"{CACHE}.block_size"
POLICY, CHUNKED = f"{SCHEDULER}.policy", f"{SCHEDULER}.chunked_prefill"
AHEAD = f"{SCHEDULER}.async_scheduling"
SHARE = f"{CACHE}.gpu_memory_utilization"
UNCUT_TOKENS = 16_384
"""Tokens of an iteration of prompts that SGLang does not cut, by default."""


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
    if pool.get("role") in tuple(ROLES) and asked.said(BLOCKS) is None:
        # KV is handed over block by block: one size for all, that of the scenario's engine
        size = (usual.get(CACHE) or {}).get("block_size")
        mine[CACHE] = {**mine.get(CACHE, {}), "block_size": size}
        if size is None:
            del mine[CACHE]["block_size"]
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
    """The settings of a ``pool`` of the scenario ``data``."""

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

    @property
    def drafts(self) -> Plain | None:
        """How tokens are drafted; None where they are not."""
        drafts = self.data.get("speculative")
        return drafts if isinstance(drafts, Mapping) else None

    def stated(self, section: str) -> dict[str, Any]:
        """The written part of a section: of the pool, and of the scenario for the rest. A choice of
        the engine that is null is not written."""
        found: dict[str, Any] = {}
        for written in (self.data.get(section), self.pool.get(section)):
            for name, value in (written or {}).items():
                if value is not None or f"{section}.{name}" not in CHOICES:
                    found[name] = value
        return found

    def said(self, key: str) -> Any:
        """The value of a dotted key, None where it is left out."""
        section, _, name = key.partition(".")
        return self.stated(section).get(name)

    def named(self, key: str, default: str = "") -> str:
        """The name at a dotted key; ``default`` where there is none."""
        name = self.said(key)
        return name if isinstance(name, str) and name else default

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
        preset, rule = self.preset, self.named(POLICY)
        uncut = {CHUNKED: False} if rule in RULES and not RULES[rule].cuts_prompts else {}
        if preset is None:
            return uncut
        chosen = {} if self.gpu is None else preset.defaults_on(self.gpu.title, self.gpu.memory)
        batching = self.named(f"{SCHEDULER}.batching", ChunkedPrefill.name)
        if ":" in batching:
            return self._of_own_policy(preset, chosen)
        if not follows_rule(batching):
            kept = {key: each for key, each in chosen.items() if not key.startswith(OF_RULES)}
            return {key: each for key, each in kept.items() if key != PREFIXES}
        if self.said(POLICY) is None and self._keeps_rule(preset.policy):
            rule = chosen[POLICY] = preset.policy
        rule = rule if rule in RULES else VllmRule.name
        own = preset.policy or VllmRule.name
        if preset.plans_ahead and rule == own:
            chosen |= self._planning(rule)
        if chosen.get(PREFIXES) and not self._has_prefixes(rule):
            del chosen[PREFIXES]
        if self.pool.get("role") in tuple(ROLES):  # SGLang joins pages that it hands over
            chosen.pop(f"{CACHE}.block_size", None)
        if preset.fraction_of_static and SHARE not in chosen and self.gpu is not None:
            share = self._static_share(self.gpu.memory, chosen)
            if share > 0:  # else SGLang starts only with a share that is stated
                chosen[SHARE] = share
        return self._within_tokens(rule, {**chosen, **uncut})

    def _of_own_policy(self, preset: EngineSpec, chosen: Plain) -> dict[str, Any]:
        """What of the engine's choices holds for a policy of the user's own: memory, the limits of
        an iteration, and vLLM's prefix cache where all layers see the whole context."""
        limits = (SEQUENCES, TOKENS, PREFIXES)
        kept = {k: v for k, v in chosen.items() if not k.startswith(OF_RULES) or k in limits}
        plain = self.model is not None and not self.model.windows and not self.model.keeps_state
        if preset.policy or not plain or not self._has_prefixes(VllmRule.name):
            kept.pop(PREFIXES, None)
        return self._within_tokens(VllmRule.name, kept)

    def _keeps_rule(self, rule: str) -> bool:
        """Whether the engine's own rule of batching has all that is asked for."""
        stated = {key for key, value in self.stated(SCHEDULER).items() if value is not None}
        of_another = RULES[VllmRule.name].knobs & stated
        if rule not in RULES or of_another or self._is_special() or not self._is_paged():
            return False
        tiers = self.said(f"{CACHE}.host_memory") is not None
        return not _switch(self.said(PREFIXES)) or (bool(RULES[rule].prefix_cache) and not tiers)

    def _is_paged(self) -> bool:
        """Whether memory is in blocks."""
        return self.named(f"{CACHE}.allocator", PagedAllocator.name) == PagedAllocator.name

    def _is_special(self) -> bool:
        """Whether prefill and decode are apart, or pipelines have several batches in flight."""
        return self.pool.get("role") in tuple(ROLES) or self._stages() > 1

    def _parts(self, key: str) -> int:
        """How many parts a key of the pool's layout asks for; 1 where it is left out."""
        return _count(self.pool.get(key)) or 1

    def _stages(self) -> int:
        return self._parts("pipeline_parallel")

    def _static_share(self, memory: Bytes, chosen: Plain) -> Share:
        """The share of ``memory`` that SGLang takes with these limits of a batch."""
        cut = _switch(self.said(CHUNKED)) is not False
        asked = TOKENS if cut else f"{SCHEDULER}.max_prefill_tokens"
        chunk = _count(self.said(asked)) or chosen.get(asked, UNCUT_TOKENS)
        method = None if self.drafts is None else str(self.drafts.get("method"))
        ranks = self._parts("data_parallel")
        tensor = self._parts("tensor_parallel") * ranks
        return static_share(memory, chunk, tensor, self._stages(), ranks=ranks, drafts=method)

    def _planning(self, rule: str) -> dict[str, bool]:
        """The choice to plan ahead under ``rule``, empty where it is not modelled. vLLM itself
        turns it off for n-gram drafts (vllm/config/vllm.py)."""
        if self.drafts is not None and self.drafts.get("method") == "ngram":
            return {AHEAD: False}
        return {AHEAD: True} if self._plans_ahead(rule) else {}

    def _plans_ahead(self, rule: str) -> bool:
        """Whether planning ahead is modelled with all that is asked for."""
        if RULES[rule].policy(self._by_rank(), True) is None:
            return False
        if rule != VllmRule.name:
            return True
        drafts = self.drafts
        if self._is_special() or self.said(f"{CACHE}.host_memory") is not None:
            return False
        if drafts is None:
            return True
        in_ranks = self._parts("data_parallel") > 1
        windows = self.model is not None and bool(self.model.windows)
        cap = self.said(f"{SCHEDULER}.long_prefill_token_threshold")
        of_batch = drafts.get("num_tokens_per_batch_size") is not None
        return not (in_ranks or windows or cap or of_batch)

    def _by_rank(self) -> bool:
        """Whether requests may be preempted for a rank: perhaps, by an order that is not found."""
        order = self.named(f"{SCHEDULER}.order", FirstCome.name)
        try:
            return ORDERS.find(order, Document({}, self.base or Path()).folders).preempts_by_rank
        except InfersimError:
            return True

    def _has_prefixes(self, rule: str) -> bool:
        """Whether a prefix cache is modelled with all that is asked for."""
        tiers = self.said(f"{CACHE}.host_memory") is not None
        paged = self._is_paged() and not tiers
        if not RULES[rule].prefix_cache or not paged or self.pool.get("role") == DecodeRole.role:
            return False
        if self.model is None or (
            self.model.keeps_state and not (self.preset and self.preset.cached_states)
        ):
            return False
        in_blocks = self.model.keeps_state and not (
            self.preset and self.preset.fraction_of_static  # which has a pool of states
        )
        if not (self.model.windows or in_blocks):
            return True
        alone = self.data.get("speculative") is None and self._stages() == 1
        return rule == VllmRule.name and alone and not self._by_rank()

    def _within_tokens(self, rule: str, chosen: dict[str, Any]) -> dict[str, Any]:
        """``chosen`` with no more sequences than an iteration has tokens for, under the rules by
        which they share iterations with prompts (vLLM, ``EngineArgs.get_batch_defaults``)."""
        tokens = _count(self.said(TOKENS)) or chosen.get(TOKENS)
        mixed = _switch(self.said(f"{SCHEDULER}.enable_mixed_chunk"))
        apart = "enable_mixed_chunk" in RULES[rule].knobs and not mixed
        if SEQUENCES not in chosen or tokens is None or apart:
            return chosen
        drafts = self.drafts
        drafted = None if drafts is None else _count(drafts.get("num_tokens"))
        each = 1
        if drafts is not None and drafted is not None:
            each = 1 + (drafts.get("method") == "draft_model") + drafted
        return {**chosen, SEQUENCES: max(1, min(chosen[SEQUENCES], tokens // each))}


def _count(value: object) -> int | None:
    """A whole number as it is written; None for none, and for what validation will refuse."""
    number = scalar(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return int(number) if 1 <= number <= LARGEST_COUNT else None


def _switch(value: object) -> bool | None:
    """True or false as it is written; None for neither."""
    try:
        return read_switch(value)
    except ValueError:
        return None
