"""Replicas larger than a node are timed by the link inside one, and say so."""

import pytest

from sim import simulate
from sim.planning.load.loads import further_notes
from tests.planning_fixtures import small


@pytest.mark.parametrize(("gpus", "told"), [(8, False), (16, True)])
def test_a_replica_over_two_nodes_is_named_in_runs_and_searches(gpus: int, told: bool) -> None:
    scenario = small(fleet__0__tensor_parallel=gpus, model="qwen3-235b-a22b", run={"requests": 5})
    notes = simulate(scenario).summary["infersim"]["notes"]
    for found in (notes, further_notes(scenario)):
        assert any(f"{gpus} GPUs of a replica" in note for note in found) is told
