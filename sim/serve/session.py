"""Runs a simulation for requests that come one by one, and makes a run of what came.

A session is a scenario's fleet without its traffic. It knows nothing of HTTP and owns no clock:
the caller says what time it is. Times in simulated seconds since the first request.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from math import inf
from typing import Any

from sim.assembly import (
    ReplicaKinds,
    make_autoscaler,
    make_engine,
    make_handovers,
    make_recorder,
    make_steerer,
    make_threads,
    router_of,
)
from sim.errors import UsageError
from sim.loop.client_replicas import withdrawable
from sim.loop.client_rules import PATIENT
from sim.loop.clients import Clients
from sim.loop.clock import Stop
from sim.loop.engine import Engine
from sim.loop.live import (
    LiveFleet,
    LivePipeline,
    LivePrefill,
    LivePrefillRank,
    LiveRank,
    LiveReplica,
    Told,
)
from sim.loop.pipeline import Pipeline
from sim.loop.steering import Action, Command
from sim.metrics.record.run_record import RunRecord
from sim.outages import rules_of
from sim.pools import front_end_of, per_prompt_token_of
from sim.request import Request
from sim.rng import numbered
from sim.scenario import Scenario
from sim.scenario.text.document import Document
from sim.scenario.text.writing import write_yaml
from sim.schedulers import scheduler_class
from sim.schedulers.roles import PrefillRole
from sim.setup import Setup
from sim.simulation import Ended, end_run, play, recorded
from sim.workload import build

CLIENT_KEYS = ("client_timeout", "on_timeout")
"""Scenario keys for the patience of clients."""

LIVE_KINDS = ReplicaKinds(LiveReplica, LiveRank, LivePrefill, LivePrefillRank, LivePipeline)


def without_clients(scenario: Scenario) -> Scenario:
    """``scenario`` without what it says of clients that give up and send again: real ones do that
    by themselves."""
    data = deepcopy(scenario.written())
    for part in (data, *(data["fleet"] if isinstance(data["fleet"], list) else [data["fleet"]])):
        if knobs := part.get("scheduler"):
            part["scheduler"] = {k: v for k, v in knobs.items() if k not in CLIENT_KEYS}
    if scenario.failures is not None:
        outages = data["failures"]
        given = {"outages": outages} if isinstance(outages, list) else outages
        data["failures"] = {**given, "in_flight": "lost"}
    return Scenario.from_document(Document(data, scenario.base, text=write_yaml(data)))


def check(scenario: Scenario) -> None:
    """Raise UsageError for what cannot be served live."""
    for pool in scenario.pools:
        if pool.scales is not None and not pool.scales.min:
            raise UsageError(
                "fleet.replicas.min: 0: a server has a replica at least; give `replicas: {min: 1}`"
            )
        batching = pool.scheduler.batching
        if scheduler_class(batching, folders=scenario.folders).shape.whole:
            raise UsageError(
                f"scheduler.batching: {batching} launches an incomplete batch when no request can "
                "come any more, which a server never knows; serve continuous batching"
            )
    for name in ("prompt_tokens", "output_tokens"):
        if getattr(scenario.assume, name) != 1.0:
            raise UsageError(f"assume.{name}: the lengths of real requests are what they are")
    if scenario.lora is not None:
        raise UsageError("lora: which adapter a real request names is not read; leave it out")
    if scenario.admission is not None:
        raise UsageError("admission: a server takes every request; leave it out")
    if len({pool.model.path for pool in scenario.pools}) > 1:
        raise UsageError("fleet: a server has one model; serve the pools of each on their own")
    if scenario.run.horizon is not None:
        raise UsageError(
            "run.horizon: a server runs until it is stopped; add --set run.horizon=null"
        )


class LiveSession:
    """The fleet of ``setup``, waiting for requests; ``told`` hears of every token, ``lost`` of
    requests whose replica fails."""

    def __init__(
        self, setup: Setup, told: Told, lost: Callable[[Request, str], None] = lambda *_: None
    ) -> None:
        scenario = setup.scenario
        check(scenario)
        self.recorder = make_recorder(setup)
        self._setup = setup
        self.fleet = fleet = LiveFleet(
            router_of(scenario),
            self.recorder,
            front_end=front_end_of(setup.pools),
            told=told,
            lost=lost,
        )
        fleet.handovers = make_handovers(fleet.env, setup, self.recorder)
        fleet.threads = make_threads(setup)
        fleet.per_prompt_token = per_prompt_token_of(setup.pools)
        rules = rules_of(scenario, setup.pools) or PATIENT
        retries = numbered(scenario.seed, "retries")
        self.clients = fleet.clients = Clients(fleet.env, self.recorder, rules, retries)
        self._places = [(pool, number) for pool in setup.pools for number in pool.settings.engines]
        for place in range(len(self._places)):
            self._make(place)
        self.clients.start(fleet, self._make, inf)
        self.scaler = make_autoscaler(fleet.env, setup, fleet, self.recorder, inf)
        self.steerer = make_steerer(fleet.env, setup, fleet, self.clients)
        self.commands: list[Command] = []
        """Actions on replicas, in addition to those of the scenario."""
        fleet.start()

    def _make(self, place: int) -> Engine:
        """A new replica at that place of the fleet."""
        pool, number = self._places[place]
        engine = make_engine(
            self.fleet.env,
            pool,
            number,
            self.recorder,
            LIVE_KINDS,
            leap=self._setup.scenario.run.leap,
            on_finish=self.clients.finished,
        )
        if (handovers := self.fleet.handovers) is not None:
            assert not isinstance(engine, Pipeline)
            handovers.add(engine)
        return self.fleet.put(place, withdrawable(engine, self.clients))

    def steer(self, do: Action, place: int, now: float | None) -> None:
        """Do that to the replica at that ``place`` of the fleet ``now``, or as soon after that as
        is still possible; None: before the first request, at 0."""
        at = 0.0 if now is None else self.fleet.possible(now)
        command = Command(at, do, place)
        self.commands.append(command)
        self.steerer.add(command)
        if now is None:
            self.fleet.begin()
        else:
            self.fleet.advance(at)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps in the words of a scenario."""
        settings = [pool.settings for pool, _ in self._places]
        return [
            {
                "at": at,
                "do": do,
                "pool": settings[place].name,
                "replica": place - settings.index(settings[place]),
            }
            for at, do, place in self.commands
        ]

    @property
    def lasts(self) -> bool:
        """Whether something happens in it without requests, so that it ends when it is stopped."""
        scenario = self._setup.scenario
        told = self.commands or (scenario.steering is not None and scenario.steering.steps)
        return bool(told) or self.scaler is not None or scenario.failures is not None

    def refusal(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """Why no replica could ever serve a request of these lengths; None if each could."""
        whole = Request(-1, 0.0, prompt_tokens, output_tokens)
        prompt = Request(-1, 0.0, prompt_tokens, 1)
        for replica in self.fleet.replicas:
            prefills = isinstance(replica.scheduler, PrefillRole)
            reason = replica.scheduler.refusal(prompt if prefills else whole)
            if reason is not None:
                return reason
        return None

    def horizon(self, now: float) -> float | None:
        """When a run of the same requests is to end, if the session ends ``now``; None: with the
        last of them."""
        return now if self.lasts or self.fleet.outstanding else None

    def record(self, replay: Setup) -> RunRecord:
        """The run that took place, as that of the scenario of ``replay``, whose traffic is what
        came, and whose horizon is that of the session."""
        fleet, clients = self.fleet, self.clients
        traffic = build(replay.scenario, replay.scenario.seed)
        horizon = replay.scenario.run.horizon
        end = fleet.close() if horizon is None else horizon
        scenario = replay.scenario
        tried = clients.went or scenario.failures is not None or scenario.steering is not None
        if horizon is None and tried:
            end = clients.ended
        if self.scaler is not None:
            self.scaler.finish(end)
        self.steerer.finish(end, self.recorder)
        end_run(fleet, self.recorder, end)
        found = recorded(
            replay,
            traffic,
            self.recorder,
            Ended(end, fleet.events, False),
            attempts=clients.rows.rows() if tried else None,
        )
        return found if not len(self.recorder.lookup_rows()) else _with_lookups(found, replay)


def _with_lookups(found: RunRecord, replay: Setup) -> RunRecord:
    """``found`` with what prefix caches missed as the simulation of the trace has it: while a fleet
    serves, it is not known which parts of a prompt later ones will repeat."""
    scenario = replay.scenario
    traffic = build(scenario, scenario.seed)
    again = play(replay, traffic, leap=scenario.run.leap, stop=Stop())
    return replace(found, lookups=again.lookups)
