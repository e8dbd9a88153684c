"""Routers that send a request where its prompt, or its session, was before."""

from __future__ import annotations

from typing import Any

import pytest

import sim
from sim.planning.causes.counterfactuals import counterfactuals
from sim.planning.causes.diagnose import diagnose
from sim.planning.causes.techniques import techniques
from sim.planning.points.executors import local
from sim.request import Prefix, Request
from sim.routers import PrefixAffinity, SessionAffinity
from sim.routers.affinity import (
    BALANCE_ABS_THRESHOLD,
    BALANCE_REL_THRESHOLD,
    CACHE_THRESHOLD,
    MAX_IDLE,
    SentPrompts,
)


class Load:
    """A replica that has that many requests."""

    queued = 0
    queued_prompt_tokens = 0
    kv_used = 0.0

    def __init__(self, outstanding: int) -> None:
        self.outstanding = outstanding


NUMBERS = iter(range(1_000_000))


def prompt(tokens: int, *prefix: tuple[int, int], session: int = -1, at: float = 0.0) -> Request:
    return Request(next(NUMBERS), at, tokens, 5, prefix=prefix, session=session)


def loads(*outstanding: int) -> list[Load]:
    return [Load(each) for each in outstanding]


# -- sessions --------------------------------------------------------------------------------------


def test_a_session_stays_where_its_first_request_went() -> None:
    router = SessionAffinity()
    assert router.choose(prompt(10, session=4), loads(3, 1, 2)) == 1
    assert router.choose(prompt(10, session=4), loads(0, 500, 0)) == 1
    assert router.choose(prompt(10, session=5), loads(0, 500, 0)) == 0


def test_a_request_of_no_session_goes_by_the_load_and_binds_no_other() -> None:
    router = SessionAffinity()
    assert [router.choose(prompt(10), loads(*each)) for each in ((1, 0), (0, 1))] == [1, 0]


def test_a_session_is_forgotten_after_four_idle_hours() -> None:
    router = SessionAffinity()
    for number, at in ((1, 0.0), (2, 1.0), (1, 5000.0)):
        assert router.choose(prompt(9, session=number, at=at), loads(0, 1)) == 0
    late = 1.0 + MAX_IDLE
    assert router.choose(prompt(9, session=1, at=late), loads(1, 0)) == 0
    assert router.choose(prompt(9, session=2, at=late), loads(1, 0)) == 1


# -- what was sent where ---------------------------------------------------------------------------


def test_the_thresholds_are_those_with_which_sglangs_router_starts() -> None:
    """``RouterArgs`` of sglang-router 0.3.2; its library has 0.5, 32 and 1.0001 by default."""
    assert (CACHE_THRESHOLD, BALANCE_ABS_THRESHOLD, BALANCE_REL_THRESHOLD) == (0.3, 64, 1.5)


def test_the_longest_match_wins_and_of_equals_who_was_first() -> None:
    sent = SentPrompts(10_000)
    sent.add(prompt(500, (1, 400)), 2)
    sent.add(prompt(500, (1, 400)), 0)
    assert sent.longest(prompt(600, (1, 400))) == (400, 2)
    assert sent.longest(prompt(300, (1, 300))) == (300, 2)
    sent.add(prompt(700, (1, 400), (9, 600)), 0)
    assert sent.longest(prompt(700, (1, 400), (9, 650))) == (600, 0)
    assert sent.longest(prompt(700, (1, 400), (8, 650))) == (400, 2)
    assert sent.longest(prompt(700, (8, 650))) == (0, 0)
    assert sent.longest(prompt(700)) == (0, 0)


def test_a_text_in_the_middle_is_found_behind_its_whole_beginning_only() -> None:
    """Replica 1 was sent more of text 2 but forgot text 1: nothing behind a gap counts."""
    sent = SentPrompts(10_000)
    sent.add(prompt(200, (1, 100), (2, 150)), 0)
    sent.add(prompt(90, (1, 90)), 1)
    assert sent.longest(prompt(200, (1, 100), (2, 200))) == (150, 0)


def test_the_next_turn_finds_the_prompt_of_the_last_one_but_not_the_answer() -> None:
    sent = SentPrompts(10_000)
    first = prompt(100)
    sent.add(first, 1)
    assert sent.longest(prompt(300, (~first.id, 105))) == (100, 1)


def test_the_oldest_is_forgotten_and_of_one_prompt_its_end() -> None:
    sent = SentPrompts(250)
    shared: Prefix = ((1, 100),)
    first, second, third = (prompt(150, *shared) for _ in range(3))
    for each in (first, second, third):
        sent.add(each, 0)  # 100 shared and 50 of each: 250
    turns = [prompt(200, *shared, (~each.id, 150)) for each in (first, second, third)]
    assert [sent.longest(turn) for turn in turns] == [(150, 0)] * 3
    sent.add(prompt(30), 0)  # the end of the first goes, not what others begin with
    assert [sent.longest(turn) for turn in turns] == [(100, 0), (150, 0), (150, 0)]
    sent.add(prompt(30), 1)  # of another replica
    assert sent.longest(turns[1]) == (150, 0)


def test_a_longer_look_at_a_text_counts_its_tokens_once() -> None:
    sent = SentPrompts(300)
    first = prompt(100)
    sent.add(first, 0)
    sent.add(prompt(200, (~first.id, 150)), 0)  # 150 and 50
    assert sent.longest(prompt(400, (~first.id, 150))) == (150, 0)
    sent.add(prompt(100), 0)  # 300 in all: nothing goes
    assert sent.longest(prompt(400, (~first.id, 150))) == (150, 0)


# -- the router ------------------------------------------------------------------------------------


def test_more_than_a_threshold_of_the_prompt_decides() -> None:
    router, idle = PrefixAffinity(), loads(5, 0, 0)
    assert router.choose(prompt(1000, (1, 300)), loads(0, 9, 9)) == 0
    assert router.choose(prompt(1000, (1, 300)), idle) == 1  # 0.3 of it is not more than 0.3
    assert router.choose(prompt(900, (1, 300)), idle) == 0  # and here it is: the first has it


@pytest.mark.parametrize(
    ("outstanding", "chosen"),
    [((64, 0), 0), ((65, 0), 1), ((194, 129), 1), ((195, 130), 0), ((196, 130), 1)],
)
def test_the_load_decides_where_it_is_far_apart(outstanding: tuple[int, int], chosen: int) -> None:
    """More than 64 apart, and more than 1.5 times as many."""
    router = PrefixAffinity()
    assert router.choose(prompt(100, (1, 90)), loads(0, 1)) == 0
    assert router.choose(prompt(100, (1, 90)), loads(*outstanding)) == chosen


def test_what_is_sent_for_the_load_is_remembered_too() -> None:
    router = PrefixAffinity()
    assert router.choose(prompt(100, (1, 50)), loads(0, 1)) == 0
    assert router.choose(prompt(100, (1, 50), (2, 95)), loads(99, 0)) == 1
    assert router.choose(prompt(100, (1, 50), (2, 95)), loads(0, 0)) == 1


# -- in a run --------------------------------------------------------------------------------------

SHARED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 4},
    "kv_cache": {"enable_prefix_caching": True, "num_gpu_blocks": 3000},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 40},
        "shared_prefix": {"tokens": 2000, "groups": 40},
        "prompt_tokens": {"kind": "uniform", "low": 2100, "high": 3000},
        "output_tokens": {"kind": "uniform", "low": 20, "high": 200},
    },
    "run": {"requests": 400},
}
"""A replica has room for a half of the shared texts, four have room for twice all of them."""


def test_affinity_finds_far_more_than_turns_and_is_less_even() -> None:
    turns, affine = (
        sim.simulate(sim.load_scenario(SHARED, {"router": name})).summary["infersim"]
        for name in ("round-robin", "prefix-affinity")
    )
    hits, more = (own["prefix_cache"]["hit_rate"] for own in (turns, affine))
    assert more > 2 * hits > 0.3
    even, uneven = (own["routing"]["requests_over_mean"] for own in (turns, affine))
    assert 1 == even < uneven < 1.5


def test_a_run_says_what_each_replica_had() -> None:
    scenario = sim.load_scenario(SHARED, {"router": "prefix-affinity", "max_model_len": 3100})
    result = sim.simulate(scenario)
    own, rows = result.summary["infersim"], result.requests
    assert own["requests"]["rejected"] > 0
    found = own["routing"]
    served = rows[rows["replica"] >= 0]
    counts = served.groupby("replica").size().tolist()
    tokens = (served["prompt_tokens"] + served["generated_tokens"]).groupby(served["replica"])
    assert [each["requests"] for each in found["replicas"]] == counts
    assert [each["tokens"] for each in found["replicas"]] == tokens.sum().tolist()
    assert [each["replica"] for each in found["replicas"]] == [0, 1, 2, 3]
    assert found["requests_over_mean"] == max(counts) / (sum(counts) / 4)
    assert found["tokens_over_mean"] == max(tokens.sum()) / (tokens.sum().sum() / 4)
    hits = sum(
        each["hit_rate"] * prompts
        for each, prompts in zip(
            found["replicas"], served.groupby("replica")["prompt_tokens"].sum(), strict=True
        )
    )
    assert hits == pytest.approx(own["prefix_cache"]["hits"])


TALKS: dict[str, Any] = {
    **SHARED,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 8},
        "sessions": {
            "turns": {"kind": "geometric", "mean": 5},
            "think_time": {"kind": "fixed", "value": "2s"},
        },
        "prompt_tokens": {"kind": "uniform", "low": 200, "high": 600},
        "output_tokens": {"kind": "uniform", "low": 20, "high": 200},
    },
    "max_model_len": 16384,
}
"""Conversations, each turn of which repeats all before."""


@pytest.mark.parametrize("router", ["session-affinity", "prefix-affinity"])
def test_turns_find_what_their_conversation_left(router: str) -> None:
    turns, affine = (
        sim.simulate(sim.load_scenario(TALKS, {"router": name})) for name in ("round-robin", router)
    )
    hits, more = (run.summary["infersim"]["prefix_cache"]["hit_rate"] for run in (turns, affine))
    assert more > 2 * hits > 0.1
    if router == "session-affinity":
        places = affine.requests.groupby("session")["replica"].nunique()
        assert len(places) > 50
        assert set(places) == {1}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"router": "prefix-affinity"}, ""),
        ({"router": "round-robin", "kv_cache.enable_prefix_caching": False}, ""),
        ({"router": "prefix-affinity", "kv_cache.enable_prefix_caching": False}, "no replica kee"),
        ({"router": "session-affinity"}, "No request belongs to a conversation"),
        ({"router": "session-affinity", "fleet.replicas": 1}, ""),
    ],
)
def test_what_a_router_looks_for_in_vain_is_told(changes: dict[str, Any], told: str) -> None:
    found = sim.simulate(sim.load_scenario(SHARED, {**changes, "run.requests": 30}))
    notes = [note for note in found.summary["infersim"]["notes"] if "affinity" in note]
    assert len(notes) == bool(told)
    assert told in "".join(notes)
    talks = sim.simulate(sim.load_scenario(TALKS, {"router": "session-affinity"}))
    assert not any("affinity" in note for note in talks.summary["infersim"]["notes"])


def test_one_replica_is_not_routed_to() -> None:
    alone = sim.simulate(sim.load_scenario(SHARED, {"fleet.replicas": 1, "run.requests": 20}))
    assert "routing" not in alone.summary["infersim"]


def test_ranks_of_a_replica_count_as_one() -> None:
    scenario = sim.load_scenario(
        {
            "model": "qwen3-30b-a3b",
            "fleet": {
                "gpu": "h200-sxm",
                "replicas": 2,
                "data_parallel": 2,
                "expert_parallel": True,
            },
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "fixed", "value": 3},
            },
            "run": {"requests": 10},
            "router": "round-robin",
        }
    )
    found = sim.simulate(scenario).summary["infersim"]["routing"]
    assert [each["requests"] for each in found["replicas"]] == [5, 5]


# -- what planning knows of it ---------------------------------------------------------------------


def test_a_diagnosis_tries_affinity_where_caches_could_gain_from_it() -> None:
    def tried(changes: dict[str, Any]) -> set[str]:
        return {each.name for each in counterfactuals(sim.load_scenario(SHARED, changes))}

    turns = {"router": "round-robin"}
    assert {"router", "affinity"} <= tried(turns)
    assert "affinity" not in tried({"router": "prefix-affinity"})
    assert "affinity" not in tried({**turns, "fleet.replicas": 1})
    assert "affinity" not in tried({**turns, "kv_cache.enable_prefix_caching": False})
    assert "affinity" not in tried({**turns, "workload.shared_prefix": None})
    assert "session-affinity" not in tried(turns)
    talks = {each.name for each in counterfactuals(sim.load_scenario(TALKS, turns))}
    assert {"router", "affinity", "session-affinity"} <= talks


def test_a_diagnosis_of_turns_finds_what_affinity_gains() -> None:
    changes = {"router": "round-robin", "workload.arrivals.rate": 120, "run.requests": 80}
    told = diagnose(sim.load_scenario(SHARED, changes), local(1), target="x.yaml")
    gained = {
        trial.change.name: trial.gains["output_throughput"] or 0.0
        for trial in told.trials
        if trial.effect is not None
    }
    assert gained["affinity"] > gained["router"] + 0.1


def test_affinity_is_a_technique_of_fleets_with_caches() -> None:
    def used(changes: dict[str, Any]) -> dict[str, Any]:
        found = techniques(sim.load_scenario(SHARED, {"router": "prefix-affinity", **changes}))
        return {each.name: (each.on, each.off, each.needs) for each in found}

    on, off = {"router": "prefix-affinity"}, {"router": "least-outstanding"}
    assert used({})["affinity"] == (on, off, ("prefix-caching",))
    for changes in ({"router": "round-robin"}, {"fleet.replicas": 1}):
        assert "affinity" not in used(changes)
