"""A key of an engine's rule is refused where the policy that serves does not read it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sim.scenario.sections import deployment
from sim.scenario.sections.deployment import SchedulerSettings
from sim.schedulers import RULES, Limits
from sim.schedulers.continuous import CADENCE

THRESHOLD = {"long_prefill_token_threshold": 64}
CADENCE_KEPT = {CADENCE: 2}
UNREAD: list[tuple[dict[str, Any], str]] = [
    ({"batching": "static", **THRESHOLD}, f"{next(iter(THRESHOLD))} is a key of continuous"),
    ({"batching": "request", **CADENCE_KEPT}, f"{CADENCE} is a key of continuous batching"),
    ({"order": "priority", **CADENCE_KEPT}, f"{CADENCE} is not read with `order: priority`"),
]


@pytest.mark.parametrize(("stated", "words"), UNREAD)
def test_a_key_that_the_policy_does_not_read_is_refused(
    stated: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    SchedulerSettings.model_validate(stated)  # version 1 lets it stand
    monkeypatch.setattr(deployment, "STAND_UNREAD", frozenset())
    with pytest.raises(ValidationError, match=words):
        SchedulerSettings.model_validate(stated)


@pytest.mark.parametrize("read", [THRESHOLD, CADENCE_KEPT, {"order": "priority", **THRESHOLD}])
def test_a_key_that_the_policy_reads_is_accepted(
    read: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "STAND_UNREAD", frozenset())
    SchedulerSettings.model_validate(read)


def test_a_policy_of_ones_own_may_read_any_key() -> None:
    SchedulerSettings.model_validate({"batching": "mine:Alone", "order": "mine:Last"} | THRESHOLD)


def test_a_key_of_a_rule_is_a_key_of_a_scenario_and_a_limit() -> None:
    limits = set(Limits.__dataclass_fields__)
    keys = {key for rule in RULES.values() for key in rule.knobs}
    assert keys <= limits & set(SchedulerSettings.model_fields)
    assert keys >= deployment.STAND_UNREAD
