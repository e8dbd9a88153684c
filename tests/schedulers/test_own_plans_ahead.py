"""An order or policy of one's own that changes nothing gives what the engine's own gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import sim
from tests.planning_fixtures import SMALL

MINE = """
from sim.schedulers import POLICIES, Order

class Same(Order):
    def key(self, request):
        return 0

class Nothing(POLICIES["continuous"]):
    pass
"""


@pytest.mark.parametrize(
    ("own", "like"),
    [
        ("scheduler.order=same_as:Same", []),
        ("scheduler.batching=same_as:Nothing", ["scheduler.async_scheduling=false"]),
    ],
)
def test_what_changes_nothing_gives_the_same(tmp_path: Path, own: str, like: list[str]) -> None:
    (tmp_path / "same_as.py").write_text(MINE, encoding="utf-8")
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "engine": "vllm"}), encoding="utf-8")
    mine, its = (sim.simulate(sim.load_scenario(path).override(each)) for each in ([own], like))
    assert mine.requests.equals(its.requests)
    notes = [each for each in mine.summary["infersim"]["notes"] if "Compare it with" in each]
    assert len(notes) == len(like)
    assert its.scenario.only_pool.scheduler.plans_ahead is not bool(like)
