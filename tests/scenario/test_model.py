"""The model of a scenario: a name alone, or with what its config does not say."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.deployments import deployment_of
from sim.errors import ScenarioError, UsageError
from sim.iteration import Batch
from sim.planning.causes.counterfactuals import counterfactuals
from sim.planning.causes.uncertain import uncertain
from sim.pools import prepare_pool
from sim.scenario import Scenario
from tests.planning_fixtures import SMALL, small

QWEN = "qwen3-30b-a3b"
FACT: dict[str, Any] = {"path": QWEN, "expert_skew": 1.2}


def seconds(scenario: Scenario, tokens: int) -> float:
    """One decode iteration of so many sequences of hardly any context."""
    pool = prepare_pool(scenario, scenario.only_pool)
    return pool.cost.seconds(Batch(tokens, tokens))


def test_a_name_alone_stays_one_and_a_mapping_stays_one() -> None:
    plain, skewed = small(model=QWEN), small(model=FACT)
    assert (plain.model.path, plain.model.expert_skew) == (QWEN, 0)
    assert plain.resolved()["model"] == QWEN
    assert small(model={"path": QWEN}).resolved()["model"] == QWEN
    assert skewed.resolved()["model"] == FACT
    assert sim.load_scenario(skewed.resolved()) == skewed != plain
    assert str(skewed.model) == "qwen3-30b-a3b, expert skew 1.2"


def test_an_override_says_more_of_a_name() -> None:
    assert small(model=QWEN).override({"model.expert_skew": 1.2}) == small(model=FACT)
    assert small(model=FACT).override(["model.path=mixtral-8x7b"]).model.path == "mixtral-8x7b"
    assert small(model=FACT).override({"model": QWEN}).model.expert_skew == 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("qwen3-30b", r"^model: no model is called 'qwen3-30b'"),
        (5, r"^model: expected a text, got 5"),
        ({"path": "qwen3-30b"}, r"^model\.path: no model is called"),
        ({"expert_skew": 1}, r"`path` is missing"),
        ({"path": QWEN, "expert_skew": -1}, r"^model\.expert_skew: expected a number of 0 or more"),
        ({"path": QWEN, "expert_skew": 9}, r"^model\.expert_skew: .*4"),
        ({"path": QWEN, "skew": 1}, r"unknown key 'skew'"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(model: object, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        sim.load_scenario({**SMALL, "model": model})


def test_a_model_without_experts_has_no_skew() -> None:
    scenario = small(model={"path": "llama-3.1-8b", "expert_skew": 1})
    with pytest.raises(UsageError, match=r"expert_skew: llama-3\.1-8b has no experts"):
        deployment_of(scenario, scenario.only_pool)


def test_skew_helps_small_batches_and_hurts_large_ones() -> None:
    """Sixteen sequences read fewer experts; of thousands the GPU with popular experts has more."""
    layout = {"fleet.gpu": "h200-sxm", "fleet.data_parallel": 8, "fleet.expert_parallel": True}
    settings = {"scheduler.max_num_seqs": 1024}
    even, skewed = (small(model=model).override(settings) for model in (QWEN, FACT))
    assert seconds(skewed, 16) < 0.9 * seconds(even, 16)
    even, skewed = even.override(layout), skewed.override(layout)
    assert seconds(skewed, 1024) > 1.05 * seconds(even, 1024)


def test_skew_is_an_uncertain_input_of_models_with_experts() -> None:
    assert "expert_skew" not in [each.name for each in uncertain(small(), 0.05, {})]
    (unsaid,) = [e for e in uncertain(small(model=QWEN), 0.05, {}) if e.name == "expert_skew"]
    assert (unsaid.low, unsaid.high) == (None, {"model.expert_skew": 1.2})
    (stated,) = [e for e in uncertain(small(model=FACT), 0.05, {}) if e.name == "expert_skew"]
    assert stated.low == {"model.expert_skew": pytest.approx(0.6)}
    assert stated.high == {"model.expert_skew": pytest.approx(1.8)}
    with pytest.raises(UsageError, match="--range expert_skew: the model has no experts"):
        uncertain(small(), 0.05, {"expert_skew": (0.5, 2)})


def test_a_diagnosis_tries_even_experts_where_they_are_not() -> None:
    assert "even-experts" in [each.name for each in counterfactuals(small(model=FACT))]
    assert "even-experts" not in [each.name for each in counterfactuals(small(model=QWEN))]


def test_a_context_longer_than_the_model_was_made_for_is_possible_when_asked_for() -> None:
    """Llama 2 was made for 4,096 tokens."""
    long = {"model": "llama-2-7b", "max_model_len": 16384}
    with pytest.raises(UsageError, match="allow_long_max_model_len: true takes them all"):
        prepare_pool(found := small(**long), found.only_pool)
    asked = small(**long, allow_long_max_model_len=True)
    assert prepare_pool(asked, asked.only_pool).limits.max_model_len == 16384
