"""Which requests a replica can never serve: counted alike before and after a run, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from sim import simulate
from sim.metrics.fleet.rejection import Rejection, SpareRate, foreseen, rejection
from sim.planning.load.loads import traffic_of
from sim.request import Refusal
from sim.setup import prepare
from tests.planning_fixtures import small

LONG = {"kind": "uniform", "low": 10, "high": 1990}


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"max_model_len": 1024}, {Refusal.TOO_LONG}),
        ({"max_model_len": 4096, "kv_cache__num_gpu_blocks": 65}, {Refusal.TOO_LARGE}),
        (
            {"max_model_len": 1500, "kv_cache__num_gpu_blocks": 65},
            {Refusal.TOO_LONG, Refusal.TOO_LARGE},
        ),
    ],
)
def test_what_is_foreseen_is_what_a_run_rejects(changes: dict[str, Any], reasons: set[str]) -> None:
    asked = small(workload__prompt_tokens=LONG, run__warmup=0, **changes)
    seen = rejection(simulate(asked).record)
    assert seen is not None
    assert set(seen.reasons) == reasons
    traffic = traffic_of(asked)
    lengths = (traffic.prompts + traffic.outputs)[: seen.requests]
    assert foreseen(lengths, seen.room) == seen
    assert sum(seen.reasons.values()) == seen.rejected > 0


def test_the_remedy_admits_every_request() -> None:
    asked = small(workload__prompt_tokens=LONG)
    told = rejection(simulate(asked).record)
    assert told is not None
    assert told.remedy == f"set max_model_len to {told.longest:,} or more"
    assert rejection(simulate(asked.override({"max_model_len": told.longest})).record) is None
    shorter = simulate(asked.override({"max_model_len": told.longest - 1})).record
    assert rejection(shorter) is not None


def test_a_small_cache_is_not_cured_by_max_model_len_alone() -> None:
    asked = small(workload__prompt_tokens=LONG, kv_cache__num_gpu_blocks=70)
    told = rejection(simulate(asked).record)
    assert told is not None
    assert told.room.kv_tokens == 69 * 16  # one block stays with the engine
    assert "set max_model_len" in told.remedy
    assert "raise kv_cache.num_gpu_blocks (it holds 1,104 tokens)" in told.remedy


def test_nobody_is_advised_beyond_what_the_model_was_made_for() -> None:
    room = SpareRate(8192, 500_000, 131_072, False)
    told = Rejection(10, 4, {Refusal.TOO_LONG: 4}, 200_000, room)
    assert told.remedy == (
        "set max_model_len to 131,072 or more, and leave requests of more than 131,072 tokens out: "
        "the model was made for no more"
    )
    already = Rejection(
        10, 4, {Refusal.TOO_LONG: 4}, 200_000, SpareRate(131_072, 500_000, 131_072, False)
    )
    assert already.remedy.startswith("leave requests of more than 131,072")


def test_the_remedy_of_a_length_that_no_file_states_is_to_state_it() -> None:
    room = SpareRate(2048, 500_000, 2048, False, assumed="m")
    assert Rejection(10, 4, {Refusal.TOO_LONG: 4}, 9000, room).remedy == (
        "add max_position_embeddings to the config.json of m, which does not give it: 2,048, the "
        "default of transformers, was taken"
    )


def test_a_run_that_accepts_all_has_none() -> None:
    asked = small()
    assert rejection(simulate(asked).record) is None
    setup = prepare(asked)
    traffic = traffic_of(asked)
    room = SpareRate(setup.only.limits.max_model_len, setup.only.capacity.tokens, 131_072, False)
    assert foreseen(traffic.prompts + traffic.outputs, room) is None


def test_reasons_of_a_policy_of_the_user_are_named_as_they_are() -> None:
    told = Rejection(10, 4, {"unpaid": 4}, 20, SpareRate(8192, 500_000, 131_072, False))
    assert told.text == "4 of 10 requests (40%) are rejected: unpaid"
    assert told.remedy == ""
    assert told.document()["remedy"] is None
