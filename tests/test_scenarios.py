"""The shipped scenarios: each asks a question, is valid, and answers it."""

from __future__ import annotations

import pytest

import sim
from tests.places import ROOT

SCENARIOS = ROOT / "scenarios"
NAMES = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def figures(name: str, overrides: dict[str, object]) -> dict[str, float]:
    summary = sim.simulate(sim.load_scenario(SCENARIOS / f"{name}.yaml", overrides)).summary
    return summary | summary["infersim"]["batch"] | {"kv": summary["infersim"]["kv_cache"]}


def test_the_promised_ones_are_there() -> None:
    assert {"chat", "chat-azure", "batching-ladder", "offline-batch", "overload"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_opens_with_its_question_and_runs(name: str) -> None:
    path = SCENARIOS / f"{name}.yaml"
    hint, *question = path.read_text(encoding="utf-8").splitlines()[:4]
    assert hint == "# yaml-language-server: $schema=schema.json"
    assert question[0].startswith("# ")
    assert "?" in "".join(question)
    scenario = sim.load_scenario(path)
    assert "?" in scenario.description
    small = scenario.override({"run.requests": 50, "run.warmup": 0})
    requests = sim.simulate(small).summary["infersim"]["requests"]
    assert requests["completed"] == 50


def test_the_ladder_goes_up() -> None:
    """Static pads and waits for the longest, request-level wastes slots only, continuous
    neither."""
    throughput = {
        batching: figures("batching-ladder", {"scheduler.batching": batching})["output_throughput"]
        for batching in ("static", "request", "continuous")
    }
    assert throughput["static"] < throughput["request"] < throughput["continuous"]
    assert throughput["continuous"] > 2 * throughput["static"]


def test_paging_admits_several_times_more() -> None:
    """With seats for all, memory decides: blocks on demand against a slab of the maximum length."""
    paged, contiguous = (
        figures("batching-ladder", {"kv_cache.allocator": a, "scheduler.max_num_seqs": 512})
        for a in ("paged", "contiguous")
    )
    assert paged["mean_running"] > 4 * contiguous["mean_running"]
    assert contiguous["kv"]["fragmentation"] > 0.5  # most of each slab stays empty
    assert paged["kv"]["fragmentation"] < 0.05  # half a block per sequence


def test_overload_is_called_by_its_name() -> None:
    path = SCENARIOS / "overload.yaml"
    verdicts = [
        sim.simulate(sim.load_scenario(path, {"workload.arrivals.rate": rate})).summary["infersim"][
            "verdict"
        ]
        for rate in (10, 3)
    ]
    assert verdicts[0]["state"] == "overloaded"
    assert verdicts[0]["slo_met"] is False
    assert verdicts[1]["state"] == "stable"


@pytest.mark.parametrize(("name", "least"), [("chat-sessions", 0.5), ("agent", 0.9), ("rag", 0.3)])
def test_a_prefix_cache_saves_what_the_scenario_is_about(name: str, least: float) -> None:
    """And first tokens come sooner with it, behind the same prompts."""
    short = {"run.requests": 2000}
    with_cache, without = (
        figures(name, {**short, "kv_cache.enable_prefix_caching": on}) for on in (True, False)
    )
    assert with_cache["infersim"]["prefix_cache"]["hit_rate"] > least  # type: ignore[index]
    assert with_cache["mean_ttft_ms"] < 0.8 * without["mean_ttft_ms"]


def test_equal_popularity_spoils_the_cache() -> None:
    found = {
        zipf: figures("rag", {"run.requests": 2000, "workload.shared_prefix.zipf": zipf})
        for zipf in (0, 1)
    }
    hits = {zipf: each["infersim"]["prefix_cache"] for zipf, each in found.items()}  # type: ignore[index]
    assert hits[0]["hit_rate"] < 0.1 < hits[1]["hit_rate"]  # type: ignore[index]


def test_priorities_let_the_lower_class_pay_for_short_memory() -> None:
    """99 % of chat within the limits, 35 % where all are served as they come."""
    kept, preempted = {}, {}
    for order in ("priority", "fcfs"):
        asked = sim.load_scenario(SCENARIOS / "priorities.yaml", {"scheduler.order": order})
        result = sim.simulate(asked)
        classes = {each["name"]: each for each in result.summary["infersim"]["classes"]}
        kept[order] = classes["chat"]["attainment"]
        preempted[order] = result.requests.groupby("class")["preemptions"].sum()
    assert kept["priority"] > 0.98
    assert kept["fcfs"] < 0.5
    assert preempted["priority"]["chat"] == 0
    assert preempted["priority"]["summaries"] > 100
    assert preempted["fcfs"]["chat"] > 50
