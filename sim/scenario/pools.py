"""Resolves what rules each pool of a scenario: its own settings, and the scenario's for the rest.

This is the one place where that is decided. Everything above reads the pools from here, and none
by its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sim.errors import UsageError
from sim.scenario.sections.model import ModelChoice
from sim.specs.layout import Layout

if TYPE_CHECKING:
    from sim.scenario.sections.autoscaling import Replicas
    from sim.scenario.sections.contract import Contract
    from sim.scenario.sections.deployment import SchedulerSettings
    from sim.scenario.sections.kv_cache import KvCache
    from sim.scenario.sections.link import GpuLink, GpuNode
    from sim.scenario.sections.lora import LoraSettings
    from sim.scenario.sections.speculation import Speculative

AnyPool = TypeVar("AnyPool")

BOTH, PREFILL, DECODE = "both", "prefill", "decode"
"""The roles of pools."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of one pool of identical replicas; ``first`` is the number of its first one.

    A replica has as many numbers as it has data ranks: each has its own queue, batch and KV cache,
    and is to metrics what a replica without them is. A pipeline has as many as it has stages: one
    of each batch that it has in flight; queue and KV cache are common to them.

    ``price_per_gpu_hour`` is as written: a number, one by GPU, ``catalogue`` or None. ``seed`` is
    that of the run.
    """

    index: int
    first: int
    name: str
    role: str
    model: ModelChoice
    gpu: str
    replicas: int
    weight: float
    scales: Replicas | None
    layout: Layout
    all2all_backend: str
    link: GpuLink | None
    node: GpuNode | None
    power_limit: float | None
    price_per_gpu_hour: float | str | dict[str, float] | None
    engine: str
    scheduler: SchedulerSettings
    kv_cache: KvCache
    max_model_len: int | None
    speculative: Speculative | None
    lora: LoraSettings | None
    seed: int

    @property
    def numbers(self) -> range:
        """The numbers of its replicas, or of their data ranks or batches in flight."""
        return range(self.first, self.first + self.ranks)

    @property
    def engines(self) -> range:
        """The number of each replica: the first of those that it has."""
        return self.numbers[:: self.layout.batches]

    @property
    def ranks(self) -> int:
        """Data ranks of all its replicas, or the batches that they have in flight at once."""
        return self.replicas * self.layout.batches

    @property
    def gpus(self) -> int:
        """GPUs of all its replicas."""
        return self.replicas * self.layout.gpus

    def of(self, scenario: Contract) -> PoolSettings:
        """The pool in its place in another scenario with as many pools."""
        return pools_of(scenario)[self.index]

    def of_the_gpu(self) -> tuple[str, ...]:
        """The keys it sets that another GPU may not be able to have."""
        said = {"link": self.link, "node": self.node, "power_limit": self.power_limit}
        return tuple(key for key, value in said.items() if value is not None)

    def like(self, other: PoolSettings) -> bool:
        """Whether a replica of ``other`` is the same in all that it does and takes."""
        its: dict[str, Any] = {"index": other.index, "first": other.first, "name": other.name}
        its |= {"replicas": other.replicas, "scales": other.scales, "weight": other.weight}
        its |= {"price_per_gpu_hour": other.price_per_gpu_hour}
        return replace(self, **its) == other

    def key(self, name: str) -> str:
        """The dotted key at which the scenario has its ``name``, to override it.

        >>> from sim.scenario import load_scenario
        >>> load_scenario("scenarios/chat.yaml").only_pool.key("replicas")
        'fleet.0.replicas'
        """
        return f"fleet.{self.index}.{name}"


def pools_of(scenario: Contract) -> tuple[PoolSettings, ...]:
    """The pools of ``scenario``, in their order; replicas are numbered through all of them."""
    found: list[PoolSettings] = []
    for index, pool in enumerate(scenario.fleet):
        found.append(
            PoolSettings(
                index=index,
                first=sum(before.ranks for before in found),
                name=pool.name,
                role=pool.role,
                model=scenario.model if pool.model is None else _model(pool.model),
                gpu=pool.gpu,
                replicas=pool.most_replicas,
                weight=pool.weight,
                scales=pool.scales,
                layout=pool.layout,
                all2all_backend=pool.all2all_backend,
                link=pool.link,
                node=pool.node,
                power_limit=pool.power_limit,
                price_per_gpu_hour=pool.price_per_gpu_hour,
                engine=pool.engine or scenario.engine,
                scheduler=pool.scheduler or scenario.scheduler,
                kv_cache=pool.kv_cache or scenario.kv_cache,
                max_model_len=pool.max_model_len or scenario.max_model_len,
                speculative=scenario.speculative,
                lora=scenario.lora,
                seed=scenario.seed,
            )
        )
    return tuple(found)


def _model(path: str) -> ModelChoice:
    """The model of a pool, which was found when the pool was read."""
    return ModelChoice.model_construct(path=path, expert_skew=0.0)


def endpoints_of(scenario: Contract) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Each model of a fleet that serves several, with the classes of requests that ask for it and
    the pools that serve it, by number; empty where there is one model."""
    served = list(dict.fromkeys(pool.model.path for pool in pools_of(scenario)))
    if len(served) == 1:
        return []
    wanted = [item.model or scenario.model.path for item in scenario.workload.classes or ()]
    return [
        (
            model,
            tuple(at for at, its in enumerate(wanted) if its == model),
            tuple(pool.index for pool in pools_of(scenario) if pool.model.path == model),
        )
        for model in served
    ]


def weighted(pools: Sequence[PoolSettings]) -> bool:
    """Whether some replica is to get more of the traffic than another one."""
    return len({pool.weight for pool in pools}) > 1


def only(pools: Sequence[AnyPool]) -> AnyPool:
    """The pool of a fleet that has one; UsageError for what works on a single pool alone."""
    if len(pools) != 1:
        raise UsageError(
            f"fleet: expected one pool, got {len(pools)}; `run`, `find`, `compare` and `sweep` "
            "take several, and `plan --disaggregate` finds two"
        )
    return pools[0]
