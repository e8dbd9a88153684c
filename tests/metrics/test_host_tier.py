"""What runs say of their caches: what was cold, what left, and what the host brought."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.metrics.engine.host_tier import host_tier
from sim.metrics.engine.prefix_hits import _steady
from tests.feature_pairs import BASE, FEATURES
from tests.golden_scenarios import changed


def run(name: str, **more: Any) -> Any:
    """A run of that feature."""
    return sim.simulate(sim.load_scenario(changed(BASE, {**FEATURES[name], **more})))


def test_every_token_looked_up_is_found_or_missed_for_one_reason() -> None:
    many = {"run.requests": 400, "run.warmup": 100}
    own = run("host-tier", **many, **{"scheduler.max_num_seqs": 3}).summary["infersim"]
    cache = own["prefix_cache"]
    assert cache["hits"] + cache["first_seen"] <= cache["queries"]
    assert 0 < cache["evicted"] <= cache["queries"] - cache["hits"] + own["host_tier"]["hits"]
    assert cache["first_seen"] <= 4 * 64  # four texts of four full blocks
    cold, warm = cache["warmup"], cache["after"]
    assert (cold["requests"], warm["requests"]) == (100, 300)
    assert cold["first_seen"] > 0
    assert warm["first_seen"] == 0
    assert any(note.startswith("Prefix caches start empty: in the") for note in own["notes"])


def test_bytes_and_time_follow_from_the_blocks_moved() -> None:
    told = run("host-tier")
    own, moves = told.summary["infersim"]["host_tier"], told.record.moves
    stored = int(moves["blocks"][moves["kind"] == 0].sum())
    assert own["stored_gb"] == pytest.approx(stored * 512 * 1024 / 1e9)
    assert own["to_host_gb"] == own["stored_gb"]
    assert own["blocks"] == 16
    outward = moves[moves["kind"] == 0]
    took = stored * 512 * 1024 / 1e9 + len(outward) * 10e-6  # 1 GB/s, and 10 us for each transfer
    assert own["link_out"] * told.record.duration == pytest.approx(took)
    loads = moves[moves["kind"] == 1]
    assert 0 < own["hits"] <= int(loads["blocks"].sum()) * 16
    assert own["hit_rate"] == own["hits"] / told.summary["infersim"]["prefix_cache"]["queries"]


def test_swaps_are_counted_and_the_break_even_is_said() -> None:
    told = run("swap")
    own = told.summary["infersim"]
    assert own["host_tier"]["swaps"] == own["preemptions"] > 0
    assert own["host_tier"]["hit_rate"] is None
    host = told.record.pools[0].host
    tokens = own["host_tier"]["break_even_tokens"]
    assert host.swap_seconds(160) == pytest.approx(2 * (10e-6 + 10 * host.block_seconds))
    assert host.swap_seconds(tokens) < host.recompute_seconds(tokens)
    assert tokens == 1 or host.swap_seconds(tokens - 1) >= host.recompute_seconds(tokens - 1)
    assert any("faster than computing it again" in note for note in own["notes"])


def test_a_slow_link_never_breaks_even() -> None:
    told = run("auto-swap", **{"kv_cache.host_bandwidth": "10MB/s"})
    own = told.summary["infersim"]
    assert (own["host_tier"]["swaps"], own["host_tier"]["break_even_tokens"]) == (0, None)
    assert own["preemptions"] > 0
    assert any(note.endswith("whatever its length.") for note in own["notes"])


def test_a_run_without_a_host_says_nothing_of_one() -> None:
    assert host_tier(run("shared-prefix").record) == {}
    assert "host_tier" not in run("small-memory").summary["infersim"]


def test_hits_that_grow_are_not_steady() -> None:
    asked = np.full(400, 100)
    growing = (np.arange(400) / 5).astype(np.int64)
    assert _steady(growing, asked) is False
    assert _steady(np.full(400, 60), asked) is True
    assert _steady(growing[::-1], asked) is True
    assert _steady(growing[:10], asked[:10]) is None
