"""Prompts of data ranks that wait for each other, by hand, and with leaps as without."""

from __future__ import annotations

import random

import pytest

import sim
from sim.errors import UsageError
from sim.memory import PagedAllocator
from sim.schedulers import Limits, Scheduler
from sim.schedulers.tensorrt import MaxUtilization, MaxUtilizationOverlap, NoEvict, NoEvictOverlap
from tests.harness import Arriving, LineTimer, Played, play
from tests.loop.test_lockstep import SCENARIO, Meeting

POLICIES = (NoEvict, NoEvictOverlap, MaxUtilization, MaxUtilizationOverlap)


def scheduler(
    policy: type[MaxUtilization] = NoEvict,
    timeout: int = 4,
    more: int = 0,
    blocks: int = 100,
    seqs: int = 8,
) -> Scheduler:
    waits = {"attention_dp_timeout_iters": timeout, "attention_dp_batching_wait_iters": more}
    limits = Limits(seqs, 64, 256, chunked_prefill=True, **waits)
    return policy(limits, PagedAllocator.of(blocks, 4, 256))


def played(traffic: list[Arriving], *, leap: bool, ranks: int = 2, **more: int) -> Played:
    """Iterations take 1 s, and 1/4 s more for each token of a prompt."""
    timer = LineTimer(1, 0, 0, 0.25)
    return play(traffic, lambda: scheduler(**more), timer, leap=leap, ranks=ranks)


PAIR: list[Arriving] = [(0.0, 4, 20), (0.0, 4, 20)]
"""A request on each rank; both begin to decode after 2 s."""


@pytest.mark.parametrize("leap", [True, False])
def test_a_lone_prompt_waits_for_the_end_of_the_count(leap: bool) -> None:
    """Iterations of decodes begin after 2, 3 and 4 s; the fourth, after 5 s, lets prompts in."""
    found = played([*PAIR, (3.5, 16, 1)], leap=leap)
    assert found.tokens[2] == [5 + 1 + 4]
    assert found.tokens[0][:5] == [2, 3, 4, 5, 10]


@pytest.mark.parametrize("leap", [True, False])
def test_the_count_goes_on_without_prompts(leap: bool) -> None:
    """Those after 5 and 9 s let prompts in; one that comes at 6.5 s waits for the second."""
    found = played([*PAIR, (6.5, 16, 1)], leap=leap)
    assert found.tokens[2] == [9 + 1 + 4]


@pytest.mark.parametrize("leap", [True, False])
def test_prompts_run_once_every_rank_has_one(leap: bool) -> None:
    """The first waits after 4 s, and both run after 5 s, before the count is at its end."""
    alone = [*PAIR, (3.5, 16, 1), (4.5, 16, 1)]
    found = played(alone, leap=leap, timeout=9)
    assert found.tokens[2] == found.tokens[3] == [5 + 1 + 4]
    later = played(alone, leap=leap, timeout=9, more=2)
    assert later.tokens[2] == later.tokens[3] == [7 + 1 + 4]


@pytest.mark.parametrize("leap", [True, False])
def test_nothing_waits_where_a_rank_decodes_nothing(leap: bool) -> None:
    """The second rank is idle; the third request goes there and runs at once."""
    found = played([(0.0, 4, 20), (2.5, 16, 1)], leap=leap)
    assert found.tokens[1] == [3 + 1 + 4]


@pytest.mark.parametrize("leap", [True, False])
def test_a_rank_without_a_free_slot_has_no_prompt_that_could_run(leap: bool) -> None:
    """One slot a rank: a request waits for it on the first rank, whose decode ends after 4 s, and
    runs as soon as that rank decodes nothing."""
    traffic: list[Arriving] = [(0.0, 4, 3), (0.0, 4, 20), (2.5, 4, 2)]
    found = played(traffic, leap=leap, seqs=1, timeout=99)
    assert found.tokens[2] == [4 + 2, 4 + 3]


@pytest.mark.parametrize("seed", range(40))
def test_leaps_change_nothing(seed: int) -> None:
    draw = random.Random(seed)
    exact, policy = seed % 2, POLICIES[seed % len(POLICIES)]
    traffic: list[Arriving] = []
    now = 0.0
    for _ in range(24):
        now += draw.choice([0.0, 0.5, 1.0, 4.0]) if exact else draw.expovariate(0.5)
        traffic.append((now, draw.randint(1, 60), draw.randint(1, 50)))
    timer = Meeting(0.5, 0.25, 2**-8 if exact else 0.003, 0.125, bend=draw.choice([None, 40, 90]))
    ranks, timeout, more = draw.choice([2, 3, 5]), draw.choice([1, 3, 20]), draw.choice([0, 2])
    blocks = draw.choice([30, 100])

    def make() -> Scheduler:
        return scheduler(policy, timeout, more, blocks, seqs=3)

    leaps, steps = (play(traffic, make, timer, leap=leap, ranks=ranks) for leap in (True, False))
    assert leaps.tokens == steps.tokens
    assert leaps.log == steps.log
    assert leaps.recorder.request_rows().tobytes() == steps.recorder.request_rows().tobytes()
    assert sum(map(len, leaps.tokens.values())) == sum(row[2] for row in traffic)
    for rank in leaps.replicas:
        assert rank.outstanding == rank.scheduler.kv.reserved == 0


WAITS = {"policy": "guaranteed-no-evict", "attention_dp_timeout_iters": 60}


def test_decodes_wait_less_often_and_first_tokens_come_later() -> None:
    """Clients that wait for their answers, of lengths that differ."""
    lengths = {"kind": "uniform", "low": 30, "high": 90}
    traffic = SCENARIO["workload"] | {  # type: ignore[operator]
        "arrivals": {"kind": "closed", "concurrency": 16},
        "prompt_tokens": {"kind": "fixed", "value": 400},
        "output_tokens": lengths,
    }
    found = []
    for more in ({}, {"attention_dp_timeout_iters": 20}):
        knobs = {"policy": "guaranteed-no-evict", **more}
        run = sim.simulate(SCENARIO | {"workload": traffic, "scheduler": knobs})
        with_prompts = {row["start"] for row in run.record.plans if row["prefill_seqs"]}
        found.append((len(with_prompts), run.summary["mean_ttft_ms"]))
    (often, soon), (seldom, late) = found
    assert seldom < 0.8 * often
    assert late > 1.5 * soon


def test_a_user_is_told_that_equal_lengths_keep_clients_in_step() -> None:
    """What then happens rests on lengths that are more alike than real ones."""

    def told(kind: str, low: int, high: int) -> bool:
        fixed = {"kind": "fixed", "value": 100}
        varied = {"kind": "uniform", "low": low, "high": high}
        arrivals = {"kind": kind} | ({"concurrency": 16} if kind == "closed" else {})
        arrivals |= {"rate": 1} if kind == "poisson" else {}
        workload = SCENARIO["workload"] | {  # type: ignore[operator]
            "arrivals": arrivals,
            "prompt_tokens": fixed,
            "output_tokens": varied if low < high else fixed,
        }
        summary = sim.simulate(SCENARIO | {"workload": workload}).summary
        return any("equally long" in note for note in summary["infersim"]["notes"])

    assert told("closed", 1, 1)
    assert not told("burst", 1, 1)  # all at once: few share a pass either way
    assert not told("closed", 99, 101)
    assert not told("poisson", 1, 1)


def test_only_data_ranks_wait_for_each_other() -> None:
    one = SCENARIO | {"fleet": {"gpu": "h100-sxm"}, "scheduler": WAITS}
    with pytest.raises(UsageError, match="only data ranks wait for each other"):
        sim.simulate(one)
    more = {"policy": "guaranteed-no-evict", "attention_dp_batching_wait_iters": 5}
    with pytest.raises(UsageError, match="without attention_dp_timeout_iters"):
        sim.simulate(SCENARIO | {"scheduler": more})
    vllm = {"attention_dp_timeout_iters": 60}
    both = "is a key of `policy: guaranteed-no-evict` and `policy: max-utilization`"
    with pytest.raises(UsageError, match=both):
        sim.simulate(SCENARIO | {"scheduler": vllm})
    off = sim.load_scenario(SCENARIO | {"scheduler": {"attention_dp_timeout_iters": 0}})
    assert off.scheduler.attention_dp_timeout_iters is None
