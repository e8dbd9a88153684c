"""What a scenario may say of operators, and what becomes of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.errors import ScenarioError, UsageError
from sim.loop.recorder import COMPLETED, GAVE_UP
from sim.planning.load.find import find
from sim.pools import cold_start_of
from sim.scenario import load_scenario
from sim.scenario.sections.autoscaling import Autoscaling
from sim.simulation import simulate

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "workload": {
        "arrivals": {"kind": "constant", "rate": 1},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 50},
    },
    "run": {"requests": 20, "warmup": 0},
}


def steered(*steps: dict[str, Any], cold: str = "2s", **more: Any) -> dict[str, Any]:
    """``BASE`` with these steps."""
    return {**BASE, "steering": {"steps": list(steps), "cold_start": cold}, **more}


def test_a_replica_that_is_drained_and_started_serves_again_after_its_cold_start() -> None:
    """Requests come every second and take 0.4 s; the other replica is away from the start."""
    run = simulate(
        steered(
            {"at": 0, "do": "drain", "replica": 1},
            {"at": "4.2s", "do": "drain"},
            {"at": "6.5s", "do": "start"},  # nothing is left of it: ready at 8.5 s
            {"at": "12.1s", "do": "drain"},
            {"at": "12.2s", "do": "start"},  # still serves the request of 12 s: ready at once
        )
    ).record
    arrived = run.requests["arrival"]
    lost = arrived[run.requests["status"] == GAVE_UP]
    assert lost.tolist() == [5, 6, 7, 8]
    assert (run.requests["status"] == COMPLETED).sum() == 16
    assert set(run.requests["replica"].tolist()) == {0, -1}
    assert run.attempts is not None
    assert not len(run.attempts.outages)


def test_a_replica_that_fails_loses_its_requests_until_it_starts() -> None:
    result = simulate(
        steered(
            {"at": 0, "do": "drain", "replica": 1},
            {"at": "3.1s", "do": "fail"},
            {"at": "4.5s", "do": "start"},
        )
    )
    found = result.summary["infersim"]["failures"]
    assert (found["lost"], found["no_replica"]) == (1, 3)  # of 3 s; of 4, 5 and 6 s
    (outage,) = found["outages"]
    assert (outage["since_s"], outage["until_s"]) == (3.1, 6.5)


def test_a_replica_does_not_fail_after_all_requests_were_served() -> None:
    """The last answer ends before 20 s; a run that has a horizon goes on until then."""
    late = {"at": "500s", "do": "fail"}
    run = simulate(steered(late)).record
    assert run.end < 20
    assert run.attempts is not None
    assert not len(run.attempts.outages)
    longer = {"requests": 20, "warmup": 0, "horizon": "600s"}
    (outage,) = simulate(steered(late, run=longer)).summary["infersim"]["failures"]["outages"]
    assert outage["since_s"] == 500


def test_a_start_that_is_taken_back_does_not_happen() -> None:
    run = simulate(
        steered(
            {"at": "2.5s", "do": "drain"},
            {"at": "3.5s", "do": "start"},
            {"at": "4.5s", "do": "drain"},
        )
    ).record
    assert set(run.requests["replica"][run.requests["arrival"] > 3].tolist()) == {1}


def test_a_replica_that_starts_anew_has_an_empty_cache() -> None:
    caching = {
        "fleet": {"gpu": "h100-sxm"},
        "kv_cache": {"enable_prefix_caching": True},
        "workload": {**BASE["workload"], "shared_prefix": {"tokens": 96}},
    }
    steps = [{"at": "4.9s", "do": "drain"}, {"at": "4.95s", "do": "start"}]
    kept = simulate({**BASE, **caching}).record
    anew = simulate(steered(*steps, cold="10ms", **caching)).record
    assert (kept.found[1:] == 96).all()
    assert anew.found[[4, 5, 6]].tolist() == [96, 0, 96]


def test_without_a_cold_start_of_its_own_it_is_that_of_the_model() -> None:
    steps = [{"at": 0, "do": "drain", "replica": 1}, {"at": 1, "do": "start", "replica": 1}]
    scenario = load_scenario({**BASE, "steering": {"steps": steps, "cold_start": "auto"}})
    assert scenario.steering is not None
    assert scenario.steering.cold_start is None
    scenario = scenario.override({"run.requests": 200, "router": "round-robin"})
    run = simulate(scenario).record
    first = run.requests["arrival"][run.requests["replica"] == 1].min()
    (pool,) = run.pools
    assert 1 + cold_start_of(pool, Autoscaling()) <= first < 3 + cold_start_of(pool, Autoscaling())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (steered({"at": 1, "do": "drain", "replica": 2}), "replicas 0 to 1, and no 2"),
        (steered({"at": 1, "do": "drain", "pool": "other"}), "no pool is called 'other'"),
        (steered({"at": 1, "do": "stop"}), "drain"),
        (steered({"at": 1, "do": "drain"}, router="session-affinity"), "come and go"),
        (steered({"at": 1, "do": "fail"}, failures={"mtbf": "1h"}), "give one of the two"),
        (
            steered({"at": 1, "do": "start"}, fleet={"gpu": "l4", "replicas": {"max": 3}}),
            "scales itself",
        ),
        (
            steered({"at": 1, "do": "fail"}, fleet={"gpu": "h100-sxm", "pipeline_parallel": 2}),
            "several batches in flight",
        ),
        (
            steered(
                {"at": 1, "do": "drain"},
                fleet=[{"gpu": "l4"}, {"name": "other", "gpu": "l4"}],
            ),
            "of which pool?",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load_scenario(changes)


def test_a_search_for_the_highest_load_refuses_it() -> None:
    with pytest.raises(UsageError, match="failures, steering"):
        find(load_scenario(steered({"at": 1, "do": "drain"})), "rate")


def test_the_place_of_a_wrong_step_is_told(tmp_path: Path) -> None:
    file = tmp_path / "steered.yaml"
    wrong = steered({"at": 1, "do": "drain"}, {"at": 2, "do": "drain", "replica": 7})
    file.write_text(yaml.safe_dump(wrong, sort_keys=False))
    with pytest.raises(ScenarioError, match=r"(?s)replicas 0 to 1, and no 7.*replica: 7"):
        load_scenario(file)
