"""The highest load of fleets of several pools: of one kind, of two GPUs, and apart by role."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import UsageError
from sim.metrics.slo.objectives import slo_objectives
from sim.planning.load.find import find
from sim.planning.load.find_document import document
from sim.planning.load.finder import Finder
from sim.planning.load.loads import traffic_of
from sim.planning.load.saturation import fleet_saturation, saturation
from sim.planning.load.settled import settle
from sim.scenario import Scenario
from sim.setup import prepare
from sim.terminal.console import as_text
from tests.answers import find_view
from tests.planning_fixtures import small

pytestmark = pytest.mark.usefixtures("brief_answers")

ONE = {"gpu": "h100-sxm"}
APART = [
    {"name": "prompts", "role": "prefill", **ONE},
    {"name": "answers", "role": "decode", **ONE},
]
TOLERANCE = 0.1


def pools(*fleet: dict[str, Any], **changes: Any) -> Scenario:
    named = [{"name": f"pool{at}", **pool} for at, pool in enumerate(fleet)]
    return small(fleet=named, scheduler__max_num_seqs=8, run__requests=300, **changes)


def full(scenario: Scenario) -> tuple[float, float]:
    """Requests/s and slots of all full batches."""
    found = fleet_saturation(prepare(scenario).pools, traffic_of(scenario))
    return found.rate, found.slots


def highest(finder: Finder, tolerance: float = TOLERANCE) -> float:
    """What ``find`` answers, without what else it says of the load."""
    best = settle(finder, finder.axis.scenario.replicas, tolerance, None).best
    assert best is not None
    return best.load


def test_two_pools_of_one_replica_serve_what_one_pool_of_two_does() -> None:
    two = pools(ONE, ONE)
    one = prepare(pools({**ONE, "replicas": 2}))
    each = saturation(one.only, traffic_of(one.scenario))
    assert full(two) == pytest.approx((2 * each.rate, 2 * each.slots))
    finders = [Finder(asked, "rate", slo_objectives(asked)) for asked in (two, one.scenario)]
    loads = [highest(finder) for finder in finders]
    assert loads[0] == pytest.approx(loads[1], rel=2 * TOLERANCE)
    assert finders[0].saturation.rate == pytest.approx(each.rate)  # of each replica


def test_pools_apart_are_limited_by_the_role_that_takes_longer() -> None:
    """Answers of 25 tokens on eight slots: a second prefill replica changes nothing."""
    lone = full(pools(*APART))
    assert full(pools({**APART[0], "replicas": 2}, APART[1])) == lone
    assert full(pools(APART[0], {**APART[1], "replicas": 2})) == pytest.approx(
        (2 * lone[0], 2 * lone[1])
    )


def test_the_highest_load_of_pools_apart_is_near_what_full_batches_serve() -> None:
    asked = pools(*APART)
    load = highest(Finder(asked, "rate", slo_objectives(asked)), tolerance=0.3)
    assert 0.3 < load / full(asked)[0] < 1


@pytest.mark.slow
def test_the_highest_load_of_pools_apart_grows_with_the_role_that_limits() -> None:
    loads = [
        find(pools(*fleet), "rate", tolerance=TOLERANCE).best.load
        for fleet in (
            APART,
            [{**APART[0], "replicas": 2}, APART[1]],
            [APART[0], {**APART[1], "replicas": 2}],
        )
    ]
    assert loads[1] < 1.2 * loads[0]
    assert loads[2] > 1.5 * loads[0]


def test_the_answer_names_all_its_gpus() -> None:
    mixed = pools(ONE, {"gpu": "l40s", "replicas": 2}, slo__tpot="60ms")
    found = document(find(mixed, "rate", tolerance=0.3))
    assert found["gpus"] == 3
    assert found["hardware"] == "1 x h100-sxm + 2 x (1 x l40s)"
    assert "on 1 x h100-sxm + 2 x (1 x l40s)" in as_text(find_view(found))


def test_a_fleet_that_is_scaled_is_refused() -> None:
    scaled = pools(ONE, {**ONE, "replicas": {"min": 1, "max": 2}})
    with pytest.raises(UsageError, match="give a number here"):
        find(scaled, "rate")
