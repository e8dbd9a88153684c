"""What a scenario may say of failures and of impatient clients."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from sim.errors import ScenarioError, UsageError
from sim.outages import drawn
from sim.planning.load.find import find
from sim.rng import stream
from sim.scenario import load_scenario
from tests.golden_scenarios import changed

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "slo": {"ttft": "1s"},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 6},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 10},
    },
}


def with_(**changes: Any) -> dict[str, Any]:
    return changed(BASE, {key.replace("__", "."): value for key, value in changes.items()})


def test_a_list_is_short_for_outages_and_overrides_find_them() -> None:
    scenario = load_scenario(with_(failures=[{"at": "5min", "for": "1min"}]))
    assert scenario.failures is not None
    (outage,) = scenario.failures.outages or ()
    assert (outage.at, outage.replica, outage.lasts) == (300.0, 0, 60.0)
    assert load_scenario(scenario.resolved()) == scenario
    longer = scenario.override(["failures.0.for=2min"])
    assert longer.failures is not None
    assert (longer.failures.outages or ())[0].lasts == 120.0
    assert scenario.override({"failures": None}).failures is None


def test_what_happens_to_requests_may_be_named_or_described() -> None:
    scenario = load_scenario(
        with_(scheduler__client_timeout="10s", scheduler__on_timeout={"attempts": 5})
    )
    rule = scenario.scheduler.on_timeout
    assert (rule.kind, rule.attempts, rule.backoff) == ("retry", 5, 0.5)
    lost = load_scenario(with_(failures={"mtbf": "1h", "in_flight": "lost"}))
    assert lost.failures is not None
    assert lost.failures.in_flight.kind == "lost"
    assert load_scenario(with_()).scheduler.on_timeout.kind == "cancel"


REFUSED = [
    ({"failures": {"repair": "1min"}}, "give mtbf, or outages"),
    ({"failures": {"mtbf": "1h", "outages": [{"at": 1}]}}, "give mtbf, or outages"),
    ({"failures": [{"at": 1, "replica": 2}]}, "replicas 0 to 1, and no 2"),
    ({"failures": [{"at": 1, "pool": "other"}]}, "no pool is called 'other'; there are main"),
    ({"failures": [{"at": 1, "for": 9}, {"at": 5}]}, "is gone then already"),
    ({"failures": [{"at": 1}, {"at": 5}]}, "is gone then already"),
    ({"scheduler.on_timeout": "retry"}, "no client gives up: give client_timeout"),
    ({"scheduler.client_timeout": 9, "scheduler.on_timeout": "wait"}, "cancel, retry"),
    ({"scheduler.client_timeout": 9, "scheduler.batching": "static"}, "static batching"),
    ({"failures": {"mtbf": 9}, "router": "session-affinity"}, "replicas that come and go"),
    ({"failures": [{"at": 1, "for": 9}, {"at": 5}], "fleet.replicas": {"max": 3}}, "gone then"),
    ({"scheduler.client_timeout": 9, "scheduler.policy": "sglang"}, "policy: sglang"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[w for _, w in REFUSED])
def test_what_does_not_go_together_is_said(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(changed(BASE, changes))
    assert words in str(caught.value)


def test_an_error_points_at_the_entry_of_the_list(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    text = (Path(__file__).parents[2] / "scenarios" / "retry-storm.yaml").read_text()
    path.write_text(text.replace("replica: 0", "replica: 7"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    line = 1 + [line.startswith("failures") for line in text.splitlines()].index(True)
    assert f"bad.yaml:{line}:" in str(caught.value)


def test_clients_wait_equally_long_whichever_pool_serves_them() -> None:
    pools = [
        {"name": "a", "gpu": "h100-sxm", "scheduler": {"client_timeout": "9s"}},
        {"name": "b", "gpu": "h100-sxm"},
    ]
    with pytest.raises(ScenarioError, match="the same for all pools"):
        load_scenario({**BASE, "fleet": pools})


def test_a_search_for_the_highest_load_refuses_failures() -> None:
    with pytest.raises(UsageError, match="are simulated by `run`"):
        find(load_scenario(with_(failures={"mtbf": "1h"})), "rate")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        # 20 failures of 4 replicas, one of each in 720 h: 3,600 h, at 6 requests/s
        ({"failures": {"mtbf": "720h"}}, r"every 180 h.*last 3,600 h, 77,760,000 requests at 6/s"),
        ({"failures": [{"at": "5min"}]}, "failures.outages: they come at given times"),
        ({"scheduler": {"client_timeout": "5s"}}, "clients that give up relieve the fleet"),
    ],
)
def test_a_refusal_says_why_and_what_to_ask_instead(changes: dict[str, Any], why: str) -> None:
    fleet = {"gpu": "h100-sxm", "replicas": 4}
    with pytest.raises(UsageError, match=why) as caught:
        find(load_scenario({**with_(**changes), "fleet": fleet}), "rate")
    assert ("plan --survive 1" in str(caught.value)) == ("failures" in changes)


def test_outages_begin_an_mtbf_apart_or_after_the_repair_of_the_one_before() -> None:
    one, other = (
        list(islice(drawn(stream(1, "failures"), 9.0, 5.0, always=always), 4))
        for always in (True, False)
    )
    assert [each.until - each.since for each in (*one, *other)] == pytest.approx([5.0] * 8)
    later = [b.since - a.since for a, b in zip(one, other, strict=True)]
    assert later == pytest.approx([0.0, 5.0, 10.0, 15.0])
