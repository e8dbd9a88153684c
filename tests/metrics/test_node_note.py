"""Replicas larger than a node are timed over the network, and say so."""

from __future__ import annotations

from typing import Any

import pytest

from sim import simulate
from sim.planning.load.loads import further_notes
from tests.planning_fixtures import small

GIVEN = {"bandwidth": "100GB/s", "latency": "5us"}


@pytest.mark.parametrize(
    ("pool", "nodes"),
    [
        ({"tensor_parallel": 8}, None),
        ({"tensor_parallel": 16}, "2 nodes of 8"),
        ({"tensor_parallel": 8, "node": {"gpus": 2}}, "4 nodes of 2"),
        # a link that is stated joins all GPUs, unless nodes are stated, too
        ({"tensor_parallel": 16, "link": GIVEN}, None),
        ({"tensor_parallel": 16, "link": GIVEN, "node": {"gpus": 4}}, "4 nodes of 4"),
        ({"tensor_parallel": 16, "link": {"kind": "nvlink"}}, "2 nodes of 8"),
    ],
)
def test_a_replica_on_several_nodes_is_named_in_runs_and_searches(
    pool: dict[str, Any], nodes: str | None
) -> None:
    changes: dict[str, Any] = {f"fleet__0__{key}": value for key, value in pool.items()}
    scenario = small(**changes, model="qwen3-235b-a22b", run={"requests": 5})
    notes = simulate(scenario).summary["infersim"]["notes"]
    for found in (notes, further_notes(scenario)):
        told = [note for note in found if "of a replica stand on" in note]
        assert len(told) == (nodes is not None)
        assert all(str(nodes) in note for note in told)
