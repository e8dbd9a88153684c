"""Runs a simulation for requests that come one by one, and makes a run of what came.

A session is a scenario's fleet without its traffic. It knows nothing of HTTP and owns no clock:
whoever drives it says what time it is. Times in simulated seconds since the first request.
"""

from __future__ import annotations

from functools import partial

from sim.errors import UsageError
from sim.loop.live import LiveFleet, LiveRank, LiveReplica, Told
from sim.metrics.run_record import RunRecord
from sim.pools import front_end_of
from sim.request import Request
from sim.routers import make_router
from sim.schedulers import scheduler_class
from sim.simulation import Setup, make_engine, make_recorder, recorded
from sim.workload import build


def check(setup: Setup) -> None:
    """Raise UsageError for what cannot be served live."""
    scenario = setup.scenario
    for pool in scenario.pools:
        batching = pool.scheduler.batching
        if scheduler_class(batching, folders=scenario.folders).shape.whole:
            raise UsageError(
                f"scheduler.batching: {batching} launches an incomplete batch when no request can "
                "come any more, which a server never knows; serve continuous batching"
            )
        if pool.scales is not None:
            raise UsageError(
                "fleet.replicas: a server does not scale its fleet; give a number, and scale it "
                "with --control"
            )
        if pool.role != "both":
            raise UsageError(f"fleet: pools that only {pool.role} are not served live yet")
        if pool.kv_cache.enable_prefix_caching and scenario.workload.classes:
            raise UsageError(
                "kv_cache.enable_prefix_caching: a trace that names the blocks of prompts has no "
                "priorities; serve workload.classes without a prefix cache"
            )
        if pool.scheduler.client_timeout is not None:
            raise UsageError("scheduler.client_timeout: real clients give up when they do")
    if scenario.failures is not None:
        raise UsageError("failures: a server's replicas fail when --control says so")
    for name in ("prompt_tokens", "output_tokens"):
        if getattr(scenario.assume, name) != 1.0:
            raise UsageError(f"assume.{name}: the lengths of real requests are what they are")
    if scenario.run.horizon is not None:
        raise UsageError("run.horizon: a server runs until it is stopped")


class LiveSession:
    """The fleet of ``setup``, waiting for requests; ``told`` hears of every token."""

    def __init__(self, setup: Setup, told: Told) -> None:
        check(setup)
        scenario = setup.scenario
        self.recorder = make_recorder(setup)
        self._setup = setup
        self.fleet = LiveFleet(
            make_router(scenario.router, scenario.seed, scenario.folders),
            self.recorder,
            front_end=front_end_of(setup.pools),
            told=told,
        )
        places = [(pool, number) for pool in setup.pools for number in pool.settings.engines]
        self.fleet.start(
            [
                make_engine(
                    self.fleet.env,
                    pool,
                    number,
                    self.recorder,
                    leap=scenario.run.leap,
                    on_finish=partial(self.fleet.finish, number=number),
                    replica=LiveReplica,
                    rank=LiveRank,
                )
                for pool, number in places
            ]
        )

    def refusal(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """Why no replica could ever serve a request of these lengths; None if each could."""
        request = Request(-1, 0.0, prompt_tokens, output_tokens)
        for replica in self.fleet.engines:
            if (reason := replica.scheduler.refusal(request)) is not None:
                return reason
        return None

    def record(self, replay: Setup, now: float) -> RunRecord:
        """The run that took place, which ends ``now``, as that of the scenario of ``replay``, whose
        traffic is what came.

        With requests unfinished it ends like one with a horizon, else with the last token.
        """
        fleet = self.fleet
        traffic = build(replay.scenario, replay.scenario.seed)
        end = now if fleet.outstanding else fleet.close()
        for replica in fleet.engines:
            for number, request, generated in replica.stop(end):
                self.recorder.leave_unfinished(request, number, generated)
            replica.check_integrity()
        return recorded(
            replay, traffic, self.recorder, end=end, events=fleet.events, interrupted=False
        )
