"""Looks up what each replica of a pool is: model, GPUs and their links, engine, layout, drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from sim import catalog
from sim.catalog.relatives import inherited
from sim.cost import Deployment
from sim.cost.best_drafts import best_by_batch
from sim.cost.measured import Identity
from sim.errors import UsageError
from sim.scenario import Scenario
from sim.scenario.checks.table import check_drafts
from sim.scenario.pools import PoolSettings
from sim.scenario.sections.speculation import by_batch
from sim.schedulers import POLICIES
from sim.schedulers.ahead import Ahead
from sim.specs.drafter import drafter_of
from sim.specs.engine import EngineWish
from sim.specs.gpu import GpuSpec
from sim.specs.links import limited
from sim.specs.lora import Lora
from sim.specs.model import ModelSpec
from sim.specs.speculation import Speculation


def deployment_of(scenario: Scenario, pool: PoolSettings) -> Deployment:
    """The deployment of a pool's replicas; UsageError where its GPUs cannot share the model."""
    base, assume = scenario.base, scenario.assume
    knobs, layout, lora = pool.scheduler, pool.layout, pool.lora
    wish = EngineWish(
        marlin=scenario.moe_backend == "marlin",
        triton=scenario.attention_backend == "triton",
        ahead=_plans_ahead(scenario, pool),
        eager=knobs.enforce_eager,
        prompt_graphs=knobs.prompt_graphs,
    )
    engine = catalog.engine(pool.engine, base)
    if lora is not None and engine.kernels == "sglang":
        wish = wish._replace(prompt_graphs=False)  # off with adapters (0.5.10 to 0.5.23)
    try:
        model = pool.model.spec(base).with_states(scenario.precision.state)
        special = model.is_latent or layout.data > 1 or layout.pipeline > 1
        engine = engine.asked(wish, special)
        deployment = Deployment(
            model=model,
            gpu=_scaled(
                Identity(_as_built(catalog.gpu(pool.gpu, base, engine.kernels), pool)),
                *(assume.memory, assume.bandwidth, assume.compute, assume.link),
            ),
            engine=engine.scaled(assume.host_time / scenario.host.speed),
            weights=scenario.precision.weights,
            activations=scenario.precision.activations,
            kv_cache=scenario.precision.kv_cache,
            layout=layout,
            kernel_time=assume.kernel_time,
            experts=scenario.precision.experts,
            expert_inputs=scenario.precision.expert_inputs,
            static=scenario.precision.quantisation == "static",
            all2all=pool.all2all_backend,
            sorts=scenario.sampling == "sorted",
            lora=None
            if lora is None
            else Lora(lora.adapters, lora.rank, lora.max_loras, lora.targets),
        )
        return _speculating(deployment, scenario, pool)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _plans_ahead(scenario: Scenario, pool: PoolSettings) -> bool | None:
    """Whether iterations are planned while others run; None leaves it to the engine. A policy of
    one's own does so where it is made of ``Ahead``."""
    knobs = pool.scheduler
    if knobs.batching in POLICIES:
        return knobs.async_scheduling
    return issubclass(POLICIES.find(knobs.batching, scenario.folders), Ahead)


@lru_cache(maxsize=16)
def _scaled(
    gpu: Identity[GpuSpec], memory: float, bandwidth: float, compute: float, link: float
) -> GpuSpec:
    """``gpu`` with other numbers, the same one each time: its kernels are timed once."""
    return gpu.it.scaled(memory, bandwidth, compute, link)


def _speculating(d: Deployment, scenario: Scenario, pool: PoolSettings) -> Deployment:
    """``d`` with what drafts for it, if anything does; ValueError where that is not possible."""
    guesses = pool.speculative
    if guesses is None:
        return d
    model = None
    if guesses.draft_model is not None:
        model = catalog.model(guesses.draft_model, scenario.base)
    drafted = with_drafts(d, guesses.method, guesses.rates, model, guesses.match)
    table, most = guesses.num_tokens_per_batch_size, pool.scheduler.max_num_seqs
    if table is None:
        return drafted
    if table == "best":
        longest = pool.max_model_len or d.model.max_position_embeddings
        found = best_by_batch(drafted, most, longest)
    else:
        found = by_batch(table, most)
    assert drafted.speculation is not None
    return replace(drafted, speculation=replace(drafted.speculation, by_batch=found))


def with_drafts(
    d: Deployment,
    method: str,
    rates: Sequence[float],
    model: ModelSpec | None,
    match: float = 1.0,
) -> Deployment:
    """``d`` with tokens drafted by ``method``, or by ``model``, one for each of the ``rates`` at
    which they are accepted, in the share ``match`` of all iterations; ValueError where that is not
    possible."""
    check_drafts(d, method, model)
    drafter = drafter_of(d, method, model)
    given = Speculation(method, len(rates), tuple(rates), match=match)
    return replace(d, speculation=given, drafter=drafter)


def _as_built(gpu: GpuSpec, pool: PoolSettings) -> GpuSpec:
    """``gpu`` with the links and the power limit of a pool; ValueError where it lacks them."""
    if pool.link is not None:
        gpu = pool.link.on(gpu)
    if pool.node is not None:
        gpu = pool.node.of(gpu)
    if pool.power_limit is None:
        return gpu
    slower = limited(gpu, pool.power_limit)
    if gpu.profile is None:
        return slower
    return replace(slower, profile=inherited(gpu.profile, gpu, slower))
