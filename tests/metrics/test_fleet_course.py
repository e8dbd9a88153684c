"""What pools had over time: the means of stretches add up to what the whole run had."""

from __future__ import annotations

import numpy as np
import pytest

import sim
from sim.metrics.charts import fleet_course
from sim.metrics.latency.timeline import Level
from tests.loop.test_autoscaler import SCENARIO as SCALED
from tests.loop.test_handover import SCENARIO as APART


def test_means_of_a_level_are_its_integral() -> None:
    """2 from 1 s, 5 from 2 s, 1 from 6 s on."""
    level = Level(np.array([1.0, 2.0, 6.0]), np.array([2.0, 5.0, 1.0]))
    assert level.means(np.array([0.0, 1.5, 3.0, 7.0, 9.0])).tolist() == pytest.approx(
        [2 * 0.5 / 1.5, (2 * 0.5 + 5) / 1.5, (5 * 3 + 1) / 4, 1.0]
    )
    assert Level(np.empty(0), np.empty(0)).means(np.array([0.0, 1.0])).tolist() == [0.0]


def test_a_scaled_pool_holds_what_is_paid() -> None:
    result = sim.simulate(SCALED)
    course = result.charts["fleet"]
    (pool,), (scaled,) = course["pools"], result.summary["infersim"]["scaling"]
    widths = np.diff(course["edges"])
    first = float(result.record.requests["arrival"].min())  # paid from then on
    held = float(np.dot(pool["held"], widths)) - first
    assert held == pytest.approx(scaled["replica_hours"] * 3600, rel=1e-4)
    assert max(pool["held"]) == scaled["peak_replicas"]
    assert course["handed"] is None
    waited = result.record.queue.sum()
    assert np.dot(pool["waiting"], widths) == pytest.approx(waited, rel=1e-4)


def test_requests_between_two_pools_are_counted_while_their_kv_is_on_its_way() -> None:
    """Number in the middle times time: the seconds that all of them spent there."""
    result = sim.simulate({**APART, "run": {"requests": 60}})
    course, rows = result.charts["fleet"], result.record.handed
    assert rows is not None
    widths = np.diff(course["edges"])
    spent = (rows["arrived"] - rows["prefilled"]).sum()
    assert np.dot(course["handed"], widths) == pytest.approx(spent, rel=1e-4)
    prompts, answers = course["pools"]
    assert set(prompts["held"]) == {float(result.record.pools[0].replicas)}
    own = result.record.requests
    inside = (own["scheduled"] - result.record.reached(own)).sum()
    assert np.dot(prompts["waiting"], widths) == pytest.approx(inside, rel=1e-4)
    later = (own["first_token"] - rows["arrived"][np.argsort(rows["request"])]).sum()
    assert np.dot(answers["waiting"], widths) == pytest.approx(later, rel=1e-4)


def test_one_pool_of_a_fixed_size_has_none() -> None:
    result = sim.simulate({**SCALED, "fleet": {"gpu": "h100-sxm"}, "autoscaling": None})
    assert "fleet" not in result.charts
    assert fleet_course(result.record, np.array([0.0, 1.0])) is None
