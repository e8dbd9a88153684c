"""Makes the parts of a run: recorder, replicas, router, clients, hand-overs, admission, autoscaler,
operators.

A simulation of a known traffic and a live session put the same parts together, of the pools of a
prepared scenario.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import simpy

from sim.iteration import Batch, Part
from sim.loop.adapters import ADAPTED
from sim.loop.admission import DeadlineAdmission
from sim.loop.autoscaler import Autoscaler, ScaledPool
from sim.loop.client_replicas import ClientPipeline, ClientRank, ClientReplica
from sim.loop.client_rules import PATIENT
from sim.loop.clients import Clients
from sim.loop.drafts import DRAFTS
from sim.loop.engine import CACHED, Engine
from sim.loop.fleet import Endpoint, Fleet
from sim.loop.front_end import Threads
from sim.loop.handover import HandoverCosts, HandOvers, PrefillRank, PrefillReplica
from sim.loop.lockstep import DRAFTING_RANKS, RANKS, LockStep, Rank
from sim.loop.passes import STAGES
from sim.loop.pipeline import Pipeline
from sim.loop.recorder import Recorder
from sim.loop.replica import Replica
from sim.loop.steering import Command, SteeredReplica, Steerer
from sim.loop.windowed import windowed_columns
from sim.outages import rules_of
from sim.pools import PreparedPool, cold_start_of, handling_of, make_replica_scheduler
from sim.request import Request
from sim.rng import numbered
from sim.routers import Router, make_router
from sim.scaling import (
    DOWN,
    UP,
    Activation,
    Apa,
    ByRate,
    Hpa,
    Keda,
    Kpa,
    Rule,
    SaturationRule,
    Stabiliser,
    Step,
)
from sim.scenario import Scenario
from sim.scenario.pools import endpoints_of, weighted
from sim.scenario.sections.autoscaling import Autoscaling, Replicas, ScalingStep
from sim.scenario.sections.transfer import Transfer
from sim.schedulers import PipelinedPrefill
from sim.schedulers.roles import DecodeRole, PrefillRole
from sim.setup import Setup
from sim.workload import AnyTraffic, OpenTraffic


class ReplicaKinds(NamedTuple):
    """The parts that make a replica."""

    replica: type[Replica]
    rank: type[Rank]
    prefill: type[PrefillReplica]
    prefill_rank: type[PrefillRank]
    pipeline: type[Pipeline]


KINDS = ReplicaKinds(Replica, Rank, PrefillReplica, PrefillRank, Pipeline)
CLIENT_KINDS = ReplicaKinds(ClientReplica, ClientRank, PrefillReplica, PrefillRank, ClientPipeline)
"""Replica classes that support cancellation."""


def make_threads(setup: Setup) -> Threads | None:
    """The threads of front ends that handle one request at a time; None if they handle all at once,
    or prefill and decode are apart."""
    handling = handling_of(setup.pools)
    apart = any(pool.settings.role == DecodeRole.role for pool in setup.pools)
    if not handling or apart:
        return None
    return Threads(handling, sum(len(pool.settings.engines) for pool in setup.pools))


def make_recorder(setup: Setup) -> Recorder:
    """The recorder of a run on the pools of ``setup``."""
    deployments = [pool.deployment for pool in setup.pools]
    windows = max(len(d.model.windows) for d in deployments)
    ranks = any(d.layout.data > 1 for d in deployments)
    drafts = any(d.speculation is not None for d in deployments)
    features = [
        (windows > 0, windowed_columns(windows)),
        (ranks, RANKS),
        (any(d.layout.pipeline > 1 for d in deployments), STAGES),
        (drafts, DRAFTS),
        (ranks and drafts, DRAFTING_RANKS),
        (any(pool.settings.kv_cache.enable_prefix_caching for pool in setup.pools), CACHED),
        (setup.scenario.lora is not None, ADAPTED),
    ]
    return Recorder([columns for there, columns in features if there])


def make_admission(env: simpy.Environment, setup: Setup) -> DeadlineAdmission | None:
    """The admission that refuses requests that would be late; None where none are refused."""
    asked = setup.scenario.admission
    if asked is None:
        return None
    deadline = setup.scenario.slo.ttft
    per_token: dict[int, float] = {}
    for pool in setup.pools:
        tokens = min(pool.limits.max_num_batched_tokens, pool.limits.max_model_len)
        unseen = (0,) * len(pool.deployment.model.windows)
        took = pool.cost.seconds(Batch(0, 0, (Part(tokens, 0),), 1, unseen))
        per_token |= dict.fromkeys(pool.settings.engines, took / tokens)
    limit = math.inf if deadline is None else deadline
    return DeadlineAdmission(env, limit, asked.share, per_token)


def make_autoscaler(
    env: simpy.Environment, setup: Setup, fleet: Fleet, recorder: Recorder, total: float
) -> Autoscaler | None:
    """The autoscaler of the pools of ``setup`` while ``total`` requests arrive; None if no pool is
    scaled."""
    settings = [pool.settings for pool in setup.pools]
    if all(each.scales is None for each in settings):
        return None
    asked = setup.scenario.autoscaling or Autoscaling()
    pools: list[ScaledPool] = []
    first = 0
    for pool in setup.pools:
        own, scales = range(first, first + pool.replicas), pool.settings.scales
        first = own.stop
        if scales is None:
            pools.append(ScaledPool(own, None, pool.replicas, 0.0))
            continue
        start, activation = cold_start_of(pool, asked), None
        if not scales.min:
            fleet.holds = True
            if asked.policy == "keda":
                activation = Activation(asked.polling, asked.cooldown)
        rule = make_rule(asked, scales)
        pools.append(ScaledPool(own, rule, scales.first, start, activation))
    scaler = Autoscaler(
        env,
        fleet,
        pools,
        recorder,
        interval=asked.interval,
        scrape=asked.scrape,
        delay=asked.delay,
        total=total,
    )
    if fleet.clients is not None:
        fleet.clients.scaler = scaler
    return scaler


def make_clients(
    env: simpy.Environment, setup: Setup, traffic: AnyTraffic, recorder: Recorder
) -> Clients | None:
    """The clients of ``traffic``; None where all wait for their answers, and no replica fails."""
    rules = rules_of(setup.scenario, setup.pools)
    patience = traffic.patience if isinstance(traffic, OpenTraffic) else {}
    if rules is None and not patience and setup.scenario.steering is None:
        return None
    return Clients(
        env, recorder, rules or PATIENT, numbered(setup.scenario.seed, "retries"), patience
    )


def make_steerer(env: simpy.Environment, setup: Setup, fleet: Fleet, clients: Clients) -> Steerer:
    """The steerer of the replicas of ``fleet``, for the scenario's steps and those of operators."""
    steering, autoscaling = setup.scenario.steering, setup.scenario.autoscaling or Autoscaling()
    replicas: list[SteeredReplica] = []
    first: dict[str | None, int] = {None: 0}  # the only pool need not be named
    for pool in setup.pools:
        first[pool.settings.name] = len(replicas)
        takes = None if steering is None else steering.cold_start
        start = cold_start_of(pool, autoscaling) if takes is None else takes
        keeps = pool.settings.role != "both" or pool.deployment.layout.pipeline > 1
        numbers = pool.deployment.layout.batches
        scaled = pool.settings.scales is not None
        replicas += [SteeredReplica(start, keeps, numbers, scaled)] * pool.replicas
    found = Steerer(env, fleet, clients, replicas)
    for step in () if steering is None else steering.steps:
        found.add(Command(step.at, step.do, first[step.pool] + step.replica))
    return found


def make_rule(asked: Autoscaling, scales: Replicas) -> Rule:
    """The rule that scales a pool."""
    low, high = scales.min, scales.max
    up, down = steps_of(asked.scale_up) or UP, steps_of(asked.scale_down) or DOWN
    stabiliser = Stabiliser(asked.stabilisation, max(low, 1), high, up=up, down=down)
    match asked.policy:
        case "hpa":
            return Hpa(asked.metric, asked.target, stabiliser)
        case "keda":
            return Keda(asked.metric, asked.target, stabiliser)
        case "kpa":
            return Kpa(asked.metric, asked.target, low, high, asked.stabilisation)
        case "apa":
            return Apa(asked.metric, asked.target, low, high, asked.stabilisation)
        case "slo":
            return ByRate(asked.target, stabiliser)
        case "saturation":
            return SaturationRule(low, high)


def steps_of(asked: Sequence[ScalingStep] | None) -> list[Step]:
    """The steps in which a pool is scaled, as the rules want them."""
    return [Step(step.pods, step.percent, step.period) for step in asked or ()]


def router_of(scenario: Scenario, purpose: str = "routing") -> Router:
    """The router of ``scenario``, which draws from the stream ``purpose``."""
    seed, folders = scenario.seed, scenario.folders
    heeds = weighted(scenario.pools)
    return make_router(scenario.router, seed, folders, purpose, weighted=heeds)


def make_endpoints(setup: Setup, fleet: Fleet) -> dict[int, Endpoint]:
    """The replicas of ``fleet`` that serve the requests of each class, by its number; empty where
    all serve the same model."""
    engines = iter(fleet.replicas)
    own = [[next(engines) for _ in range(pool.replicas)] for pool in setup.pools]
    found: dict[int, Endpoint] = {}
    for model, classes, pools in endpoints_of(setup.scenario):
        router = router_of(setup.scenario, f"routing/{model}")
        endpoint = Endpoint([each for pool in pools for each in own[pool]], router)
        found |= dict.fromkeys(classes, endpoint)
    return found


def make_handovers(env: simpy.Environment, setup: Setup, recorder: Recorder) -> HandOvers | None:
    """Hand-overs of requests between the pools of ``setup``; None where each serves all of a
    request."""
    scenario = setup.scenario
    costs = {
        number: costs_of(pool, scenario.transfer or Transfer())
        for pool in setup.pools
        if pool.settings.role == DecodeRole.role
        for number in pool.settings.engines
    }
    if not costs:
        return None
    first, second = router_of(scenario), router_of(scenario, "routing/decode")
    return HandOvers(env, recorder, costs, (first, second))


def costs_of(pool: PreparedPool, transfer: Transfer) -> HandoverCosts:
    """The costs of handing a request over to a replica of ``pool``. Of a token's KV every byte is
    counted once, however many GPUs keep a copy."""
    deployment = pool.deployment
    token = deployment.model.kv_bytes_per_token(deployment.kv_cache)
    if deployment.drafter is not None:
        own = deployment.drafter.deployment
        token += own.model.kv_bytes_per_token(own.kv_cache)
    return HandoverCosts(
        token=token / transfer.bandwidth,
        block=transfer.per_block,
        latency=transfer.latency,
        block_size=pool.capacity.block_size,
        exposed=None if transfer.mode == "pull" else 1 / deployment.model.num_layers,
        shortest=transfer.min_prompt or 0,
    )


def make_engine(
    env: simpy.Environment,
    pool: PreparedPool,
    number: int,
    recorder: Recorder,
    kinds: ReplicaKinds,
    *,
    leap: bool,
    on_finish: Callable[[Request], None] | None,
) -> Engine:
    """One replica of ``pool``, with its weight and that ``number``; its data ranks or batches in
    flight, if there are several, have that number and those that follow."""
    replica, rank = kinds.replica, kinds.rank
    if pool.settings.role == PrefillRole.role:
        replica, rank = kinds.prefill, kinds.prefill_rank
    ranks = pool.deployment.layout.data
    schedulers = [make_replica_scheduler(pool) for _ in range(ranks)]
    first, cost = schedulers[0], pool.cost
    engine: Engine
    if pool.deployment.layout.pipeline > 1:
        assert isinstance(first, PipelinedPrefill)
        engine = kinds.pipeline(env, number, first, cost, recorder, leap=leap, on_finish=on_finish)
    elif ranks == 1:
        engine = replica(env, number, first, cost, recorder, leap=leap, on_finish=on_finish)
    else:
        own = [
            rank(env, at, each, cost, recorder, leap=leap, on_finish=on_finish)
            for at, each in enumerate(schedulers, number)
        ]
        engine = LockStep(env, own, leap=leap)
    engine.weight = pool.settings.weight
    return engine
