"""A policy of one's own takes part in what it says that it can do, and in nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sim
from sim.errors import UsageError
from sim.schedulers import abilities
from sim.schedulers.abilities import Ability
from tests.planning_fixtures import SMALL

OWN = """
from sim.schedulers import BatchShape, ChunkedPrefill, DraftsByBatch, OffloadedPrefill
from sim.schedulers import PipelinedPrefill
from sim.schedulers.roles import DecodeRole, PrefillRole

class Silent(ChunkedPrefill):
    shape = BatchShape()

class Able(ChunkedPrefill):
    shape = BatchShape()
    abilities = frozenset({"loses", "withdraws", "drains", "in-order", "drafts"})

class ByBatch(DraftsByBatch):
    shape = BatchShape()
    abilities = frozenset({"drafts"})

class InFlight(PipelinedPrefill):
    shape = BatchShape()

class Hosted(OffloadedPrefill):
    shape = BatchShape()

class Prefills(PrefillRole):
    shape = BatchShape()

class Decodes(DecodeRole):
    shape = BatchShape()
"""

OUTAGE = {"outages": [{"at": "300ms", "replica": 0, "for": "200ms"}], "in_flight": "retry"}
FAIL = {"steps": [{"at": "300ms", "do": "fail", "replica": 0}]}
DRAFTS = {"method": "eagle", "num_tokens": 2, "acceptance": {"rates": [0.7, 0.5]}}
BY_BATCH = {**DRAFTS, "num_tokens_per_batch_size": [[1, 4, 2], [5, 256, 1]]}
CLASSES = [{"name": "chat", "share": 0.5}, {"name": "batch", "share": 0.5}]
SWAP = {"kv_cache.host_memory": "1GiB", "kv_cache.preemption": "swap"}
CROWDED = {
    "workload.arrivals.rate": 200,
    "scheduler.max_num_seqs": 8,
    "kv_cache.num_gpu_blocks": 60,
    "slo.ttft": "200ms",
}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "failures": ("failures", "Able", {"failures": OUTAGE}),
    "steering": ("steering", "Able", {"steering": FAIL}),
    "timeouts": ("scheduler.client_timeout", "Able", {"scheduler.client_timeout": "300ms"}),
    "scaling": ("fleet.replicas", "Able", {"fleet.replicas": {"min": 2, "max": 3}}),
    "admission": ("admission", "Able", {"admission": {"policy": "deadline"}}),
    "fair": (
        "scheduler.order",
        "Able",
        {"scheduler.order": "fair", "workload.classes": CLASSES},
    ),
    "drafts": ("speculative", "Able", {"speculative": DRAFTS}),
    "drafts by batch": ("speculative", "ByBatch", {"speculative": BY_BATCH}),
    "pipeline": ("fleet.pipeline_parallel", "InFlight", {"fleet.pipeline_parallel": 2}),
    "host": ("kv_cache.host_memory", "Hosted", SWAP),
}
"""The key that asks, the policy that can, and the changes."""


def run(folder: Path, batching: str, changes: dict[str, Any]) -> sim.Result:
    """A run of a small scenario under that policy."""
    (folder / "mine.py").write_text(OWN)
    own = "continuous" if batching == "continuous" else f"{folder / 'mine.py'}:{batching}"
    return sim.simulate(sim.load_scenario(SMALL, {**CROWDED, **changes, "scheduler.batching": own}))


@pytest.mark.parametrize("case", CASES)
def test_a_policy_that_can_is_served_as_the_one_that_ships(tmp_path: Path, case: str) -> None:
    _, able, changes = CASES[case]
    own, ours = (run(tmp_path, batching, changes) for batching in (able, "continuous"))
    assert own.requests.equals(ours.requests)
    assert own.timeseries.equals(ours.timeseries)
    plain = run(tmp_path, "continuous", {})
    assert not own.requests.equals(plain.requests), "the feature changes nothing here"


@pytest.mark.parametrize("case", CASES)
def test_a_policy_that_does_not_say_so_is_refused_with_the_reason(
    tmp_path: Path, case: str
) -> None:
    key, _, changes = CASES[case]
    with pytest.raises(UsageError) as caught:
        run(tmp_path, "Silent", changes)
    message = str(caught.value)
    assert message.startswith(f"{key}: scheduler '{tmp_path / 'mine.py'}:Silent' does not say")
    assert "abilities = frozenset" in message or "a subclass of sim.schedulers" in message


def test_pools_of_one_phase_take_policies_of_that_phase(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)

    def fleet(prefills: str, decodes: str) -> sim.Result:
        pools = [
            {"name": role, "role": role, "gpu": "h100-sxm", "scheduler": {"batching": batching}}
            for role, batching in (("prefill", prefills), ("decode", decodes))
        ]
        return sim.simulate(sim.load_scenario({**SMALL, "fleet": pools}))

    mine = f"{tmp_path / 'mine.py'}:"
    own, ours = fleet(f"{mine}Prefills", f"{mine}Decodes"), fleet("continuous", "continuous")
    assert own.requests.equals(ours.requests)
    with pytest.raises(UsageError, match=r"fleet\.role: .*Decodes' does not say that it hands"):
        fleet(f"{mine}Decodes", f"{mine}Decodes")
    with pytest.raises(UsageError, match=r"fleet\.role: .*Able' does not say that it takes"):
        fleet(f"{mine}Prefills", f"{mine}Able")


def test_each_ability_is_stated_by_a_policy_above() -> None:
    for name, each in vars(abilities).items():
        if not isinstance(each, Ability):
            continue
        how = f'"{each.name}"' if each.variant is None else f"({each.variant.__name__})"
        assert how in OWN, name
