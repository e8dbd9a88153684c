"""The KV cache over time where requests share blocks: by one, by several, cached, free."""

from __future__ import annotations

import numpy as np
import pytest

import sim
from reports.figures import memory_use
from reports.figures.steps import fleet_steps
from tests.feature_pairs import BASE
from tests.golden_scenarios import changed


def made(**more: object) -> sim.Result:
    """Two at once, of texts of four blocks; every second has the one before as its neighbour."""
    changes = {
        "kv_cache.enable_prefix_caching": True,
        "kv_cache.num_gpu_blocks": 60,
        "workload.shared_prefix": {"tokens": 64, "groups": 1},
        "workload.arrivals": {"kind": "burst"},
        "workload.prompt_tokens": {"kind": "fixed", "value": 80},
        "workload.output_tokens": {"kind": "fixed", "value": 17},
        "scheduler.max_num_seqs": 2,
        "run.requests": 6,
        **more,
    }
    return sim.simulate(sim.load_scenario(changed(BASE, changes)))


def test_the_parts_are_the_whole_cache_and_shared_blocks_are_counted_once() -> None:
    run = made()
    tokens = run.summary["infersim"]["kv_cache"]["tokens"]
    steps = fleet_steps(run.timeseries, run.requests)
    found = memory_use.kv_parts(steps, tokens)
    assert list(found) == [name for name in memory_use.PARTS if name in found]
    np.testing.assert_allclose(sum(found.values()), tokens, rtol=1e-12)
    # while two decode they share four blocks; nobody else has any of them
    both = (steps.levels["running"] == 2) & (found["kv_shared"] > 0)
    assert both.any()
    assert set(found["kv_shared"][both]) == {64.0}
    assert found["kv_used"][both].max() <= 2 * (16 + 17)
    assert found["kv_cached"][-1] > 0  # all have gone, and left their blocks


def test_idle_blocks_stay_cached_until_others_need_them() -> None:
    rows = made().timeseries
    assert rows["kv_idle_tokens"].iloc[0] == 0
    assert rows["kv_idle_tokens"].iloc[-1] > 0
    assert (rows["kv_idle_tokens"] + rows["kv_reserved_tokens"] <= 60 * 16).all()
    assert (rows["kv_shared_tokens"] <= rows["kv_used_tokens"]).all()


def test_without_a_prefix_cache_nothing_is_drawn_of_one() -> None:
    run = made(**{"kv_cache.enable_prefix_caching": False})
    assert "kv_shared_tokens" not in run.timeseries
    steps = fleet_steps(run.timeseries, run.requests)
    assert list(memory_use.kv_parts(steps, 960.0)) == ["kv_used", "kv_wasted", "kv_free"]


@pytest.mark.parametrize("caching", [True, False])
def test_the_legend_says_who_uses_the_cache(caching: bool) -> None:
    run = made(**{"kv_cache.enable_prefix_caching": caching})
    drawn = memory_use.kv_map(run.timeseries, run.requests, kv_tokens=960.0)
    names = [trace.name for trace in drawn.data]
    assert ("shared by several requests" in names) is caching
    assert ("used by one request" in names) is caching
    assert ("used" in names) is not caching
