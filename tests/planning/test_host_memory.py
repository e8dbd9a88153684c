"""Diagnoses try the memory of the host where that of the GPU was too small; ablations take it
away."""

from __future__ import annotations

from typing import Any

import sim
from sim.planning.causes.counterfactuals import Shortage, counterfactuals
from sim.planning.causes.techniques import effective, settings, techniques
from sim.scenario import Scenario
from tests.feature_pairs import BASE, FEATURES
from tests.golden_scenarios import changed


def scenario(name: str, **more: Any) -> Scenario:
    return sim.load_scenario(changed(BASE, {**FEATURES[name], **more}))


def tried(found: Scenario, shortage: Shortage | None) -> set[str]:
    return {change.name for change in counterfactuals(found, None, shortage)}


def test_a_host_tier_is_tried_where_evictions_cost_hits() -> None:
    caching = scenario("shared-prefix")
    assert {"host-tier", "swap"} <= tried(caching, Shortage(evicted=10, preempted=1))
    assert not {"host-tier", "swap"} & tried(caching, Shortage())
    assert "host-tier" not in tried(scenario("small-memory"), Shortage(evicted=10))
    assert not {"host-tier", "swap"} & tried(scenario("host-tier"), Shortage(10, 10))


def test_it_is_not_tried_where_it_is_not_modelled() -> None:
    for name in ("pipeline", "data-parallel", "windows", "mamba", "priority", "contiguous"):
        assert "swap" not in tried(scenario(name), Shortage(10, 10)), name


def test_what_is_tried_runs() -> None:
    for change in counterfactuals(scenario("shared-prefix"), None, Shortage(10, 10)):
        if change.name in ("host-tier", "swap"):
            own = sim.simulate(scenario("shared-prefix", **change.settings)).summary["infersim"]
            assert own["host_tier"]["blocks"] > 0


def test_an_ablation_takes_the_memory_of_the_host_away() -> None:
    for name, needs_prefixes in (("host-tier", True), ("swap", False)):
        known = techniques(scenario(name))
        host = next(technique for technique in known if technique.name == "host-memory")
        assert ("prefix-caching" in host.needs) is needs_prefixes
        every = {technique.name for technique in known}
        for gone in every:  # each of them can go, and what is left runs
            left = effective(every - {gone}, known)
            assert ("host-memory" in left) is (gone not in {"host-memory", *host.needs})
            without = scenario(name, **settings(left, known))
            assert (without.kv_cache.host_memory is None) is ("host-memory" not in left)
            sim.simulate(without)
