"""Lists what does not go with a replica: its model, the engine, and the memory that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.scenario.checks.subjects import (
    AHEAD,
    BY_RANK,
    DATA_RANKS,
    PIPELINES,
    WITHOUT_BLOCKS,
    LoadedPool,
)
from sim.scenario.clash import Chapter, Clash, Subject, itself
from sim.scenario.pools import BOTH
from sim.schedulers import POLICIES, RULES, ChunkedPrefill, VllmRule, follows_rule
from sim.schedulers.abilities import HOST
from sim.schedulers.continuous import CADENCE
from sim.schedulers.ranked import RankedPrefill
from sim.schedulers.tensorrt import RANKS

if TYPE_CHECKING:
    from sim.memory.capacity import Capacity
    from sim.schedulers import Scheduler
    from sim.specs.deployment import Deployment
    from sim.specs.model import ModelSpec


@dataclass(frozen=True)
class OneReplica(LoadedPool):
    """A replica of one pool: its ``deployment``."""

    deployment: Deployment

    @property
    def policy(self) -> type[Scheduler]:
        """The class of its scheduler."""
        return self.knobs.policy_class(self.scenario.folders)

    @property
    def model(self) -> ModelSpec:
        """The model of the replica."""
        return self.deployment.model

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return self.pool.max_model_len or self.model.max_position_embeddings


@dataclass(frozen=True)
class FilledReplica(OneReplica):
    """A replica with its ``memory``."""

    memory: Capacity

    @property
    def fitting(self) -> str:
        """The rule that has the prefix cache which is asked for."""
        return next(r.name for r in RULES.values() if r.prefix_cache == self.kv.prefix_policy)


def _keeps_own(replica: OneReplica) -> bool:
    return replica.knobs.prefill_schedule_interval != 1 and replica.layout.data == 1


LIMITS: Chapter[OneReplica, OneReplica] = Chapter(
    "limits of a replica",
    itself,
    Clash(
        "max_model_len beyond what the model is made for",
        lambda r: (
            r.longest > r.model.max_position_embeddings and not r.scenario.allow_long_max_model_len
        ),
        "{longest:,} tokens are more than {model.made_for}; allow_long_max_model_len: true takes "
        "them all the same (--set allow_long_max_model_len=true)",
        where=("max_model_len",),
    ),
    Clash(
        "compressed rows by a release without kernels for them",
        lambda r: r.model.attends_rows and not r.deployment.engine.attends_rows,
        "{deployment.engine.label} has no attention to compressed rows, which {model.name} needs",
        "vllm has it since release 0.20, sglang since 0.5.11, tensorrt-llm since 1.3",
        ("engine",),
    ),
    Clash(
        "a cadence of prompts without data ranks",
        lambda r: _keeps_own(r) and not r.deployment.engine.keeps_interval,
        "only data ranks keep a cadence, and data_parallel is 1",
        "vllm keeps one without them since release 0.33, and this is {deployment.engine.label}",
        ("prefill_schedule_interval",),
    ),
    Clash(
        "a cadence of prompts with several batches in flight, or memory in the host",
        lambda r: _keeps_own(r) and (r.layout.pipeline > 1 or r.kv.host_memory is not None),
        "without data ranks a cadence is modelled for neither pipelines nor host_memory",
        where=("prefill_schedule_interval",),
    ),
    Clash(
        "a cadence of prompts by another scheduler than vLLM's",
        lambda r: r.knobs.prefill_schedule_interval != 1 and CADENCE not in r.policy.knobs,
        "{knobs.batching} batching with the order {knobs.order} keeps no cadence",
        "use continuous batching by vLLM's rule and an order that does not preempt by rank",
        ("prefill_schedule_interval",),
    ),
    Clash(
        "prompts that wait for company on data ranks",
        lambda r: bool(r.knobs.batch_wait_timeout_iters) and r.layout.data > 1,
        "TensorRT-LLM lets no prompt wait where attention is split by requests, and "
        "data_parallel is {layout.data}",
        where=("batch_wait_timeout_iters",),
    ),
    Clash(
        "ranks that wait for each other, of which there is one",
        lambda r: bool(r.knobs.attention_dp_timeout_iters) and r.layout.data == 1,
        "only data ranks wait for each other, and data_parallel is 1",
        where=(RANKS,),
    ),
)


def _in_small_pages(replica: FilledReplica) -> bool:
    knobs = replica.knobs
    cuts = replica.rule.in_pages and knobs.chunked_prefill and follows_rule(knobs.batching)
    return cuts and knobs.max_num_batched_tokens < replica.memory.block_size


STATES: Chapter[FilledReplica, FilledReplica] = Chapter(
    "models with a state",
    itself,
    Clash(
        "a policy that counts pages, and iterations smaller than the state",
        _in_small_pages,
        "policy {knobs.rule} cuts prompts into whole blocks, and a block of {model.name}, "
        "which is as large as its state, has {memory.block_size:,} tokens: more than "
        "{knobs.max_num_batched_tokens:,}",
        "give it {memory.block_size:,} or more",
        ("max_num_batched_tokens",),
    ),
)

CACHE = ("kv_cache.enable_prefix_caching",)
OF_WINDOWS = "for models with windows or a state"


def _whole_prompts(replica: FilledReplica) -> bool:
    batching = replica.knobs.batching
    return batching in POLICIES and POLICIES[batching].shape.whole


def _ranked(replica: FilledReplica) -> bool:
    policy = replica.policy
    return not issubclass(policy, ChunkedPrefill) or issubclass(policy, RankedPrefill)


def _behind_windows(
    other: str, when: Callable[[FilledReplica], bool], says: str, hint: str = ""
) -> Clash[FilledReplica]:
    return Clash(f"windows and {other}", lambda r: r.memory.hybrid and when(r), says, hint, CACHE)


CACHES: Chapter[FilledReplica, FilledReplica] = Chapter(
    "a prefix cache",
    lambda replica: (replica,) if replica.kv.enable_prefix_caching else (),
    Clash(
        *WITHOUT_BLOCKS,
        "a prefix cache needs blocks; allocator {kv.allocator} has none",
        where=CACHE,
    ),
    Clash(
        "batching of whole batches",
        _whole_prompts,
        "batching {knobs.batching} starts every prompt at its beginning",
        where=CACHE,
    ),
    Clash(
        "the rule of another engine than vLLM and SGLang",
        lambda r: not r.rule.prefix_cache,
        "vLLM's goes with `scheduler.policy: vllm` and SGLang's with sglang; none is modelled "
        "for {knobs.rule}",
        where=CACHE,
    ),
    Clash(
        "prefix_policy of another engine",
        lambda r: r.kv.prefix_policy not in (None, r.rule.prefix_cache),
        "{kv.prefix_policy} is the prefix cache of `scheduler.policy: {fitting}`",
        "{knobs.rule} has {rule.prefix_cache}",
        ("kv_cache.prefix_policy",),
    ),
    Clash(
        "models with a state",
        lambda r: (
            bool(r.memory.state_blocks or r.memory.states) and not r.deployment.engine.cached_states
        ),
        "not modelled for models with a state, such as {model.name}",
        "vLLM has it off for them by default, too (mamba_cache_mode: none); asked for, it "
        "keeps states at the ends of blocks (all or align, experimental)",
        CACHE,
    ),
    _behind_windows(
        "SGLang's tree",
        lambda r: r.rule.prefix_cache == "radix",
        f"SGLang's is not modelled {OF_WINDOWS}: its tree for them locks and evicts what "
        "windows see apart from what other layers see",
        "use policy: vllm",
    ),
    _behind_windows(
        "drafts",
        lambda r: r.pool.speculative is not None,
        f"not modelled {OF_WINDOWS} whose tokens are drafted: blocks behind a window would go "
        "back before the drafts in them are checked",
        "leave out the one or the other",
    ),
    _behind_windows(
        *PIPELINES,
        f"not modelled {OF_WINDOWS} over the stages of a pipeline: a batch in flight still "
        "reads the blocks behind a window that the next one gives back",
        "use pipeline_parallel: 1",
    ),
    _behind_windows(
        "an order that preempts by rank, or another policy",
        _ranked,
        f"{OF_WINDOWS} it goes with continuous batching by `policy: {VllmRule.name}` and an "
        "order that does not preempt by rank, not with policy {knobs.rule} and order "
        "{knobs.order}",
    ),
)


WINDOWS: Chapter[FilledReplica, FilledReplica] = Chapter(
    "models with windows or a state",
    itself,
    Clash(
        "drafts and plans made ahead",
        lambda r: (
            r.memory.windowed and r.deployment.speculation is not None and r.knobs.plans_ahead
        ),
        "drafts of models with windows, such as {model.name}, are not modelled with plans made "
        "ahead",
        where=("async_scheduling",),
    ),
    Clash(
        "a state_ratio and no pool of states",
        lambda r: r.kv.state_ratio is not None and not r.memory.states,
        "{model.name} by {deployment.engine.name} has no pool of states that memory is split with",
        "leave it out",
        ("kv_cache.state_ratio",),
    ),
    Clash(
        "windows and pools of one phase",
        lambda r: r.pool.role != BOTH and r.memory.windowed,
        "a hand-over of KV is not modelled for models with windows, such as {model.name}",
        where=("fleet",),
    ),
    Clash(
        "a state and pools of one phase",
        lambda r: r.pool.role != BOTH and bool(r.memory.state_blocks or r.memory.states),
        "a hand-over of KV is not modelled for models with a state, such as {model.name}",
        where=("fleet",),
    ),
)


def _unhosted(
    other: str, when: Callable[[FilledReplica], bool], says: str, hint: str = ""
) -> Clash[FilledReplica]:
    return Clash(other, when, says, hint, ("kv_cache.host_memory",))


def _unhosted_model(kind: str, when: Callable[[FilledReplica], bool]) -> Clash[FilledReplica]:
    return _unhosted(
        f"models with {kind}",
        when,
        f"not modelled for models with {kind}, such as {{model.name}}: a block in the host is one "
        "of all layers here, and vLLM keeps the blocks of each kind of layers apart there, each "
        "with a rule of its own for what is found",
        "leave it out",
    )


def _unhosted_policy(
    other: str, when: Callable[[FilledReplica], bool], why: str
) -> Clash[FilledReplica]:
    return _unhosted(
        other,
        lambda r: not HOST.of(r.policy) and when(r),
        "modelled for `policy: vllm` without async_scheduling and without an order that preempts "
        f"by rank: {why}",
    )


HOSTS: Chapter[FilledReplica, FilledReplica] = Chapter(
    "memory in the host",
    lambda replica: () if replica.kv.host_memory is None else (replica,),
    _unhosted(*WITHOUT_BLOCKS, "allocator {kv.allocator} has no blocks to move"),
    _unhosted_model("windows", lambda r: r.memory.windowed),
    _unhosted_model("a state", lambda r: bool(r.memory.state_blocks or r.memory.states)),
    _unhosted(
        *DATA_RANKS,
        "not modelled for data ranks, each of which has memory of its own there in vLLM while "
        "all of them step together",
        "give each replica one (data_parallel: 1)",
    ),
    _unhosted(
        *PIPELINES,
        "not modelled for a pipeline: its batches overlap, and so would what each stage loads "
        "and stores",
        "give each replica one stage (pipeline_parallel: 1)",
    ),
    _unhosted_policy(
        "batching of whole batches",
        lambda r: r.knobs.batching != ChunkedPrefill.name,
        "{knobs.batching} batching loads and stores nothing between iterations",
    ),
    _unhosted_policy(
        "the rule of another engine than vLLM",
        lambda r: r.knobs.rule != VllmRule.name,
        "{knobs.rule} has a rule of its own for what it moves, and when",
    ),
    _unhosted_policy(
        *AHEAD,
        "an iteration that is planned ahead begins before the blocks are written that a "
        "preempted request would move, and before those are there that another one loads",
    ),
    _unhosted_policy(
        *BY_RANK,
        "order: {knobs.order} may preempt a request in the iteration that loads its blocks, "
        "while they are on their way",
    ),
)


FILLED: tuple[Chapter[FilledReplica, FilledReplica], ...] = (
    STATES,
    CACHES,
    WINDOWS,
    HOSTS,
)
"""Clashes of a replica with its memory."""


@dataclass(frozen=True)
class ServedModels(Subject):
    """The models of a fleet, each with whether it has windows or a state."""

    kept: Mapping[str, bool]

    @property
    def odd(self) -> str:
        """The pools that have it, in words."""
        return ", ".join(name for name, has in self.kept.items() if has)

    @property
    def others(self) -> str:
        """The pools that do not have it, in words."""
        return ", ".join(name for name, has in self.kept.items() if not has) or "another"


MODELS: Chapter[ServedModels, ServedModels] = Chapter(
    "several models in one fleet",
    itself,
    Clash(
        "models with windows or a state",
        lambda m: any(m.kept.values()) and len(m.kept) > 1,
        "models with windows or a state ({odd}) are not modelled next to others ({others}) yet",
        "give each a scenario of its own",
        ("fleet",),
    ),
)
