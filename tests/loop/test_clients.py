"""Clients that give up and try again, and replicas that fail: by hand, and against theory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import simpy

import sim
from sim.loop.attempt_rows import LOST, TIMED_OUT, UNAVAILABLE, AttemptRows
from sim.loop.client_replicas import ClientReplica, withdrawable
from sim.loop.client_rules import Outage, Retry, Rules
from sim.loop.clients import Clients
from sim.loop.clock import Stop, run
from sim.loop.engine import Engine
from sim.loop.fleet import make_fleet
from sim.loop.recorder import COMPLETED, GAVE_UP, Recorder
from sim.outages import drawn
from sim.rng import numbered, stream
from sim.routers import make_router
from sim.selftest.check import estimate
from sim.selftest.loop import LineTimer, scheduler
from sim.selftest.queues import PROMPT, TOKEN, Geometric, batch_means
from sim.workload import OpenTraffic, generate
from sim.workload.arrivals import Poisson
from sim.workload.traffic import TrafficChunk

Requests = Sequence[tuple[float, int, int]]


@dataclass
class Seen:
    """What a run left behind."""

    requests: np.ndarray
    attempts: AttemptRows
    replicas: list[Any]
    ended: float

    def failed(self) -> list[tuple[int, int, int, float, int]]:
        """(request, attempt, outcome, when, tokens) of each attempt that came to nothing."""
        rows = self.attempts.failed
        names = ("request", "attempt", "outcome", "ended", "generated")
        return sorted(tuple(row[name].item() for name in names) for row in rows)


def play(
    traffic: Requests | OpenTraffic,
    *,
    slots: int = 8,
    token: float = 1.0,
    timeout: float = math.inf,
    after_timeout: Retry | None = None,
    after_loss: Retry | None = None,
    outages: Sequence[Iterator[Outage]] = (),
    replicas: int = 1,
    leap: bool = True,
) -> Seen:
    """Replicas of which every iteration takes a ``token`` (s)."""
    if not isinstance(traffic, OpenTraffic):
        chunk = TrafficChunk(*(list(column) for column in zip(*traffic, strict=True)))
        traffic = OpenTraffic(len(traffic), iter([chunk]))
    env, recorder = simpy.Environment(), Recorder()
    rules = Rules(timeout, after_timeout, after_loss, tuple(outages))
    clients = Clients(env, recorder, rules, numbered(1, "retries"))

    def make(index: int, _: Callable[..., None] | None = None) -> Engine:
        engine = ClientReplica(
            env,
            index,
            scheduler(slots=slots),
            LineTimer(fixed=token),
            recorder,
            leap=leap,
            on_finish=clients.finished,
        )
        return withdrawable(engine, clients)

    router = make_router("least-outstanding", 1)
    fleet = make_fleet(env, traffic, router, recorder, make, replicas=replicas, front_end=0.0)
    fleet.clients = clients
    clients.start(fleet, make, traffic.total)
    run(env, math.inf, Stop())
    for replica in fleet.replicas:
        replica.check_integrity()
        assert replica.scheduler.kv.reserved == 0
        assert replica.outstanding == 0
    return Seen(recorder.request_rows(), clients.rows.rows(), fleet.replicas, clients.ended)


@pytest.mark.parametrize("leap", [True, False])
def test_a_request_that_times_out_leaves_at_the_end_of_the_iteration_in_flight(leap: bool) -> None:
    # 10 tokens of 1 s each; patience ends at 4.5 s, the engine drops it at 5
    seen = play([(0.0, 1, 10), (0.0, 1, 3)], timeout=4.5, leap=leap)
    assert seen.failed() == [(0, 1, TIMED_OUT, 4.5, 5)]
    assert seen.requests["status"].tolist() == [GAVE_UP, COMPLETED]
    assert seen.requests["generated"].tolist() == [5, 3]
    assert seen.requests["finish"][1] == 3.0
    assert seen.ended == 5.0


def test_an_answer_at_the_last_moment_is_in_time_and_one_after_it_is_none() -> None:
    assert play([(0.0, 1, 4)], timeout=4.0).failed() == []
    seen = play([(0.0, 1, 5)], timeout=4.5)  # its last token comes in the iteration in flight
    assert seen.failed() == [(0, 1, TIMED_OUT, 4.5, 5)]
    assert math.isnan(seen.requests["finish"][0])


def test_who_times_out_in_the_queue_makes_room_for_those_behind() -> None:
    traffic = [(0.0, 1, 6), (0.0, 1, 9), (0.0, 1, 1), (3.0, 1, 2)]
    seen = play(traffic, slots=1, timeout=8.0)
    # the second runs from 6 to 8, and the third gives up at that moment
    assert seen.failed() == [(1, 1, TIMED_OUT, 8.0, 2), (2, 1, TIMED_OUT, 8.0, 0)]
    assert seen.requests["status"].tolist() == [COMPLETED, GAVE_UP, GAVE_UP, COMPLETED]
    assert seen.requests["finish"][[0, 3]].tolist() == [6.0, 10.0]


def test_who_times_out_as_a_slot_becomes_free_does_not_take_it() -> None:
    """At 4 s the first is complete, then the second gives up, then the third begins."""
    seen = play([(0.0, 1, 4), (0.0, 1, 2), (1.0, 1, 2)], slots=1, timeout=4.0)
    assert seen.failed() == [(1, 1, TIMED_OUT, 4.0, 0), (2, 1, TIMED_OUT, 5.0, 1)]
    assert seen.requests["finish"][0] == 4.0


def test_a_client_sends_again_after_a_wait_that_doubles() -> None:
    rule = Retry(attempts=3, backoff=2.0)
    seen = play([(0.0, 1, 10)], timeout=4.0, after_timeout=rule)
    chances = [float(numbered(1, "retries")(0).random(n)[-1]) for n in (1, 2)]
    second = 4.0 + rule.wait(1, chances[0])
    third = second + 4.0 + rule.wait(2, chances[1])
    assert seen.attempts.again["time"].tolist() == [second, third]
    assert [row[1:4] for row in seen.failed()] == [
        (1, TIMED_OUT, 4.0),
        (2, TIMED_OUT, second + 4.0),
        (3, TIMED_OUT, third + 4.0),
    ]
    assert 1.5 <= second - 4.0 <= 2.0
    assert 3.0 <= third - second - 4.0 <= 4.0
    assert seen.requests["status"].tolist() == [GAVE_UP]


@pytest.mark.parametrize("leap", [True, False])
def test_a_replica_that_fails_loses_its_requests_and_comes_back_empty(leap: bool) -> None:
    outage = Outage(3.5, 5.0)
    seen = play([(0.0, 1, 6), (4.0, 1, 2), (6.0, 1, 2)], outages=[iter([outage])], leap=leap)
    assert seen.failed() == [(0, 1, LOST, 3.5, 3), (1, 1, UNAVAILABLE, 4.0, 0)]
    (row,) = seen.attempts.outages
    assert (row["lost"], row["since"], row["until"], row["computing"]) == (1, 3.5, 5.0, 0.5)
    assert seen.requests["finish"][2] == 8.0


@pytest.mark.parametrize("leap", [True, False])
def test_the_iteration_that_ends_as_a_replica_fails_is_complete(leap: bool) -> None:
    seen = play([(0.0, 1, 6)], outages=[iter([Outage(4.0, 5.0)])], leap=leap)
    assert seen.failed() == [(0, 1, LOST, 4.0, 4)]


def test_lost_requests_are_sent_to_the_other_replica() -> None:
    again = Retry(attempts=2, backoff=0.0)
    seen = play(
        [(0.0, 1, 6)], outages=[iter([Outage(3.5, math.inf)]), iter([])], replicas=2,
        after_loss=again,
    )  # fmt: skip
    assert seen.failed() == [(0, 1, LOST, 3.5, 3)]
    assert seen.requests["replica"].tolist() == [1]
    assert seen.requests["finish"].tolist() == [9.5]
    assert seen.requests["first_token"].tolist() == [4.5]
    assert seen.requests["arrival"].tolist() == [0.0]


def test_waits_before_another_attempt_are_those_of_the_openai_client() -> None:
    rule = Retry(10, 0.5)
    assert [rule.wait(n, 0.0) for n in (1, 2, 3, 4, 5, 6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert rule.wait(3, 1.0) == 1.5  # a quarter less at most


def catastrophes(rate: float, service: float, slots: int, failing: float) -> np.ndarray:
    """The law of the number present in M/M/c, c = ``slots``, that loses all customers at the rate
    ``failing``, while it serves: the balance of each state, solved up to 400.

    One server: (1 - x) x^n, where x is the smaller root of service x^2 - (rate + service +
    failing) x + rate (Towsley and Tripathi, 1991; flushed queues).
    """
    size = 400
    matrix, given = np.zeros((size, size)), np.zeros(size)
    for n in range(size):
        out = rate + failing + min(n, slots) * service
        matrix[n, n] = out
        if n:
            matrix[n, n - 1] = -rate
        if n + 1 < size:
            matrix[n, n + 1] = -min(n + 1, slots) * service
    given[0] = failing
    return np.linalg.solve(matrix, given)


def test_the_law_of_a_server_that_is_flushed_is_geometric() -> None:
    rate, service, failing = 0.8, 1.0, 0.05
    half = rate + service + failing
    root = (half - math.sqrt(half**2 - 4 * rate * service)) / (2 * service)
    found = catastrophes(rate, service, 1, failing)
    np.testing.assert_allclose(found[:20], (1 - root) * root ** np.arange(20), rtol=1e-9)


@pytest.mark.parametrize(("slots", "load"), [(1, 0.6), (3, 0.6)])
def test_breakdowns_of_m_m_c_are_those_of_theory(slots: int, load: float) -> None:
    """Requests answered, and time in the system, of a server of exponential jobs that fails,
    loses all of them, and refuses others for a constant time."""
    mean = 100
    service = 1 / (mean * TOKEN)
    rate, mtbf, repair = load * slots * service, 30 / service, 8 / service
    traffic = generate(20_000, 5, Poisson(rate), PROMPT, Geometric(mean))
    seen = play(
        traffic, slots=slots, token=TOKEN, outages=[drawn(stream(5, "failures"), mtbf, repair)]
    )
    present = catastrophes(rate, service, slots, 1 / mtbf)
    states = np.arange(len(present))
    up = mtbf / (mtbf + repair)
    served = up * service * float((np.minimum(states, slots) * present).sum()) / rate
    spent = up * float((states * present).sum()) / rate

    rows, failed = seen.requests, seen.attempts.failed
    left = np.where(rows["status"] == COMPLETED, rows["finish"], np.nan)
    left[failed["request"]] = failed["ended"]
    for check in (
        estimate("answered", served, batch_means((rows["status"] == COMPLETED).astype(float))),
        estimate("time in system", spent, batch_means(left - rows["arrival"])),
    ):
        assert check.ok, check
        assert check.standard_error < 0.05 * check.theory
    lost = (failed["outcome"] == LOST).sum() / len(rows)
    assert lost == pytest.approx(up * float((states * present).sum()) / mtbf / rate, rel=0.1)


def test_breakdowns_of_several_servers_are_those_of_theory() -> None:
    """Three servers without queues that fail each on its own. The number that serve is binomial,
    whatever the law of repairs: a request finds none in (1 - a)^3 of cases, with the availability
    a of one. One that is served for an exponential time is lost if its server fails before, which
    it does at the rate 1/mtbf: mu / (mu + 1/mtbf) are answered, after 1 / (mu + 1/mtbf)."""
    mean, replicas = 100, 3
    mu = 1 / (mean * TOKEN)
    mtbf, repair = 8 / mu, 8 / mu
    outages = [drawn(stream(7, f"failures/{at}"), mtbf, repair) for at in range(replicas)]
    traffic = generate(20_000, 7, Poisson(4 * mu), PROMPT, Geometric(mean))
    seen = play(traffic, slots=256, token=TOKEN, outages=outages, replicas=replicas)
    none = (1 - mtbf / (mtbf + repair)) ** replicas
    left = mu + 1 / mtbf

    rows, failed = seen.requests, seen.attempts.failed
    ended = np.where(rows["status"] == COMPLETED, rows["finish"], np.nan)
    ended[failed["request"]] = failed["ended"]
    refused = np.zeros(len(rows))
    refused[failed["request"][failed["outcome"] == UNAVAILABLE]] = 1.0
    answered = (rows["status"] == COMPLETED).astype(float)
    for check in (
        estimate("found none", none, batch_means(refused)),
        estimate("answered", (1 - none) * mu / left, batch_means(answered)),
        estimate("time in system", (1 - none) / left, batch_means(ended - rows["arrival"])),
    ):
        assert check.ok, check
        assert check.standard_error < 0.1 * check.theory


CHAT: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "a10g", "replicas": 2},
    "engine": "ideal",
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 20},
        "prompt_tokens": {"kind": "uniform", "low": 1, "high": 120},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
    },
    "run": {"requests": 100, "warmup": 0},
}


def test_failures_leave_the_traffic_as_it_is_and_replicas_their_own_outages() -> None:
    calm = sim.simulate(CHAT).record
    failing = {**CHAT, "failures": {"mtbf": "1s", "repair": "100ms"}}
    stormy = sim.simulate(failing).record
    for name in ("arrival", "prompt_tokens", "output_tokens"):
        assert calm.requests[name].tobytes() == stormy.requests[name].tobytes()
    third = sim.simulate({**failing, "fleet": {"gpu": "a10g", "replicas": 3}}).record
    assert stormy.attempts is not None
    assert third.attempts is not None
    mine = [
        rows.outages[rows.outages["replica"] == 1] for rows in (stormy.attempts, third.attempts)
    ]
    shared = min(map(len, mine))
    assert shared > 0
    assert mine[0]["since"][:shared].tolist() == mine[1]["since"][:shared].tolist()


def test_clients_of_a_closed_loop_go_on_when_a_request_is_lost() -> None:
    closed = {
        **CHAT,
        "workload": {**CHAT["workload"], "arrivals": {"kind": "closed", "concurrency": 5}},
        "failures": {"outages": [{"at": "500ms", "replica": 0}], "in_flight": "lost"},
    }
    result = sim.simulate(closed)
    counts = result.summary["infersim"]["requests"]
    assert counts["submitted"] == 100
    assert counts["gave_up"] + counts["completed"] == 100
    assert 1 <= counts["gave_up"] <= 5
