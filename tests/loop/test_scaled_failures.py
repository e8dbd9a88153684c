"""Fleets that are scaled, whose replicas fail and whose clients give up: by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import sim
from sim.scenario import load_scenario
from tests.loop.test_autoscaler import SCENARIO

FAILING: dict[str, Any] = {
    **SCENARIO,
    "fleet": {**SCENARIO["fleet"], "replicas": {"min": 2, "max": 3}},
    "autoscaling": {**SCENARIO["autoscaling"], "target": 1000, "stabilisation": 0},
    "workload": {**SCENARIO["workload"], "arrivals": {"kind": "constant", "rate": 4}},
    "run": {"requests": 60, "warmup": 0},
}  # fmt: skip
"""A request every 250 ms on two replicas, which HPA leaves as they are."""


def failing(
    outages: list[dict[str, Any]] | dict[str, Any], leap: bool = True, **changes: Any
) -> tuple[sim.Result, list[tuple[int, float, float]], list[tuple[int, float, float]]]:
    """A run; its outages and what was held, as (replica, since, until)."""
    named = {key.replace("__", "."): value for key, value in changes.items()}
    scenario = load_scenario({**FAILING, "failures": outages}, named)
    result = sim.simulate(scenario, leap=leap)
    record = result.record
    assert record.attempts is not None
    found = [
        [tuple(row[key].item() for key in ("replica", "since", "until")) for row in rows]
        for rows in (record.attempts.outages, np.sort(record.held, order=["replica", "since"]))
    ]
    counts = result.summary["infersim"]["requests"]
    assert counts["completed"] + counts.get("gave_up", 0) == len(record.requests)
    return result, *found  # type: ignore[return-value]


@pytest.mark.parametrize("leap", [True, False])
@pytest.mark.parametrize(("lasts", "back"), [("4s", 9.0), (None, 8.0)])
def test_a_replica_that_fails_stays_held_and_comes_back(
    leap: bool, lasts: str | None, back: float
) -> None:
    """Replica 1 fails at 5 s for 4 s, or until it is replaced, which takes the cold start of 3 s.
    Meanwhile all requests go to replica 0, and those lost are sent there again."""
    result, outages, held = failing([{"at": "5s", "replica": 1, "for": lasts}], leap)
    record, own = result.record, result.summary["infersim"]
    assert outages == [(1, 5.0, back)]
    assert held == [(0, 0.0, record.end), (1, 0.0, record.end)]
    rows = record.requests
    assert (rows["status"] == 0).all()
    queued = rows["arrival"] + record.front_end
    assert set(rows["replica"][(queued >= 5) & (queued < back)]) == {0}
    assert 1 in rows["replica"][queued >= back]
    lost = own["failures"]["lost"]
    assert lost == own["failures"]["outages"][0]["lost"] > 0
    assert own["failures"]["attempts"] == 60 + lost
    assert own["cost"]["usd"] == pytest.approx(2 * record.duration)
    assert own["failures"]["availability"] == pytest.approx(1 - (back - 5) / (2 * record.duration))
    assert own["scaling"][0]["started"] == own["scaling"][0]["stopped"] == 0


def test_hpa_counts_one_that_failed_as_not_ready_and_gives_it_back_first() -> None:
    """Three at the start, of which the last fails at 1 s. At 2 s two have metrics, of nothing that
    waits: with the third on target that is (0 + 1 x 1000) / 3000, so one replica is enough. The
    failed one is given back at once, and one that serves when it is empty, at a later decision."""
    rare = {"arrivals": {"kind": "constant", "rate": 0.5}}
    _, outages, held = failing(
        [{"at": "1s", "replica": 2, "for": "1h"}],
        fleet__0__replicas={"min": 1, "max": 3, "start": 3},
        autoscaling__metric="queue",
        workload__arrivals=rare["arrivals"],
        run__requests=3,
    )
    assert outages == [(2, 1.0, 2.0)]
    assert held[1:] == [(1, 0.0, 4.0), (2, 0.0, 2.0)]


def test_one_that_fails_while_it_is_stopped_is_given_back() -> None:
    """The first two requests arrive together and take many seconds, one on each replica. At 2 s
    replica 1 is told to stop, and fails at 3 s with what it had."""
    result, outages, held = failing(
        [{"at": "3s", "replica": 1, "for": "1h"}],
        fleet__0__replicas={"min": 1, "max": 3, "start": 2},
        autoscaling__metric="queue",
        workload__arrivals={"kind": "burst"},
        workload__output_tokens={"kind": "fixed", "value": 1000},
        run__requests=2,
    )
    assert outages == [(1, 3.0, 3.0)]
    assert held == [(0, 0.0, result.record.end), (1, 0.0, 3.0)]
    found = result.summary["infersim"]["failures"]
    assert (found["lost"], found["availability"]) == (1, 1.0)
    assert (result.record.requests["replica"] == 0).all()


def test_where_none_is_left_requests_find_none_and_come_back() -> None:
    """One replica, gone from 5 to 8 s. Each attempt finds none until one comes after 8 s; with
    enough attempts nobody is lost."""
    patient = {"outages": [{"at": "5s", "replica": 0}], "in_flight": {"attempts": 20}}
    one = {"min": 1, "max": 3}
    result, outages, held = failing(patient, fleet__0__replicas=one)
    assert outages == [(0, 5.0, 8.0)]
    found = result.summary["infersim"]["failures"]
    assert found["no_replica"] > 12  # the requests of 3 s, and retries
    assert (result.record.requests["status"] == 0).all()
    assert held == [(0, 0.0, result.record.end)]


@pytest.mark.parametrize("leap", [True, False])
def test_requests_wait_at_the_gateway_of_a_fleet_whose_only_replica_failed(leap: bool) -> None:
    """As KEDA and Knative hold them where a fleet may have no replica; a client that waits for
    less than the start gives up there."""
    none: dict[str, Any] = {
        "fleet__0__replicas": {"min": 0, "max": 2, "start": 1},
        "autoscaling__policy": "keda",
    }
    result, outages, _ = failing([{"at": "5s", "replica": 0}], leap, **none)
    assert outages == [(0, 5.0, 8.0)]
    rows = result.record.requests
    assert (rows["status"] == 0).all()
    assert result.summary["infersim"]["failures"]["no_replica"] == 0
    waited = rows[(rows["arrival"] >= 5) & (rows["arrival"] < 7.9)]
    assert len(waited) == 12
    assert waited["scheduled"].min() == 8.0

    hasty, _, _ = failing(
        [{"at": "5s", "replica": 0}], leap, **none, scheduler__client_timeout="1500ms"
    )
    gone = hasty.record.requests
    left = gone["arrival"][gone["status"] != 0]
    lost = hasty.summary["infersim"]["failures"]["lost"]
    # at the gateway for 1.5 s before 8 s, or with too little time left for an answer after it
    assert set(np.arange(5.0, 6.51, 0.25)) <= set(left) <= set(np.arange(4.0, 8.0, 0.25))
    assert lost > 0


def test_a_law_hits_only_replicas_that_serve_and_at_its_rate() -> None:
    """The time that replicas serve, over the mean time between failures, is how often they fail:
    within three standard deviations of a Poisson number. Others come to nothing."""
    law = {"mtbf": "20s", "repair": "5s", "in_flight": {"attempts": 50}}
    long = {"run__requests": 6000, "workload__output_tokens": {"kind": "fixed", "value": 5}}
    result, outages, held = failing(law, **long)
    up = sum(until - since for _, since, until in held)
    up -= sum(min(until, result.record.end) - since for _, since, until in outages)
    assert abs(len(outages) - up / 20) < 3 * np.sqrt(up / 20)
    assert len(outages) > 80
    for replica in (0, 1):
        mine = sorted(each[1:] for each in outages if each[0] == replica)
        assert all(one[1] <= two[0] for one, two in pairwise(mine))


def test_outages_that_hit_nothing_are_named() -> None:
    result, outages, _ = failing(
        [{"at": "5s", "replica": 2}, {"at": "1h", "replica": 0}, {"at": "6s", "replica": 1}]
    )
    assert [each[:2] for each in outages] == [(1, 6.0)]
    found = result.summary["infersim"]["failures"]
    assert [(each["replica"], each["after_the_end"]) for each in found["unplayed"]] == [
        (2, False), (0, True)
    ]  # fmt: skip
    assert (
        "the third replica (2) of main at 5 s came to nothing: it comes when it did not serve"
        in (found["text"])
    )
    assert (
        "the first replica (0) of main at 1 h came to nothing: it comes after all"
        in (found["text"])
    )


@pytest.mark.parametrize("leap", [True, False])
def test_clients_of_a_scaled_fleet_give_up_while_replicas_start(leap: bool) -> None:
    """A burst for one replica: HPA starts others, but clients who wait for 2 s see none of them,
    and those who wait longer than a start do."""
    burst = {
        **SCENARIO,
        "autoscaling": {**SCENARIO["autoscaling"], "target": 20},
        "workload": {**SCENARIO["workload"], "arrivals": {"kind": "burst"}},
        "scheduler": {"max_num_seqs": 20},
        "run": {"requests": 200, "warmup": 0},
    }
    gone = {}
    for timeout in (2, 60):
        changed = load_scenario(burst, {"scheduler.client_timeout": timeout})
        result = sim.simulate(changed, leap=leap)
        gone[timeout] = result.summary["infersim"]["requests"]["gave_up"]
        assert gone[timeout] + result.summary["completed"] == 200
    assert gone[2] > 100
    assert gone[60] == 0


def test_attempts_are_in_the_same_order_with_leaps_and_without() -> None:
    """A request that timed out is still on its replica when that fails: with leaps the engine
    drops it before the others, without them it goes with them."""
    crowded = {
        **FAILING,
        "model": "llama-3.2-1b",
        "fleet": {"gpu": "a10g", "replicas": {"min": 2, "max": 3}},
        "workload": {
            "arrivals": {"kind": "constant", "rate": 30},
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 120},
            "output_tokens": {"kind": "uniform", "low": 1, "high": 40},
        },
        "failures": {
            "mtbf": "80ms",
            "repair": "60ms",
            "in_flight": {"attempts": 4, "backoff": "10ms"},
        },
        "scheduler": {"client_timeout": "150ms", "on_timeout": {"attempts": 3, "backoff": "20ms"}},
        "run": {"requests": 80, "warmup": 0},
    }
    for seed in range(4):
        runs = [sim.simulate({**crowded, "seed": seed}, leap=leap).record for leap in (True, False)]
        assert runs[0].requests.tobytes() == runs[1].requests.tobytes()
        assert runs[0].reasons == runs[1].reasons
        one, two = (each.attempts for each in runs)
        assert one is not None
        assert two is not None
        assert one.failed.tobytes() == two.failed.tobytes()
        assert (np.diff(one.failed["ended"]) >= 0).all()
        assert (np.diff(one.outages["since"]) >= 0).all()


def test_nothing_is_started_when_all_clients_have_gone() -> None:
    """Of a crowd all give up after 1.5 s, when the run ends; at 2 s HPA would want more."""
    crowd = {
        **SCENARIO,
        "autoscaling": {**SCENARIO["autoscaling"], "metric": "queue", "target": 1},
        "workload": {**SCENARIO["workload"], "arrivals": {"kind": "burst"},
                     "output_tokens": {"kind": "fixed", "value": 400}},
        "scheduler": {"max_num_seqs": 2, "client_timeout": "1500ms"},
        "run": {"requests": 40, "warmup": 0},
    }  # fmt: skip
    record = sim.simulate(crowd).record
    assert (record.requests["status"] != 0).all()
    assert record.end < 2
    assert record.held.tolist() == [(0, 0.0, record.end)]
