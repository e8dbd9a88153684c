"""Prepares the pools of a fleet: what the replicas of each are made of before any request arrives.

A pool has its deployment, its limits, the memory of a replica and the cost model of its iterations.
Metrics take it as it is here, of a simulated run and of an observed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sim.catalog.published import wider_than_published
from sim.cost import CostModel, Deployment
from sim.cost.cost_cache import cost_of
from sim.deployments import deployment_of
from sim.errors import InfeasibleError
from sim.growth.courses import DraftCourses
from sim.growth.sampled import Sampled
from sim.growth.steady import Steady
from sim.growth.windowed import Windowed
from sim.growth.windowed_drafts import WindowedSampled
from sim.host_memory import HostTier, host_tier
from sim.memory import ALLOCATORS, Allocator
from sim.memory.caching import CachingAllocator
from sim.memory.capacity import Capacity, capacity
from sim.memory.drafted import DraftedAllocator, DraftedCachingAllocator
from sim.memory.drafted_windows import DraftedWindowedAllocator
from sim.memory.groups import kv_groups
from sim.memory.hybrid import HybridCachingAllocator
from sim.memory.radix import RadixAllocator
from sim.memory.state_caching import StateCachingAllocator
from sim.memory.stateful import StatefulAllocator
from sim.memory.tiered import TieredAllocator
from sim.memory.windowed import WindowedAllocator
from sim.scaling import cold_start
from sim.scenario import Scenario
from sim.scenario.checks.table import check_limits, check_replica
from sim.scenario.pools import PoolSettings
from sim.scenario.sections.autoscaling import Autoscaling
from sim.schedulers import (
    ROLES,
    RULES,
    AdapterSlots,
    Limits,
    Offloading,
    ReplicaTraits,
    Scheduler,
    make_scheduler,
)
from sim.specs.engine import EngineSpec
from sim.specs.links import host_rate
from sim.units import show_bytes


@dataclass(frozen=True, slots=True)
class PreparedPool:
    """Identical replicas: their ``settings``, their ``limits``, the KV memory of one, and its cost
    model. ``folders`` are those in which a policy of one's own is looked for."""

    settings: PoolSettings
    limits: Limits
    capacity: Capacity
    cost: CostModel
    folders: tuple[Path, ...]
    host: HostTier | None = None
    """Its memory in the host, where it has any."""

    @property
    def deployment(self) -> Deployment:
        """The deployment of one replica, as its cost model times it."""
        return self.cost.deployment

    @property
    def policy(self) -> type[Scheduler]:
        """The class of its scheduler, which says what becomes of a full batch."""
        if self.settings.role in ROLES:
            return ROLES[self.settings.role]
        return self.settings.scheduler.policy_class(self.folders)

    @property
    def replicas(self) -> int:
        """How many there are."""
        return self.settings.replicas

    @property
    def ranks(self) -> int:
        """Data ranks of all of them, or the batches that they have in flight at once; else as
        ``replicas``."""
        return self.settings.ranks

    @property
    def caches(self) -> int:
        """KV caches of all of them, each with a scheduler and a queue."""
        return self.replicas * self.deployment.layout.data

    @property
    def gpus(self) -> int:
        """GPUs of all of them."""
        return self.replicas * self.deployment.layout.gpus

    @property
    def kv_tokens(self) -> int:
        """Tokens of the KV cache of one replica that requests can have, of one group of layers
        (``sim.memory.groups``)."""
        return self.capacity.usable_blocks * self.capacity.block_size

    @property
    def kv_longest(self) -> int:
        """Tokens of the longest request that this holds."""
        return self.capacity.longest

    def with_engine(self, engine: EngineSpec) -> PreparedPool:
        """The pool under another engine; its memory stays."""
        return replace(self, cost=cost_of(replace(self.deployment, engine=engine)))


def cold_start_of(pool: PreparedPool, asked: Autoscaling) -> float:
    """Seconds until a replica of ``pool`` that is started serves."""
    if asked.cold_start is not None:
        return asked.cold_start
    return cold_start(pool.deployment, asked.boot, asked.read_bandwidth)


def front_end_of(pools: Sequence[PreparedPool]) -> float:
    """Seconds that a request spends before the router: in the slowest of their front ends."""
    return max(pool.deployment.engine.front_end for pool in pools)


def per_prompt_token_of(pools: Sequence[PreparedPool]) -> float:
    """Seconds that each token of its prompt adds to that."""
    return max(pool.deployment.engine.per_prompt_token for pool in pools)


def handling_of(pools: Sequence[PreparedPool]) -> float:
    """Seconds for which a request keeps a thread of the slowest of their front ends busy."""
    return max(pool.deployment.engine.per_handled_request for pool in pools)


def streaming_of(pools: Sequence[PreparedPool]) -> float:
    """Seconds for which a token keeps it busy."""
    return max(pool.deployment.engine.per_streamed_token for pool in pools)


def prepare_pool(scenario: Scenario, pool: PoolSettings) -> PreparedPool:
    """``pool`` of ``scenario``, with everything looked up and the memory worked out.

    Raises UsageError for names that do not exist, and InfeasibleError if the model does not fit.
    """
    deployment = deployment_of(scenario, pool)
    limits = _limits(scenario, pool, deployment)
    most = min(limits.max_num_seqs, limits.max_num_batched_tokens)
    engine = deployment.engine.with_graphs_up_to(most)
    if engine is not deployment.engine:
        deployment = replace(deployment, engine=engine)
    kv = pool.kv_cache
    parts = limits.max_num_seqs if ALLOCATORS[kv.allocator].reserves_longest else 1
    memory = capacity(
        deployment,
        block_size=kv.block_size,
        gpu_memory_utilization=kv.gpu_memory_utilization,
        num_gpu_blocks=kv.num_gpu_blocks,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        scale=scenario.assume.kv_blocks,
        windows=not ALLOCATORS[kv.allocator].reserves_longest,
        kv_bytes=kv.memory,
        state_ratio=kv.state_ratio,
        states_each=engine.states_each(cached=kv.enable_prefix_caching),
        context=limits.max_model_len * parts if engine.pool_of_context else None,
    )
    limits = replace(limits, max_num_seqs=max(1, min(limits.max_num_seqs, memory.sequences)))
    if memory.usable_blocks == 0:
        raise _does_not_fit(deployment, memory)
    check_replica(scenario, pool, deployment, memory)
    cost = cost_of(deployment)
    host = host_tier(pool, memory, cost, limits.max_num_batched_tokens)
    return PreparedPool(pool, limits, memory, cost, scenario.folders, host)


def _limits(scenario: Scenario, pool: PoolSettings, deployment: Deployment) -> Limits:
    check_limits(scenario, pool, deployment)
    knobs = pool.scheduler
    caches = pool.kv_cache.enable_prefix_caching
    wanted = pool.max_model_len or deployment.model.max_position_embeddings
    engine, drafts = deployment.engine, deployment.speculation
    pads = engine.pads_lone_tokens and drafts is not None and not drafts.by_batch
    return Limits.of(
        knobs,
        max_model_len=wanted,
        enable_prefix_caching=caches,
        keeps_interval=deployment.layout.data == 1 and knobs.prefill_schedule_interval > 1,
        serves_behind_victim=engine.serves_behind_victim,
        lifts_cap_alone=engine.lifts_cap_alone,
        lone_rows=drafts.width if pads and drafts is not None else 1,
        limits_chunks=engine.limits_chunks,
    )


def _does_not_fit(d: Deployment, memory: Capacity) -> InfeasibleError:
    parts = {
        **{"weights": memory.weights, "activations": memory.activations},
        **{"reserve": memory.reserve, "usable": memory.budget},
        **({"adapters": memory.adapters} if memory.adapters else {}),
    }
    if memory.given:
        return InfeasibleError(
            f"num_gpu_blocks: {memory.num_gpu_blocks} leaves no block for requests, since "
            f"{d.engine.name} keeps {memory.null_blocks} for itself",
            parts=parts,
        )
    gpus = "GPU" if d.layout.gpus == 1 else "GPUs"
    wider = wider_than_published(d)
    adapters = f"{show_bytes(memory.adapters)} adapters " if memory.adapters else ""
    return InfeasibleError(
        f"{d.model.name} does not fit on {d.layout.gpus} {d.gpu.name} {gpus}",
        f"of {show_bytes(memory.budget)} that the engine may use on each, "
        f"{show_bytes(memory.weights)} are weights, {show_bytes(memory.activations)} activations "
        f"{adapters}and {show_bytes(memory.reserve)} reserve, and no KV block is left; use more "
        "GPUs (tensor_parallel), a larger one, or a lower precision of the weights"
        f"{f'. {wider}' if wider else ''}",
        parts=parts,
    )


def make_allocator(
    pool: PreparedPool, host: Offloading | None = None, courses: DraftCourses | None = None
) -> Allocator:
    """An empty KV cache of one replica, with the ``host`` that it has; for sequences on ``courses``
    where tokens are drafted."""
    memory, longest = pool.capacity, pool.limits.max_model_len
    if courses is not None:
        return _drafted_allocator(pool, courses)
    if memory.windowed:
        return _windowed_allocator(pool)
    if memory.state_blocks:
        return _stateful_allocator(pool)
    knobs = pool.settings.kv_cache
    if host is not None and knobs.enable_prefix_caching:
        blocks = memory.usable_blocks
        return TieredAllocator(blocks, memory.block_size, host.memory, host.link)
    if knobs.enable_prefix_caching:
        rule = pool.settings.scheduler.rule
        tree = RULES[rule].prefix_cache == "radix"
        return (RadixAllocator if tree else CachingAllocator).of(
            memory.usable_blocks, memory.block_size, longest
        )
    kind = ALLOCATORS[knobs.allocator]
    return kind.of(memory.usable_blocks, memory.block_size, longest)


def _windowed_allocator(pool: PreparedPool) -> Allocator:
    """The allocator of a model of which layers look through windows."""
    memory = pool.capacity
    blocks, size, groups = memory.usable_blocks, memory.block_size, memory.groups
    most = memory.most_at_once(pool.limits.max_model_len)
    if not pool.settings.kv_cache.enable_prefix_caching:
        return WindowedAllocator(blocks, size, groups, most)
    ends_only = pool.deployment.engine.keeps_window_ends
    return HybridCachingAllocator(blocks, size, groups, most, ends_only=ends_only)


def _stateful_allocator(pool: PreparedPool) -> Allocator:
    """The allocator of a model with a state of each sequence."""
    memory, d = pool.capacity, pool.deployment
    if not pool.settings.kv_cache.enable_prefix_caching:
        return StatefulAllocator(memory.usable_blocks, memory.block_size, memory.state_blocks)
    return StateCachingAllocator(
        memory.usable_blocks,
        memory.block_size,
        kv_groups(d, memory.block_size).states,
        checkpoints=d.keeps_states_inside(),
        ahead=pool.settings.scheduler.plans_ahead,
    )


def _drafted_allocator(pool: PreparedPool, courses: DraftCourses) -> Allocator:
    """The allocator for sequences on ``courses``."""
    memory, longest = pool.capacity, pool.limits.max_model_len
    usable, size = memory.usable_blocks, memory.block_size
    if memory.windowed:
        most = memory.most_at_once(longest)
        return DraftedWindowedAllocator(usable, size, memory.groups, most, longest, courses)
    caches = pool.settings.kv_cache.enable_prefix_caching
    if not caches:
        return DraftedAllocator(usable, size, longest, courses)
    connected = pool.settings.role in ROLES  # by which blocks keep the hashes that they had
    keeps = pool.deployment.engine.keeps_last_found and not connected
    return DraftedCachingAllocator(usable, size, longest, courses, keeps_last_found=keeps)


def adapter_slots(d: Deployment) -> AdapterSlots | None:
    """Empty slots for the adapters of one replica; None where there are none.

    The A and B of each slice of a module are a copy of their own from the host (``set_lora`` in
    ``lora/layers`` of vLLM 0.33); the forward pass waits for all of them.
    """
    if d.lora is None:
        return None
    link = d.gpu.host_link
    copies = sum(2 * module.slices * module.layers for module in d.adapted)
    seconds = d.adapter_bytes / host_rate(link) + copies * link.latency
    return AdapterSlots(d.lora.max_loras, seconds, d.engine.adapters_block)


def make_replica_scheduler(pool: PreparedPool) -> Scheduler:
    """The scheduler of one replica, with its memory."""
    knobs, windows = pool.settings.scheduler, pool.deployment.model.windows
    host = None if pool.host is None else pool.host.offloading()
    speculation, courses = pool.deployment.speculation, None
    decoding: Callable[[], Steady] = (lambda: Windowed(windows)) if windows else Steady
    if speculation is not None:
        courses = DraftCourses(speculation, pool.settings.seed, ahead=knobs.plans_ahead)
        decoding = partial(Sampled, courses)
        if windows:
            decoding = partial(WindowedSampled, courses, windows)
    return make_scheduler(
        knobs.batching,
        pool.limits,
        make_allocator(pool, host, courses),
        order=knobs.order,
        rule=knobs.rule,
        ahead=knobs.plans_ahead,
        folders=pool.folders,
        traits=ReplicaTraits(
            decoding,
            pool.deployment.layout.pipeline,
            host,
            pool.settings.role,
            adapter_slots(pool.deployment),
        ),
    )
