"""Runs with LoRA adapters: who shares a prefix, what more adapters cost, and what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.growth.leaps import ADAPTERS, LOADS
from sim.planning.fleet.launch import launch_commands
from sim.workload.adapters import AdapterDraw
from tests.feature_pairs import BASE, FEATURES
from tests.golden_scenarios import changed


def run(*features: str, **more: Any) -> sim.RunResult:
    data = BASE
    for name in features:
        data = changed(data, FEATURES[name])
    return sim.simulate(sim.load_scenario(changed(data, more)))


def test_traffic_is_the_same_with_adapters_and_without() -> None:
    plain, adapted = run().requests, run("lora").requests
    assert "adapter" not in plain
    assert set(adapted["adapter"]) == {0, 1, 2, 3, 4}
    for column in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert (plain[column] == adapted[column]).all()


def test_adapters_are_as_popular_as_asked() -> None:
    draw, even = AdapterDraw(4, 1.0, seed=1), AdapterDraw(4, 0.0, seed=1)
    drawn = np.bincount([draw.of(n) for n in range(20_000)]) / 20_000
    assert drawn == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.01)
    drawn = np.bincount([even.of(n) for n in range(20_000)]) / 20_000
    assert drawn == pytest.approx(np.full(4, 0.25), abs=0.01)
    assert len({draw.of(n, session=7) for n in range(50)}) == 1


def test_a_prefix_is_found_within_its_adapter_alone() -> None:
    alike = {"workload.shared_prefix": {"tokens": 48, "groups": 1}}
    prompts = {"workload.prompt_tokens": {"kind": "fixed", "value": 64}}
    asked = {**alike, **prompts, "kv_cache.enable_prefix_caching": True, "run.requests": 200}
    one, many = ({**asked, "lora": {"adapters": n, "max_loras": 4}} for n in (1, 40))
    for more, adapters in ((one, 1), (many, 40)):
        found = run(**more)
        drawn = len(set(found.requests["adapter"]))
        assert drawn == adapters
        hits = found.summary["infersim"]["prefix_cache"]["hits"]
        assert hits == (200 - drawn) * 48  # the first of each adapter computes it


def test_more_adapters_in_a_batch_slow_decoding() -> None:
    shipped = {"lora": {"adapters": 8, "max_loras": 8}, "run.requests": 300}
    took = []
    for adapters in (None, 1, 8):
        scenario = sim.load_scenario("scenarios/chat.yaml").override(shipped)
        changes = {"lora": None} if adapters is None else {"lora.adapters": adapters}
        took.append(sim.simulate(scenario.override(changes)).summary)
    plain, one, eight = (each["mean_tpot_ms"] for each in took)
    assert plain < one < eight
    assert "adapters" not in took[0]["infersim"]["time_by_operator"]
    found = took[2]["infersim"]["lora"]
    assert found["loads"] == 8
    assert found["mean_adapters"] > took[1]["infersim"]["lora"]["mean_adapters"] == 1


def test_loads_stop_the_replica_and_are_counted() -> None:
    found = run("lora")
    own, plans = found.summary["infersim"]["lora"], found.record.plans
    assert own["loads"] == plans[LOADS].sum() == found.timeseries["adapter_loads"].sum() > 2
    assert plans[ADAPTERS].max() <= 2
    link = found.record.pools[0].deployment.gpu.host_link
    copies = 16 * 7 * 2  # A and B of seven slices in 16 layers
    rate = link.bandwidth * 128 / 130 * 256 / 282
    one = own["slot_bytes"] / rate + copies * link.latency
    assert own["load_seconds"] == pytest.approx(own["loads"] * one)
    gaps = plans["start"][1:] - plans["end"][:-1]
    assert (gaps[plans[LOADS][1:] > 0] >= one * (1 - 1e-9)).all()
    (note,) = (n for n in found.summary["infersim"]["notes"] if n.startswith("Adapters: "))
    assert f"{own['loads']} loads of" in note


def test_commands_serve_the_adapters() -> None:
    commands = launch_commands(sim.load_scenario(changed(BASE, FEATURES["lora"])))
    words = "--enable-lora --max-loras 2 --max-lora-rank 16 --max-cpu-loras 5"
    modules = "--lora-target-modules qkv_proj o_proj gate_up_proj down_proj"
    assert f"{words} {modules}" in commands["vllm"]
    assert "--enable-lora --max-loras-per-batch 2 --max-lora-rank 16" in commands["sglang"]
