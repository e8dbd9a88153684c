"""Lists the changes of a scenario that a diagnosis tries, and the effort that each takes.

What-ifs are changes that cannot be bought one by one; they show what limits a run. Everything else
is an action: a setting, another precision, more hardware, or less of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from sim import catalog
from sim.deployments import deployment_of
from sim.errors import UsageError
from sim.memory import ALLOCATORS, PagedAllocator
from sim.metrics.fleet.rejection import Rejection
from sim.planning.points.points import Settings
from sim.planning.points.wording import counted
from sim.routers import (
    AFFINE,
    LeastKv,
    LeastOutstanding,
    PrefixAffinity,
    RoundRobin,
    SessionAffinity,
)
from sim.scenario import Scenario
from sim.schedulers import RULES, ChunkedPrefill, VllmRule, VllmV0Rule
from sim.schedulers.abilities import HOST
from sim.schedulers.continuous import CADENCE
from sim.specs.precision import precision_bytes
from sim.specs.recurrent import Recurrent
from sim.workload.traces import find_format

HOST_MEMORY = "100GiB"
"""Memory of the host that is tried for a replica: a part of what a server with such GPUs has."""


class Shortage(NamedTuple):
    """A run's shortage of memory: prompt tokens ``evicted`` from a prefix cache that were looked up
    again, and requests ``preempted``."""

    evicted: int = 0
    preempted: int = 0


class Effort(NamedTuple):
    """The effort of an action. Its effect is divided by ``weight`` before advice is ranked."""

    name: str
    title: str
    weight: float


FLAG = Effort("setting", "a setting of the engine, at its next start", 1.0)
FORMAT = Effort("precision", "another precision: a new checkpoint, and quality to be checked", 2.0)
HARDWARE = Effort("hardware", "twice the GPUs, and so twice the cost", 4.0)
SAVING = Effort("saving", "fewer GPUs, and so a lower cost", 4.0)
DRAFTS = Effort("drafts", "drafted tokens: what is found and accepted depends on your texts", 2.0)
PROBE = Effort("what-if", "cannot be bought alone: it shows what limits the run", 0.0)
SPECULATION: Mapping[str, object] = MappingProxyType(
    {"method": "ngram", "num_tokens": 4, "acceptance_rate": 0.6}
)
LONGER = "max-model-len"
"""The name of the change that accepts longer requests."""

EFFORTS = (FLAG, FORMAT, DRAFTS, HARDWARE, SAVING, PROBE)


@dataclass(frozen=True)
class Counterfactual:
    """One change: its ``settings``, and what the run is ``bound`` by if it helps: of
    what-ifs, and of the change that ends whole batches."""

    name: str
    title: str
    settings: Settings
    effort: Effort
    bound: str = ""


def counterfactuals(
    scenario: Scenario,
    rejection: Rejection | None = None,
    shortage: Shortage | None = None,
    *,
    uneven: bool = False,
) -> list[Counterfactual]:
    """Everything to try, what-ifs first; ``rejection`` has the requests that the scenario rejects,
    if it does, ``shortage`` what it lacked memory for; ``uneven`` if its router sends one replica
    more work than others."""
    parts: tuple[Callable[[Scenario], Iterator[Counterfactual]], ...]
    parts = (_slots, _memory, _experts, _stages, _formats, _guesses, _hardware)
    found = [change for part in parts for change in part(scenario)]
    found += _host(scenario, shortage or Shortage())
    found += _routers(scenario) if uneven else []
    if scenario.speculative is not None:  # some settings do not go with drafts
        found = [change for change in found if _possible(scenario, change.settings)]
    return [*_probes(scenario), *_longer(rejection), *found]


def _longer(rejection: Rejection | None) -> Iterator[Counterfactual]:
    """The ``max_model_len`` that admits what is rejected for its length."""
    length = None if rejection is None else rejection.wanted_length
    if length is not None:
        yield _flag(LONGER, f"max_model_len {length:,}", {"max_model_len": length})


def _probes(scenario: Scenario) -> Iterator[Counterfactual]:
    a = scenario.assume
    yield _probe("memory", "2x GPU memory", "memory", 2 * a.memory, "memory capacity")
    yield _probe("bandwidth", "2x memory bandwidth", "bandwidth", 2 * a.bandwidth,
                 "memory bandwidth")  # fmt: skip
    yield _probe("compute", "2x compute", "compute", 2 * a.compute, "compute")
    if any(pool.layout.linked for pool in scenario.pools):
        yield _probe("link", "2x link bandwidth", "link", 2 * a.link, "links between GPUs")
    if scenario.model.expert_skew:
        yield Counterfactual("even-experts", "experts chosen equally often",
                             {"model.expert_skew": 0}, PROBE, "popular experts")  # fmt: skip
    yield _probe("host", "no host time", "host_time", 0.0, "the engine's host time")


def _probe(name: str, title: str, key: str, value: float, bound: str) -> Counterfactual:
    return Counterfactual(name, title, {f"assume.{key}": value}, PROBE, bound)


def _slots(scenario: Scenario) -> Iterator[Counterfactual]:
    """Batch, token budget and the rule of batching."""
    knobs = scenario.scheduler
    slots, tokens = knobs.max_num_seqs, knobs.max_num_batched_tokens
    policy = knobs.policy_class(scenario.folders)
    if policy.shape.whole:
        lifted = {"scheduler.max_num_batched_tokens": slots} if tokens < slots else {}
        changed = {"scheduler.batching": ChunkedPrefill.name, **lifted}
        change = _flag(ChunkedPrefill.name, f"{ChunkedPrefill.name} batching", changed)
        yield replace(change, bound="padding")
    more: dict[str, object] = {"scheduler.max_num_seqs": 2 * slots}
    if tokens < 2 * slots:
        more["scheduler.max_num_batched_tokens"] = 2 * slots
    yield _flag("more-seats", f"max_num_seqs {2 * slots:,}", more)
    if slots > 1:
        yield _flag("fewer-seats", f"max_num_seqs {slots // 2:,}",
                    {"scheduler.max_num_seqs": slots // 2})  # fmt: skip
    if "max_num_batched_tokens" not in policy.knobs:
        return
    yield _flag("more-tokens", f"max_num_batched_tokens {2 * tokens:,}",
                {"scheduler.max_num_batched_tokens": 2 * tokens})  # fmt: skip
    if tokens // 2 >= max(slots, 0 if knobs.chunked_prefill else _longest(scenario)):
        yield _flag("fewer-tokens", f"max_num_batched_tokens {tokens // 2:,}",
                    {"scheduler.max_num_batched_tokens": tokens // 2})  # fmt: skip
    if "chunked_prefill" not in policy.knobs:
        return
    if RULES[knobs.rule].cuts_prompts:
        word = "whole prompts" if knobs.chunked_prefill else "prompts in chunks"
        switched: dict[str, object] = {"scheduler.chunked_prefill": not knobs.chunked_prefill}
        if knobs.chunked_prefill and (needed := _longest(scenario)) > tokens:
            word += f", max_num_batched_tokens {needed:,}"
            switched["scheduler.max_num_batched_tokens"] = needed
        yield _flag("chunks", word, switched)
    else:
        cuts = {"scheduler.policy": VllmRule.name, "scheduler.chunked_prefill": True}
        yield _flag("chunks", "prompts in chunks", cuts)
    open_to_prompts = CADENCE in policy.knobs and knobs.prefill_schedule_interval == 1
    if open_to_prompts and scenario.only_pool.layout.data > 1:
        yield _flag("cadence", "prompts every 4 iterations", {f"scheduler.{CADENCE}": 4})
    threshold = "long_prefill_token_threshold"
    if (
        knobs.chunked_prefill
        and threshold in policy.knobs
        and not knobs.long_prefill_token_threshold
    ):
        yield _flag("threshold", "long_prefill_token_threshold 1,024",
                    {"scheduler.long_prefill_token_threshold": 1024})  # fmt: skip


def _longest(scenario: Scenario) -> int:
    """The tokens of a batch with which vLLM starts where prompts are whole: those of the longest
    request (``vllm/config/scheduler.py``); 0 for other engines, which have no such rule."""
    if scenario.scheduler.rule not in (VllmRule.name, VllmV0Rule.name):
        return 0
    model = catalog.model(scenario.model.path, scenario.base)
    return scenario.only_pool.max_model_len or model.max_position_embeddings


def _memory(scenario: Scenario) -> Iterator[Counterfactual]:
    """The allocation of the cache, and the router."""
    kv = scenario.kv_cache
    if ALLOCATORS[kv.allocator].reserves_longest:
        yield _flag("paging", "paged KV cache", {"kv_cache.allocator": PagedAllocator.name})
    if kv.gpu_memory_utilization < 0.95 and kv.num_gpu_blocks is None:
        yield _flag("utilization", "gpu_memory_utilization 0.95",
                    {"kv_cache.gpu_memory_utilization": 0.95})  # fmt: skip
    if not kv.enable_prefix_caching and shares_prefixes(scenario):
        yield _flag("prefix-caching", "prefix caching", {"kv_cache.enable_prefix_caching": True})
    if scenario.replicas > 1 and scenario.router != LeastOutstanding.name:
        yield _flag("router", f"router {LeastOutstanding.name}", {"router": LeastOutstanding.name})
    if scenario.replicas > 1 and kv.enable_prefix_caching and shares_prefixes(scenario):
        yield from _affinity(scenario)


def _routers(scenario: Scenario) -> Iterator[Counterfactual]:
    """Routers that deal evenly in other ways than ``LeastOutstanding``: by turns, and by memory."""
    for other in (RoundRobin, LeastKv):
        if scenario.router != other.name:
            yield _flag(other.name, f"router {other.name}", {"router": other.name})


def _affinity(scenario: Scenario) -> Iterator[Counterfactual]:
    """Routers that look for what is cached, for a fleet whose router does not."""
    if scenario.router in AFFINE:
        return
    yield _flag("affinity", f"router {PrefixAffinity.name}", {"router": PrefixAffinity.name})
    if scenario.workload.sessions is not None:
        yield _flag("session-affinity", f"router {SessionAffinity.name}",
                    {"router": SessionAffinity.name})  # fmt: skip


def _host(scenario: Scenario, shortage: Shortage) -> Iterator[Counterfactual]:
    """Memory of the host, where that of the GPU was too small and the host can have a part."""
    kv, pool = scenario.kv_cache, scenario.only_pool
    policy = scenario.scheduler.policy_class(scenario.folders)
    paged = not ALLOCATORS[kv.allocator].reserves_longest
    if kv.host_memory is not None or not HOST.of(policy) or not paged:
        return
    model = catalog.model(scenario.model.path, scenario.base)
    states = any(isinstance(group.attention, Recurrent) for group in model.layers)
    if pool.layout.data > 1 or pool.layout.pipeline > 1 or model.windows or states:
        return
    if kv.enable_prefix_caching and shortage.evicted:
        yield _flag("host-tier", f"prefix cache in {HOST_MEMORY} of the host",
                    {"kv_cache.host_memory": HOST_MEMORY})  # fmt: skip
    if shortage.preempted:
        yield _flag("swap", f"swapping to {HOST_MEMORY} of the host",
                    {"kv_cache.host_memory": HOST_MEMORY, "kv_cache.preemption": "auto"},
                    )  # fmt: skip


def shares_prefixes(scenario: Scenario) -> bool:
    """Whether anything says that prompts begin alike, and a prefix cache could use it."""
    workload, policy = scenario.workload, scenario.scheduler.policy_class(scenario.folders)
    if policy.shape.whole or ALLOCATORS[scenario.kv_cache.allocator].reserves_longest:
        return False
    if workload.trace is None:
        return workload.shared_prefix is not None or workload.sessions is not None
    if workload.trace.columns is not None:
        return False
    return find_format(scenario.path(workload.trace.path), workload.trace.format).names_blocks


def _experts(scenario: Scenario) -> Iterator[Counterfactual]:
    """Other layouts of the GPUs, for a model with experts."""
    pool = scenario.only_pool
    layout = pool.layout
    if layout.ranks == 1 or not catalog.model(scenario.model.path, scenario.base).has_experts:
        return
    whole = layout.expert > 1
    yield _flag("experts", "a part of every expert on each GPU" if whole else
                "whole experts on each GPU", {pool.key("expert_parallel"): not whole})  # fmt: skip
    if layout.pipeline > 1:  # data ranks are no pipelines
        return
    tensor, data, title = layout.ranks, 1, "tensor ranks"
    if layout.tensor > 1:
        tensor, data, title = 1, layout.ranks, "data ranks with a KV cache each"
    keys = ("tensor_parallel", "data_parallel", "expert_parallel")
    values = (tensor, data, whole or data > 1)
    yield _flag("ranks", f"{layout.ranks} {title}",
                dict(zip(map(pool.key, keys), values, strict=True)))  # fmt: skip


def _flag(name: str, title: str, settings: dict[str, object]) -> Counterfactual:
    return Counterfactual(name, title, settings, FLAG)


def _formats(scenario: Scenario) -> Iterator[Counterfactual]:
    p = scenario.precision
    if precision_bytes(p.kv_cache) >= 2:
        yield Counterfactual("kv-fp8", "KV cache in fp8", {"precision.kv_cache": "fp8"}, FORMAT)
    if precision_bytes(p.weights) >= 2:
        eight: Settings = {"precision.weights": "fp8", "precision.activations": "fp8"}
        yield Counterfactual("fp8", "weights and activations in fp8", eight, FORMAT)
        four: Settings = {"precision.weights": "int4", "precision.activations": "bf16"}
        yield Counterfactual("int4", "weights in int4, activations in bf16", four, FORMAT)


def _guesses(scenario: Scenario) -> Iterator[Counterfactual]:
    """Drafts from the text itself, which need no other model, where they can be had; none, where
    there are some, which cost more than they bring in large batches."""
    if scenario.speculative is not None:
        yield _flag("no-drafts", "no drafts", {"speculative": None})
    settings: Settings = {"speculative": dict(SPECULATION)}
    if scenario.speculative is None and _possible(scenario, settings):
        title = "4 drafts from the text (n-gram), each right at 60 %, if it always has a match"
        yield Counterfactual("speculation", title, settings, DRAFTS)


def _possible(scenario: Scenario, settings: Settings) -> bool:
    """Whether ``scenario`` can have them."""
    try:
        changed = scenario.override(settings)
        for pool in changed.pools:
            deployment_of(changed, pool)
    except UsageError:
        return False
    return True


def _stages(scenario: Scenario) -> Iterator[Counterfactual]:
    """The GPUs of a pipeline as tensor ranks."""
    pool = scenario.only_pool
    if pool.layout.pipeline > 1:
        yield _flag("stages", f"{pool.layout.gpus} tensor ranks, no stages",
                    {pool.key("tensor_parallel"): pool.layout.gpus,
                     pool.key("pipeline_parallel"): 1})  # fmt: skip


def _hardware(scenario: Scenario) -> Iterator[Counterfactual]:
    pool = scenario.only_pool
    if pool.replicas > 1:
        fewer = pool.replicas - 1
        yield Counterfactual("fewer-replicas", counted(fewer, "replica"),
                             {pool.key("replicas"): fewer}, SAVING)  # fmt: skip
    yield Counterfactual("replicas", f"{2 * pool.replicas} replicas",
                         {pool.key("replicas"): 2 * pool.replicas}, HARDWARE)  # fmt: skip
    yield Counterfactual(
        "tensor-parallel",
        f"each replica on {2 * pool.layout.gpus} GPUs",
        {pool.key("tensor_parallel"): 2 * pool.layout.tensor},
        HARDWARE,
    )
