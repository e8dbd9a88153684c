"""A verdict sees each replica: a router that deals unevenly may overload one of them alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sim
from sim.metrics.load.busiest import BusiestReplica
from sim.metrics.load.long_enough import too_much_for_one
from sim.metrics.words.slo_text import headroom_text
from sim.planning.answers.run_tables import replicas
from sim.planning.causes.counterfactuals import counterfactuals
from sim.planning.causes.diagnose import diagnose
from sim.planning.causes.diagnose_document import document as diagnosed
from sim.planning.contrast.compare import Comparison
from sim.planning.contrast.gains import CAPACITY
from sim.planning.load.find import find
from sim.planning.load.find_document import document
from sim.planning.points.executors import InProcess
from sim.planning.points.grid import read_axes
from sim.scenario.sections.arrivals import PoissonArrivals
from sim.units import show_utilisation
from tests.answers import headlines
from tests.places import VLLM

BY_LENGTH = """
from sim.routers import Router


class ByLength(Router):
    \"\"\"Sends prompts of 1,200 tokens and more to the second replica, others to the first.\"\"\"

    blind = True

    def choose(self, request, targets):
        return 1 if request.prompt_tokens >= 1200 else 0
"""


def chat(rate: float, **changes: Any) -> dict[str, Any]:
    """Two replicas of an 8B model; one prompt of thirteen is long."""
    return {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm", "replicas": 2},
        "engine": VLLM,
        "max_model_len": 8192,
        "workload": {
            "arrivals": {"kind": "poisson", "rate": rate},
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 1300},
            "output_tokens": {"kind": "fixed", "value": 200},
        },
        "run": {"requests": 4000},
        **changes,
    }


@pytest.fixture
def by_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "by_length.py").write_text(BY_LENGTH, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "by_length:ByLength"


def verdict(scenario: dict[str, Any]) -> Any:
    return sim.simulate(scenario).summary["infersim"]["verdict"]


def test_one_overloaded_replica_is_an_overload(by_length: str) -> None:
    """The first replica serves most requests: it is overloaded, and the fleet as a whole is not."""
    even = verdict(chat(48.0, router="least-outstanding"))
    assert even["state"] == "stable"
    assert "busiest_replica" not in even
    uneven = verdict(chat(48.0, router=by_length))
    assert uneven["utilisation"] == pytest.approx(even["utilisation"], rel=0.02)
    assert uneven["state"] == "overloaded"
    assert uneven["busiest_replica"]["replica"] == 0
    assert uneven["busiest_replica"]["utilisation"] > 1.1
    assert uneven["text"].startswith(
        "Overloaded: the first replica (0), which the router sends the most work, takes 1"
    )
    assert "probably" not in uneven["text"]
    most = uneven["busiest_replica"]["utilisation"]
    assert uneven["headroom"] == pytest.approx(1 / most - 1, abs=1e-3)
    told = headroom_text({**uneven, "slo_state": None})
    assert told.startswith("None: the traffic would have to shrink by ")
    assert "or the router to deal more evenly" in told


def test_a_replica_close_to_its_capacity_is_near_saturation(by_length: str) -> None:
    found = verdict(chat(34.0, router=by_length))
    assert 0.8 < found["busiest_replica"]["utilisation"] < 1.0
    assert found["utilisation"] < 0.65
    assert found["state"] == "near saturation"
    assert found["text"].startswith("Near saturation: the first replica (0), which the router ")


def test_a_replica_that_may_get_more_than_it_serves_is_not_near_saturation(by_length: str) -> None:
    """Few requests leave open by how much its share is above 1, not that it seems to be."""
    found = verdict(chat(38.0, router=by_length, run={"requests": 400}))
    one = found["busiest_replica"]
    assert one["utilisation"] > 1 > one["utilisation"] - 3 * one["utilisation_error"]
    assert found["utilisation"] < 0.8
    assert found["state"] == "too short to tell"


@pytest.mark.parametrize(("rate", "state"), [(20.0, "stable"), (42.0, "near saturation")])
def test_a_replica_in_the_state_of_its_fleet_is_named(
    by_length: str, rate: float, state: str
) -> None:
    prompts = {"kind": "uniform", "low": 1, "high": 2000}
    workload = chat(rate)["workload"] | {"prompt_tokens": prompts}
    found = verdict(chat(rate, router=by_length, workload=workload))
    assert found["state"] == state
    assert (found["utilisation"] >= 0.8) is (state == "near saturation")
    used = show_utilisation(found["busiest_replica"]["utilisation"])
    assert (
        f"the second replica (1), which the router sends the most work, takes {used} of its "
        in (found["text"])
    )


def test_headroom_ends_with_the_busiest_replica(by_length: str) -> None:
    found = verdict(chat(10.0, router=by_length))
    assert found["state"] == "stable"
    most = found["busiest_replica"]["utilisation"]
    assert found["slo_headroom"] == pytest.approx(1 / most - 1, rel=1e-3)
    assert found["headroom"] == found["slo_headroom"] < (1 / found["utilisation"] - 1) / 1.3


def test_a_table_has_the_load_of_each_replica_where_they_differ(by_length: str) -> None:
    """Each is compared with full batches of what it was sent, so that their mean is about that of
    the fleet, whose batches hold requests of all lengths."""
    summary = sim.simulate(chat(34.0, router=by_length)).summary
    found = summary["infersim"]["verdict"]
    shares = [each["utilisation"] for each in found["busiest_replica"]["replicas"]]
    assert max(shares) == found["busiest_replica"]["utilisation"]
    assert sum(shares) / 2 == pytest.approx(found["utilisation"], rel=0.03)
    (table,) = replicas(summary["infersim"])
    dealt = summary["infersim"]["routing"]["replicas"]
    assert [row[0].text for row in table.rows] == ["0", "1"]
    assert [row[1].text for row in table.rows] == [f"{each['requests']:,}" for each in dealt]
    assert table.rows[0][3].text == show_utilisation(max(shares))
    assert not [*replicas(sim.simulate(chat(34.0)).summary["infersim"])]


def test_a_search_without_slo_ends_at_the_busiest_replica(by_length: str) -> None:
    """The highest stable load is lower with the router that deals unevenly."""
    told = {}
    for router in ("least-outstanding", by_length):
        scenario = sim.load_scenario(chat(10.0, router=router, run={"requests": 800}))
        told[router] = document(find(scenario, "rate", jobs=1))
    even, uneven = told["least-outstanding"], told[by_length]
    assert uneven["load"] < 0.8 * even["load"]
    assert uneven["saturated"] < 0.8 * even["saturated"]
    assert (
        "with the first replica (0), which the router sends the most work, full first"
        in (uneven["breaks"])
    )
    assert "replica" not in even["breaks"]


def test_a_session_that_outweighs_all_others_overloads_its_replica(tmp_path: Path) -> None:
    """Nine of ten requests of a trace belong to one session, which stays on one replica."""
    random = np.random.default_rng(1)
    arrivals = np.cumsum(random.exponential(1 / 46, 6000))
    rows = [
        f"{at:.4f},700,200,{'big' if random.random() < 0.9 else f's{number}'}"
        for number, at in enumerate(arrivals)
    ]
    path = tmp_path / "skewed.csv"
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,session", *rows]), "utf-8")
    scenario = chat(0.0, router="session-affinity", workload={"trace": {"path": str(path)}})
    del scenario["run"]
    found = verdict(scenario)
    assert found["utilisation"] < 0.8
    assert found["state"] == "overloaded"
    assert found["busiest_replica"]["utilisation"] > 1.1
    assert verdict(scenario | {"router": "least-outstanding"})["state"] == "stable"


@pytest.mark.parametrize("router", ["least-outstanding", "round-robin", "random"])
def test_chance_in_dealing_is_no_unevenness(router: str) -> None:
    """Of six runs over four replicas, which deal the same to each but for chance, at most one is
    called uneven: the limit is two standard errors."""
    called = 0
    for seed in range(6):
        scenario = chat(30.0, router=router, seed=seed, run={"requests": 1500})
        scenario["fleet"] = {"gpu": "h100-sxm", "replicas": 4}
        found = verdict(scenario)
        called += "busiest_replica" in found
        assert found["state"] == "stable"
    assert called <= 1


def test_outages_are_no_unevenness() -> None:
    """While a replica is out the other one serves its requests: the router has no choice."""
    scenario = chat(14.0, failures=[{"at": "20s", "replica": 0, "for": "100s"}])
    assert "busiest_replica" not in verdict(scenario)


def test_a_trace_is_no_sample() -> None:
    """Of a law two standard errors are allowed for; what a trace sends a replica is what it is."""
    one = BusiestReplica(replica=0, utilisation=1.05, error=0.02, batch=10.0, backlog=50.0)
    law = PoissonArrivals(kind="poisson", rate=1.0)
    assert too_much_for_one(SimpleNamespace(uneven=one, law=None))  # type: ignore[arg-type]
    assert not too_much_for_one(SimpleNamespace(uneven=one, law=law))  # type: ignore[arg-type]


def test_capacity_is_that_of_the_busiest_replica(by_length: str) -> None:
    """Another router gains as much as it evens out."""
    figure = CAPACITY.of(sim.simulate(chat(34.0, router=by_length)).summary)
    even = CAPACITY.of(sim.simulate(chat(34.0)).summary)
    assert figure is not None
    assert even is not None
    assert even / figure > 1.5


def test_a_comparison_names_a_replica_that_is_nearly_full(by_length: str) -> None:
    asked = [f"router={by_length},least-outstanding"]
    scenario = sim.load_scenario(chat(36.0, run={"requests": 1500}))
    found = Comparison(scenario, tuple(read_axes(asked, "--vary")), 1).run(InProcess())
    uneven, even = found["variants"]
    assert "busiest_replica" not in even
    used = show_utilisation(uneven["busiest_replica"]["utilisation"])
    first = headlines(found)[0]
    assert f"With {by_length} the first replica (0), which the router sends the most" in first
    assert f" takes {used} of its own capacity." in first
    assert first.count("replica (") == 1


def test_a_diagnosis_tries_other_routers_where_one_deals_unevenly(by_length: str) -> None:
    """What evens out a fleet that has capacity left meets its SLO, and costs nothing."""
    scenario = chat(44.0, router=by_length, slo={"ttft": "2s"}, run={"requests": 1500})
    found = diagnose(sim.load_scenario(scenario), InProcess(), target="x.yaml")
    tried = {trial.change.title for trial in found.trials}
    assert {"router least-outstanding", "router round-robin", "router least-kv"} <= tried
    told = diagnosed(found)["headline"]
    assert "(0) is the one that the router sends the most work: `--set router=" in told
    evenly = chat(44.0, slo={"ttft": "2s"})
    assert not [c for c in counterfactuals(sim.load_scenario(evenly)) if "router" in c.settings]


def test_an_overloaded_replica_takes_what_comes_over_what_it_serves(by_length: str) -> None:
    """Measured: what it is sent over what it completes while requests come. Its memory is full, so
    that it preempts, which slows the requests of no other replica."""
    few = {"kv_cache": {"num_gpu_blocks": 2000}, "run": {"requests": 3000}}
    result = sim.simulate(chat(34.0, router=by_length, **few))
    one = result.summary["infersim"]["verdict"]["busiest_replica"]
    assert one["replica"] == 0
    assert result.summary["infersim"]["preemptions"] > 0
    own = result.requests[result.requests.replica == 0]
    last = result.requests.arrival_s.max()
    settled = 0.3 * last
    come = (own.arrival_s > settled).sum()
    served = own.finish_s.between(settled, last).sum()
    assert come / served > 1.05
    assert one["utilisation"] == pytest.approx(come / served, rel=0.04)
