"""Turns follow answers: hand-worked runs of sessions, and what must hold in every run of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import sim
from sim.loop.session_rows import OUTGROWN, WHOLE
from sim.memory.caching import CachingAllocator
from sim.request import Request
from sim.schedulers import Limits, PipelinedPrefill, make_scheduler
from sim.workload.longer import Longer
from sim.workload.sessions import (
    Between,
    Conversation,
    Delay,
    SessionLaw,
    SessionTraffic,
    SessionTurn,
)
from tests.harness import LineTimer, Played, play
from tests.workload.test_sessions import BASE, changed

LAW = SessionLaw(Between(1, 1), Delay(0.0), Delay(0.0), 0.0, Between(1, 1), True, 999, None,
                 Longer(1, 1, None))  # fmt: skip


class Given(SessionTraffic):
    """Sessions that were written down."""

    def __init__(self, given: Sequence[Conversation], clients: int = 0, pause: float = 0.0) -> None:
        total = sum(len(turn.requests) for session in given for turn in session.turns)
        super().__init__(total, LAW, iter([]), 0, clients=clients, pause=pause)
        self._given = given

    def sessions(self) -> Iterator[Conversation]:
        yield from self._given


def chat(number: int, start: float, *turns: SessionTurn) -> Conversation:
    return Conversation(number, start, list(turns), "whole")


def served(traffic: Given, *, leap: bool = True, caching: bool = False) -> Played:
    """One second an iteration, whatever is in it: tokens come at whole seconds."""

    def scheduler():  # type: ignore[no-untyped-def]
        kv = CachingAllocator(100, 16)
        return make_scheduler("continuous", Limits(max_model_len=512), kv)

    return play(traffic, scheduler, LineTimer(1.0, 0.0, 0.0, 0.0), leap=leap)


@pytest.mark.parametrize("leap", [True, False])
def test_a_turn_comes_a_delay_after_the_answer(leap: bool) -> None:
    """Prompt in the first second, a token each second: 3 tokens take 3 s."""
    played = served(
        Given([chat(0, 2.0, SessionTurn(0.0, 0, [(10, 3)]), SessionTurn(1.5, 13, [(20, 2)]))]),
        leap=leap,
    )
    assert played.tokens == {0: [3.0, 4.0, 5.0], 1: [7.5, 8.5]}
    assert played.recorder.request_rows()["arrival"].tolist() == [2.0, 6.5]


@pytest.mark.parametrize("leap", [True, False])
def test_the_next_turn_waits_for_all_branches(leap: bool) -> None:
    session = chat(0, 0.0, SessionTurn(0.0, 0, [(10, 2), (11, 4)]), SessionTurn(0.0, 12, [(30, 1)]))
    played = served(Given([session]), leap=leap)
    assert played.tokens == {0: [1, 2], 1: [1, 2, 3, 4], 2: [5]}


def test_no_branch_is_scheduled_before_it_has_passed_the_front_end() -> None:
    """The longest prompt of a turn passes last; each token of a prompt takes time there."""
    agent = sim.load_scenario("scenarios/agent.yaml", ["run.requests=400"])
    queued = sim.simulate(agent).requests["queue_s"]
    assert queued.min() >= -1e-12


@pytest.mark.parametrize("leap", [True, False])
def test_a_client_has_one_session_after_the_other(leap: bool) -> None:
    never = math.nan
    sessions = [chat(n, never, SessionTurn(0.0, 0, [(10, 1 + n)])) for n in range(4)]
    played = served(Given(sessions, clients=2, pause=0.5), leap=leap)
    # at 0 both; session 0 ends at 1, its client goes on at 1.5 within the second token of 1
    assert played.tokens == {0: [1], 1: [1, 2], 2: [3, 4, 5], 3: [4, 5, 6, 7]}
    assert played.recorder.request_rows()["arrival"].tolist() == [0.0, 0.0, 1.5, 2.5]


def test_at_one_instant_turns_go_by_the_number_of_their_session() -> None:
    """Session 1 answers before session 0 does; both next turns are due at 4."""
    first = chat(0, 0.0, SessionTurn(0.0, 0, [(10, 3)]), SessionTurn(1.0, 13, [(14, 1)]))
    second = chat(1, 0.0, SessionTurn(0.0, 0, [(10, 2)]), SessionTurn(2.0, 12, [(15, 1)]))
    rows = served(Given([first, second])).recorder.request_rows()
    assert rows["prompt_tokens"].tolist() == [10, 10, 14, 15]
    assert rows["arrival"].tolist() == [0.0, 0.0, 4.0, 4.0]


def test_the_history_is_found_in_the_cache() -> None:
    """Of 40 + 24 tokens the last answered one was never computed: 63 are there, 3 blocks full."""
    result = sim.simulate(
        sim.load_scenario(
            changed(
                BASE,
                {
                    "kv_cache": {"enable_prefix_caching": True},
                    "workload.arrivals": {"kind": "closed", "concurrency": 1},
                    "workload.prompt_tokens": {"kind": "fixed", "value": 40},
                    "workload.output_tokens": {"kind": "fixed", "value": 24},
                    "workload.sessions.turns": {"kind": "fixed", "value": 3},
                    "run.requests": 6,
                },
            )
        )
    )
    prompts = result.requests["prompt_tokens"].tolist()
    assert prompts == [40, 104, 168] * 2
    parts = result.record.parts[0]
    assert parts.found.tolist() == [0, 48, 112] * 2
    assert result.requests["turn"].tolist() == [1, 2, 3] * 2
    assert result.requests["session"].tolist() == [0, 0, 0, 1, 1, 1]
    hits = result.summary["infersim"]["prefix_cache"]
    assert (hits["hits"], hits["queries"]) == (320, sum(prompts))


def test_without_answers_the_history_is_the_prompts() -> None:
    changes = {
        "kv_cache": {"enable_prefix_caching": True},
        "workload.arrivals": {"kind": "closed", "concurrency": 1},
        "workload.prompt_tokens": {"kind": "fixed", "value": 40},
        "workload.output_tokens": {"kind": "fixed", "value": 24},
        "workload.sessions.turns": {"kind": "fixed", "value": 3},
        "workload.sessions.keep_answer": False,
        "run.requests": 3,
    }
    result = sim.simulate(sim.load_scenario(changed(BASE, changes)))
    assert result.requests["prompt_tokens"].tolist() == [40, 80, 120]
    assert result.record.parts[0].found.tolist() == [0, 32, 80]


def test_another_policy_meets_the_same_sessions() -> None:
    """Slots for one request or for many: other times, the same turns."""
    changes = {"run.requests": 600, "workload.sessions.think_time.mean": "1s"}
    many, one = (
        sim.simulate(sim.load_scenario(changed(BASE, {**changes, "scheduler": knobs}))).requests
        for knobs in ({}, {"max_num_seqs": 3})
    )
    keys = ["session", "turn"]
    both = many.merge(one, on=keys)
    assert len(both) > 100
    assert (both["prompt_tokens_x"] == both["prompt_tokens_y"]).all()
    assert (both["output_tokens_x"] == both["output_tokens_y"]).all()
    starts = both[both["turn"] == 1]
    assert (starts["arrival_s_x"] == starts["arrival_s_y"]).all()
    thought = [
        frame.sort_values(keys).set_index(keys)["arrival_s"].groupby("session").diff()
        - frame.sort_values(keys).set_index(keys)["e2el_s"].groupby("session").shift()
        for frame in (many, one)
    ]
    gaps = np.array([(thought[0] - thought[1]).dropna()])
    assert gaps.size > 20
    assert np.abs(gaps).max() < 1e-9


def test_the_summary_accounts_for_every_session() -> None:
    changes = {"max_model_len": 300, "run.requests": 500}
    result = sim.simulate(sim.load_scenario(changed(BASE, changes)))
    found, rows = result.summary["infersim"]["sessions"], result.record.sessions
    assert rows is not None
    assert rows.ended is not None
    assert found["started"] == result.requests["session"].nunique()
    assert found["finished"] == (rows.ended["ending"] == WHOLE).sum()
    assert found["outgrown"] == (rows.ended["ending"] == OUTGROWN).sum() > 0
    assert found["finished"] + found["outgrown"] + found["under_way"] == found["started"]
    turns = (found["first_turns"]["requests"], found["later_turns"]["requests"])
    counted = ~result.requests["warmup"]
    assert turns == (
        (counted & (result.requests["turn"] == 1)).sum(),
        (counted & (result.requests["turn"] > 1)).sum(),
    )
    second = result.requests[counted & (result.requests["turn"] == 2)]["ttft_s"]
    assert found["p50_ttft_ms_by_turn"][1] == pytest.approx(1e3 * second.median())
    assert any("longer than max_model_len" in note for note in result.summary["infersim"]["notes"])


def test_the_load_is_that_of_sessions_and_their_turns() -> None:
    """Twice the turns of one token more or less are nearly twice the load, at the same rate."""
    changes = {
        "workload.sessions.keep_answer": False,
        "workload.sessions.turns": {"kind": "fixed", "value": 3},
        "workload.prompt_tokens": {"kind": "fixed", "value": 8},
        "workload.arrivals.rate": 1,
        "run.requests": 900,
    }
    result = sim.simulate(sim.load_scenario(changed(BASE, changes)))
    verdict = result.summary["infersim"]["verdict"]
    alone = {**changes, "workload.sessions": None, "workload.prompt_tokens.value": 16}
    plain = sim.simulate(sim.load_scenario(changed(BASE, {**alone, "workload.arrivals.rate": 3})))
    same = plain.summary["infersim"]["verdict"]["utilisation"]
    assert verdict["utilisation"] == pytest.approx(same, rel=0.03)


def test_an_owner_in_another_batch_in_flight_is_looked_up_at_its_own_length() -> None:
    """Two batches in flight: what is cached of one that decodes in the other batch is counted with
    the iterations of that batch."""
    kv = CachingAllocator(100, 16)
    scheduler = PipelinedPrefill(Limits(max_model_len=512), kv, 2)
    owner, other = Request(0, 0.0, 16, 200), Request(1, 0.0, 16, 200)
    for number, request in enumerate((owner, other)):
        scheduler.submit(request)
        assert scheduler.plan(number, 0.0) is not None
    for _ in range(17):  # 16 tokens of its prompt, then one with each iteration but the first
        scheduler.complete_batch(0, 1.0)
        assert scheduler.plan(0, 1.0) is not None
    scheduler.complete_batch(1, 1.0)
    assert scheduler.plan(1, 1.0) is not None  # the other lane is in use
    reader = Request(2, 0.0, 100, 5, prefix=((~owner.id, 90),))
    assert kv.cached(reader) == 32
