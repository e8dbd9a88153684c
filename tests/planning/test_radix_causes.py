"""Diagnoses and ablations try SGLang's prefix cache as they try vLLM's."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.planning.causes.counterfactuals import Shortage, counterfactuals
from sim.planning.causes.techniques import effective, settings, techniques
from sim.scenario import Scenario
from tests.feature_pairs import BASE, FEATURES
from tests.golden_scenarios import changed

RADIX = {
    "engine": "sglang",
    "kv_cache.enable_prefix_caching": True,
    "kv_cache.prefix_policy": "radix",
}


def scenario(**more: Any) -> Scenario:
    return sim.load_scenario(changed(BASE, {**FEATURES["shared-prefix"], **RADIX, **more}))


def hits(found: Scenario) -> float:
    rate: float = sim.simulate(found).summary["infersim"]["prefix_cache"]["hit_rate"]
    return rate


def test_a_diagnosis_tries_the_cache_of_the_engine() -> None:
    without = scenario(**{"kv_cache.enable_prefix_caching": False, "kv_cache.prefix_policy": None})
    tried = {change.name: change for change in counterfactuals(without, None, Shortage())}
    with_cache = without.override(dict(tried["prefix-caching"].settings))
    assert with_cache.scheduler.rule == "sglang"
    assert hits(with_cache) == hits(scenario()) > 0.1


@pytest.mark.parametrize("order", ["fcfs", "lpm"])
def test_an_ablation_takes_it_away(order: str) -> None:
    """With the policy named, too, although what is left may be another rule's."""
    chosen = scenario(**{"scheduler.order": order})
    known = techniques(chosen)
    every = {technique.name for technique in known}
    assert "prefix-caching" in every
    assert ("order" in every) is (order == "lpm")
    for gone in every:
        left = effective(every - {gone}, known)
        without = chosen.override(dict(settings(left, known)))
        assert without.kv_cache.enable_prefix_caching == ("prefix-caching" in left)
        own = sim.simulate(without).summary["infersim"]
        assert ("prefix_cache" in own) == ("prefix-caching" in left)
