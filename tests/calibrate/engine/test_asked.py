"""What engines that are observed here do where a scenario leaves it to its engine."""

from __future__ import annotations

from typing import Any

import pytest

from calibrate.engine.asked import as_driven, no_prefixes, refuse
from sim.errors import UsageError
from sim.scenario import load_scenario
from sim.setup import prepare
from tests.places import ROOT
from tests.planning_fixtures import SMALL


def test_what_is_left_to_the_engine_is_what_is_driven() -> None:
    chat = load_scenario(ROOT / "scenarios" / "chat.yaml")
    assert chat.kv_cache.enable_prefix_caching
    assert chat.scheduler.plans_ahead
    driven = as_driven(chat)
    assert not driven.kv_cache.enable_prefix_caching
    assert not driven.scheduler.plans_ahead
    refuse([no_prefixes(prepare(driven))])
    stated = as_driven(chat.override({"kv_cache.enable_prefix_caching": True}))
    with pytest.raises(UsageError, match="prompts are random here"):
        refuse([no_prefixes(prepare(stated))])


@pytest.mark.parametrize(
    "changes", [{}, {"engine": "reference"}, {"scheduler": {"batching": "static"}}], ids=str
)
def test_what_the_engine_does_not_choose_stays(changes: dict[str, Any]) -> None:
    scenario = load_scenario({**SMALL, **changes})
    assert as_driven(scenario) is scenario
