"""Experts that are chosen unequally often, against draws and published routings."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.importers.aiconfigurator.routing import Routing, loads, mean_counts
from sim import catalog
from sim.rng import stream
from sim.specs.experts import MixtureOfExperts
from sim.specs.layout import ONE_GPU, Layout
from sim.specs.popularity import busiest, chances, touched

EP8 = Layout(tensor=8, expert=8)


def test_the_share_of_experts_that_few_tokens_touch_is_that_of_the_published_draws() -> None:
    """Eight tokens that choose 8 of 128 experts each: 64 if routing is balanced, 41 with a power
    law of 1.2. There loads are allotted evenly within the law, which touches a quarter more experts
    than tokens that choose independently (52 and 36)."""
    drawn = {}
    for law in ("balanced", "power_law_1.2"):
        found = loads(Routing(8, 128, 8, 1, law), stream(0, "test"))
        drawn[law] = mean_counts(found)[1]
    assert drawn["balanced"] == 64
    assert drawn["power_law_1.2"] == pytest.approx(41, abs=1.5)
    even, skewed = (float(touched(chances(128, 8, skew), 8)) for skew in (0.0, 1.2))
    assert skewed / even == pytest.approx(drawn["power_law_1.2"] / 64, rel=0.1)


def drawn_busiest(experts: int, chosen: int, skew: float, groups: int, tokens: int) -> float:
    """Rows of the busiest group, the mean of 2,000 placements with a pass each."""
    rng = np.random.default_rng(11)
    found = chances(experts, chosen, skew)
    each = np.repeat(found.chance, found.number.astype(int))
    placed = rng.permuted(np.broadcast_to(each, (2000, experts)), axis=1)
    hits = rng.binomial(tokens, placed).reshape(2000, groups, -1)
    return float(hits.sum(axis=2).max(axis=1).mean())


@pytest.mark.parametrize(("groups", "tokens"), [(8, 16), (8, 4096), (32, 256)])
def test_the_busiest_group_is_that_of_drawn_placements(groups: int, tokens: int) -> None:
    found = busiest(256, 8, 1.0, groups, float(tokens))
    assert float(found.rows) == pytest.approx(drawn_busiest(256, 8, 1.0, groups, tokens), rel=0.04)


def test_skew_touches_fewer_experts_and_loads_the_busiest_gpu_more() -> None:
    even, skewed = MixtureOfExperts(128, 8, 768), MixtureOfExperts(128, 8, 768, skew=1.2)
    tokens = np.array([0.0, 1.0, 8.0, 64.0, 8192.0])
    assert (skewed.touched(tokens)[2:4] < 0.8 * even.touched(tokens)[2:4]).all()
    few, many = skewed.busiest(tokens, ONE_GPU), even.busiest(tokens, ONE_GPU)
    assert few.rows.tolist() == many.rows.tolist() == (8 * tokens).tolist()
    assert (skewed.busiest(tokens, EP8).rows[3:] > 1.3 * even.busiest(tokens, EP8).rows[3:]).all()
    assert (np.diff(skewed.busiest(np.arange(1.0, 5000.0), EP8).touched) >= 0).all()


def test_many_tokens_bring_rows_in_proportion_beyond_what_is_drawn() -> None:
    found = busiest(128, 8, 1.0, 8, np.array([1e5, 1e6]))
    assert found.rows[1] == pytest.approx(10 * found.rows[0], rel=0.01)


def test_only_experts_have_a_skew() -> None:
    skewed = catalog.model("qwen3-30b-a3b").with_skew(1.0)
    mlp = skewed.layers[0].mlp
    assert isinstance(mlp, MixtureOfExperts)
    assert mlp.skew == 1.0
    assert mlp.left_out is None
    dense = catalog.model("llama-3.1-8b")
    assert dense.with_skew(0.0) is dense
    with pytest.raises(ValueError, match=r"expert_skew: llama-3\.1-8b has no experts"):
        dense.with_skew(0.5)
    with pytest.raises(ValueError, match="skew: got -1"):
        MixtureOfExperts(8, 2, 64, skew=-1)
