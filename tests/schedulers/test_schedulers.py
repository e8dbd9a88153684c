"""What each batching policy does, as logs worked out by hand.

One line per iteration: its step, who was preempted for it, the prompts it prefills as
``request:tokens``, who decodes (and over how many slots, where those are more), and who is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from sim.errors import UsageError
from sim.growth.steady import Steady
from sim.memory import Allocator, ContiguousAllocator, PagedAllocator
from sim.request import Request
from sim.schedulers import (
    ChunkedPrefill,
    Limits,
    Plan,
    PrefillFirst,
    RequestLevel,
    Scheduler,
    Static,
    make_scheduler,
)

POLICIES: list[type[Scheduler]] = [Static, RequestLevel, ChunkedPrefill, PrefillFirst]
CONTINUOUS: list[type[Scheduler]] = [ChunkedPrefill, PrefillFirst]
Lengths = tuple[int, int, int]
"""(step of arrival, prompt tokens, output tokens)"""


def plenty() -> PagedAllocator:
    """More memory than any of these requests can use."""
    return PagedAllocator(1000, 4)


def describe(plan: Plan, scheduler: Scheduler) -> str:
    """One iteration in words, before it has run."""
    parts = []
    if plan.preempted:
        thrown_out = [r.id for r in islice(scheduler.waiting, plan.preempted)]
        parts.append("preempt " + " ".join(map(str, reversed(thrown_out))))
    if plan.chunks:
        parts.append("prefill " + " ".join(f"{c.request.id}:{c.tokens}" for c in plan.chunks))
    if plan.decode:
        names = " ".join(str(r.id) for r in scheduler.members() if r.joined >= 0)
        slots = f" in {plan.sequences}" if plan.sequences != plan.decode else ""
        parts.append(f"decode {names}{slots}")
    return " | ".join(parts)


class Script:
    """Feeds ``arrivals`` to a scheduler and writes down what it does; an iteration takes a second.

    With ``flush``, the scheduler hears after the last arrival that nobody else will come.
    """

    def __init__(
        self, scheduler: Scheduler, arrivals: list[Lengths], *, flush: bool = True
    ) -> None:
        self.scheduler = scheduler
        self.requests = [
            Request(number, float(at), prompt, output)
            for number, (at, prompt, output) in enumerate(arrivals)
        ]
        self.coming = list(self.requests)
        self.flush = flush
        self.now = 0
        self.log: list[str] = []
        self.plans: list[Plan] = []
        self.reserved: list[int] = []  # tokens of memory taken while each iteration ran
        self.tokens = [0] * len(arrivals)  # delivered to each request, counted one by one

    def step(self) -> None:
        """One second: who is due arrives, then an iteration runs if there is one."""
        scheduler = self.scheduler
        while self.coming and self.coming[0].queued <= self.now:
            scheduler.submit(self.coming.pop(0))
        if self.flush and not self.coming:
            scheduler.flush()
        plan = scheduler.schedule(float(self.now))
        if plan is not None:
            self._run(plan)
        scheduler.check_integrity()
        self.now += 1

    def _run(self, plan: Plan) -> None:
        scheduler = self.scheduler
        line = f"{self.now}: {describe(plan, scheduler)}"
        decoding = [r for r in scheduler.members() if r.joined >= 0] if plan.decode else []
        self.plans.append(plan)
        self.reserved.append(scheduler.kv.reserved)
        done = scheduler.complete(plan, 1, self.now + 1.0)
        self.log.append(line + (f" | done {' '.join(str(r.id) for r in done)}" if done else ""))
        for request in decoding:
            self.tokens[request.id] += 1
        for request in (chunk.request for chunk in plan.chunks):
            self.tokens[request.id] += request.joined >= 0 or request in done

    def run(self, until: int = 40) -> list[str]:
        """Up to step ``until``; what happened so far."""
        while self.now < until:
            self.step()
        return self.log


def play(
    policy: type[Scheduler], arrivals: list[Lengths], limits: Limits, kv: Allocator
) -> list[str]:
    """The log of a whole run, at whose end everybody is served and the memory is free."""
    script = Script(policy(limits, kv), arrivals)
    log = script.run()
    assert script.tokens == [output for _, _, output in arrivals]
    assert kv.reserved == 0
    return log


# -- four requests, four policies ----------------------------------------------------------------

FOUR = [(0, 4, 2), (0, 2, 4), (1, 3, 1), (2, 5, 2)]
TWO_SEATS = Limits(max_num_seqs=2, max_num_batched_tokens=8, batch_timeout=10.0)


def test_static_pads_and_holds_every_slot_until_the_longest_is_done() -> None:
    assert play(Static, FOUR, TWO_SEATS, plenty()) == [
        "0: prefill 0:4 1:4",
        "1: decode 0 1 | done 0",
        "2: decode 1 in 2",
        "3: decode 1 in 2 | done 1",
        "4: prefill 2:5 3:5 | done 2",
        "5: decode 3 in 2 | done 3",
    ]


def test_request_level_pads_nothing_but_lets_nobody_in_either() -> None:
    assert play(RequestLevel, FOUR, TWO_SEATS, plenty()) == [
        "0: prefill 0:4 1:2",
        "1: decode 0 1 | done 0",
        "2: decode 1",
        "3: decode 1 | done 1",
        "4: prefill 2:3 3:5 | done 2",
        "5: decode 3 | done 3",
    ]


def test_continuous_fills_a_seat_as_soon_as_it_is_free() -> None:
    assert play(ChunkedPrefill, FOUR, TWO_SEATS, plenty()) == [
        "0: prefill 0:4 1:2",
        "1: decode 0 1 | done 0",
        "2: prefill 2:3 | decode 1 | done 2",
        "3: prefill 3:5 | decode 1 | done 1",
        "4: decode 3 | done 3",
    ]


def test_prefill_first_lets_the_decodes_wait_for_every_prompt() -> None:
    assert play(PrefillFirst, FOUR, TWO_SEATS, plenty()) == [
        "0: prefill 0:4 1:2",
        "1: decode 0 1 | done 0",
        "2: prefill 2:3 | done 2",
        "3: prefill 3:5",
        "4: decode 1 3 | done 3",
        "5: decode 1 | done 1",
    ]


# -- chunked prefill -----------------------------------------------------------------------------


def test_a_long_prompt_is_cut_into_chunks_that_ride_along_with_the_decodes() -> None:
    """The decode costs one of four tokens; who comes later waits for the budget, not for a seat."""
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=4)
    script = Script(ChunkedPrefill(limits, plenty()), [(0, 2, 5), (1, 9, 2), (2, 1, 1)])
    assert script.run() == [
        "0: prefill 0:2",
        "1: prefill 1:3 | decode 0",
        "2: prefill 1:3 | decode 0",
        "3: prefill 1:3 | decode 0",
        "4: prefill 2:1 | decode 0 1 | done 0 1 2",
    ]
    assert [plan.chunks[0].context for plan in script.plans] == [0, 0, 3, 6, 0]
    assert [plan.context for plan in script.plans] == [0, 2, 3, 4, 5 + 9]
    assert [plan.held for plan in script.plans] == [2, 3 + 3, 4 + 6, 5 + 9, 6 + 10 + 1]
    assert [plan.admitted for plan in script.plans] == [1, 1, 0, 0, 1]
    assert [plan.running for plan in script.plans] == [1, 2, 2, 2, 3]
    assert not any(plan.stationary for plan in script.plans)


def test_what_a_last_chunk_leaves_of_the_budget_goes_to_the_next_prompt() -> None:
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=4)
    assert play(ChunkedPrefill, [(0, 6, 1), (0, 3, 1)], limits, plenty()) == [
        "0: prefill 0:4",
        "1: prefill 0:2 1:2 | done 0",
        "2: prefill 1:1 | done 1",
    ]


def test_a_chunk_of_one_token_is_a_prefill_and_not_a_decode() -> None:
    limits = Limits(max_num_seqs=1, max_num_batched_tokens=1)
    script = Script(ChunkedPrefill(limits, plenty()), [(0, 3, 2)])
    assert script.run() == [
        "0: prefill 0:1",
        "1: prefill 0:1",
        "2: prefill 0:1",
        "3: decode 0 | done 0",
    ]
    assert script.requests[0].first_token == 3.0


@pytest.mark.parametrize("policy", CONTINUOUS)
def test_no_more_sequences_than_seats(policy: type[Scheduler]) -> None:
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=100)
    script = Script(policy(limits, plenty()), [(0, 2, 3)] * 7)
    script.run()
    assert max(plan.running for plan in script.plans) == 3


def test_scheduler_reserve_full_isl_keeps_out_a_prompt_that_memory_could_begin_but_not_end() -> (
    None
):
    arrivals = [(0, 4, 6), (0, 12, 1)]
    kv = PagedAllocator(num_blocks=3, block_size=4)
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=6)
    assert play(ChunkedPrefill, arrivals, limits, kv) == [
        "0: prefill 0:4",
        "1: decode 0",
        "2: decode 0",
        "3: decode 0",
        "4: decode 0",
        "5: decode 0 | done 0",
        "6: prefill 1:6",
        "7: prefill 1:6 | done 1",
    ]


# -- preemption ----------------------------------------------------------------------------------


def test_without_it_a_prompt_may_start_and_be_thrown_out_in_the_middle() -> None:
    arrivals = [(0, 4, 6), (0, 12, 1)]
    kv = PagedAllocator(num_blocks=3, block_size=4)
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=6, scheduler_reserve_full_isl=False)
    script = Script(ChunkedPrefill(limits, kv), arrivals)
    assert script.run() == [
        "0: prefill 0:4 1:2",
        "1: preempt 1 | decode 0",
        "2: decode 0",
        "3: decode 0",
        "4: decode 0",
        "5: decode 0 | done 0",
        "6: prefill 1:6",  # from the beginning
        "7: prefill 1:6 | done 1",
    ]
    assert script.requests[1].preemptions == 1
    assert script.requests[1].scheduled == 0.0  # the first time in a batch counts


@pytest.mark.parametrize("policy", CONTINUOUS)
def test_the_newest_is_preempted_and_keeps_its_tokens_but_not_its_kv(
    policy: type[Scheduler],
) -> None:
    """Five tokens were delivered: they are prefilled with the prompt, and three more are made."""
    kv = PagedAllocator(num_blocks=4, block_size=4)
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=100)
    script = Script(policy(limits, kv), [(0, 4, 8), (0, 4, 8)])
    assert script.run(until=5) == [
        "0: prefill 0:4 1:4",
        "1: decode 0 1",
        "2: decode 0 1",
        "3: decode 0 1",
        "4: decode 0 1",
    ]
    assert script.tokens == [5, 5]
    script.step()
    newest = script.requests[1]
    assert list(script.scheduler.waiting) == [newest]
    assert (newest.computed, newest.generated, newest.preemptions) == (0, 5, 1)
    assert newest.last_token == 5.0
    assert script.run()[5:] == [
        "5: preempt 1 | decode 0",
        "6: decode 0",
        "7: decode 0 | done 0",
        "8: prefill 1:9",  # 4 of the prompt, 5 delivered; its iteration samples the sixth
        "9: decode 1",
        "10: decode 1 | done 1",
    ]
    assert script.tokens == [8, 8]
    assert (newest.generated, newest.computed) == (8, 11)
    assert (newest.scheduled, newest.first_token, newest.last_token) == (0.0, 1.0, 11.0)
    assert [plan.stationary for plan in script.plans[4:7]] == [True, False, True]
    assert kv.free_blocks == 4


@pytest.mark.parametrize("policy", CONTINUOUS)
def test_the_newest_has_to_go_whoever_is_short_and_those_preempted_keep_their_order(
    policy: type[Scheduler],
) -> None:
    """0 and 1 need a block each; 2 and 3 have room left, but came last, and wait ahead of 4."""
    kv = PagedAllocator(num_blocks=4, block_size=4)
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=100)
    arrivals = [(0, 4, 3), (0, 4, 3), (0, 1, 2), (0, 1, 2), (1, 1, 1)]
    assert play(policy, arrivals, limits, kv) == [
        "0: prefill 0:4 1:4 2:1 3:1",
        "1: preempt 3 2 | decode 0 1",
        "2: decode 0 1 | done 0 1",
        "3: prefill 2:2 3:2 4:1 | done 2 3 4",
    ]


def test_the_newest_is_who_was_admitted_last_whatever_its_number() -> None:
    kv = PagedAllocator(num_blocks=4, block_size=4)
    script = Script(ChunkedPrefill(Limits(), kv), [(0, 4, 8), (0, 4, 8)])
    script.coming.reverse()
    assert script.run(until=6)[4:] == ["4: decode 1 0", "5: preempt 0 | decode 1"]


def test_an_iteration_that_preempts_admits_nobody() -> None:
    """At 3 the first five tokens of 1 would fit at once; they come at 4."""
    kv = PagedAllocator(num_blocks=4, block_size=4)
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=6, scheduler_reserve_full_isl=False)
    script = Script(ChunkedPrefill(limits, kv), [(0, 4, 5), (0, 8, 3)])
    assert script.run(until=4)[3] == "3: preempt 1 | decode 0"
    assert script.reserved[3] == 8  # tokens: two of four blocks, so two are free
    assert script.run() == [
        "0: prefill 0:4 1:2",
        "1: prefill 1:5 | decode 0",
        "2: prefill 1:1 | decode 0",
        "3: preempt 1 | decode 0",
        "4: prefill 1:5 | decode 0 | done 0",
        "5: prefill 1:4",
        "6: decode 1 | done 1",
    ]


# -- prefill first -------------------------------------------------------------------------------


@pytest.mark.parametrize(("prompt", "enters"), [(49, 1), (50, 3)])
def test_an_admission_leaves_one_block_in_a_hundred_free(prompt: int, enters: int) -> None:
    """Half of the memory is taken: 49 more tokens enter, 50 wait until it is given back."""
    kv = PagedAllocator(num_blocks=100, block_size=1)
    script = Script(PrefillFirst(Limits(), kv), [(0, 50, 3), (1, prompt, 1)])
    script.run()
    assert script.requests[1].scheduled == enters


def test_an_idle_replica_gives_all_of_its_memory() -> None:
    kv = PagedAllocator(num_blocks=100, block_size=1)
    assert play(PrefillFirst, [(0, 100, 1)], Limits(), kv) == ["0: prefill 0:100 | done 0"]


def test_whole_prompts_share_an_iteration_as_far_as_the_budget_goes() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=8)
    arrivals = [(0, 4, 2), (0, 4, 2), (0, 1, 2), (0, 8, 2)]
    assert play(PrefillFirst, arrivals, limits, plenty()) == [
        "0: prefill 0:4 1:4",
        "1: prefill 2:1",
        "2: prefill 3:8",
        "3: decode 0 1 2 3 | done 0 1 2 3",
    ]


def test_a_sequence_that_outgrew_the_budget_before_it_was_preempted_is_prefilled_alone() -> None:
    kv = PagedAllocator(num_blocks=4, block_size=4)
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=5)
    assert play(PrefillFirst, [(0, 4, 8), (0, 4, 8), (7, 1, 1)], limits, kv) == [
        "0: prefill 0:4",
        "1: prefill 1:4",
        "2: decode 0 1",
        "3: decode 0 1",
        "4: decode 0 1",
        "5: decode 0 1",
        "6: preempt 1 | decode 0",
        "7: decode 0",
        "8: decode 0 | done 0",
        "9: prefill 1:9",
        "10: prefill 2:1 | done 2",
        "11: decode 1",
        "12: decode 1 | done 1",
    ]


# -- static --------------------------------------------------------------------------------------


def test_static_waits_for_exactly_as_many_as_it_has_slots_and_flush_lets_the_rest_go() -> None:
    limits = Limits(max_num_seqs=3)
    arrivals = [(0, 2, 1), (3, 2, 1), (5, 2, 1), (6, 2, 1)]
    script = Script(Static(limits, plenty()), arrivals, flush=False)
    assert script.run(until=20) == ["5: prefill 0:2 1:2 2:2 | done 0 1 2"]
    assert [r.id for r in script.scheduler.waiting] == [3]
    script.scheduler.flush()
    script.step()
    assert script.log[1:] == ["20: prefill 3:2 | done 3"]


def test_a_last_call_is_over_when_somebody_comes() -> None:
    scheduler = Static(Limits(max_num_seqs=3), plenty())
    scheduler.flush()
    scheduler.submit(Request(0, 0.0, 2, 2))
    assert scheduler.schedule(0.0) is None
    scheduler.flush()
    assert scheduler.schedule(0.0) is not None


def test_static_starts_no_more_than_its_slots() -> None:
    limits = Limits(max_num_seqs=2)
    assert play(Static, [(0, 1, 1)] * 5, limits, plenty()) == [
        "0: prefill 0:1 1:1 | done 0 1",
        "1: prefill 2:1 3:1 | done 2 3",
        "2: prefill 4:1 | done 4",
    ]


def test_static_computes_the_padding_and_reserves_the_rectangle_until_the_end() -> None:
    """Prompts 2 and 5, outputs 3 and 2: slots of 5 + 3 - 1 tokens, two blocks each."""
    kv = PagedAllocator(num_blocks=10, block_size=4)
    script = Script(Static(Limits(max_num_seqs=2), kv), [(0, 2, 3), (0, 5, 2)])
    assert script.run() == [
        "0: prefill 0:5 1:5",
        "1: decode 0 1 | done 1",
        "2: decode 0 in 2 | done 0",
    ]
    assert [(plan.sequences, plan.context) for plan in script.plans] == [(0, 0), (2, 10), (2, 12)]
    assert [plan.held for plan in script.plans] == [2 + 5, 3 + 6, 4 + 6]  # padding holds nothing
    assert [plan.running for plan in script.plans] == [2, 2, 2]
    assert script.reserved == [16, 16, 16]
    assert kv.reserved == 0
    assert [r.last_token for r in script.requests] == [3.0, 2.0]  # each ends with its own last


def test_static_takes_as_many_as_its_memory_holds_in_a_rectangle() -> None:
    """Two slots of one block would do for 0 and 1; with 2 every slot takes three of the six."""
    kv = PagedAllocator(num_blocks=6, block_size=4)
    arrivals = [(0, 4, 1), (0, 4, 1), (0, 4, 9)]
    log = play(Static, arrivals, Limits(max_num_seqs=3), kv)
    assert log[:2] == ["0: prefill 0:4 1:4 | done 0 1", "1: prefill 2:4"]


# -- request level -------------------------------------------------------------------------------


def test_request_level_starts_when_the_oldest_has_waited_long_enough() -> None:
    limits = Limits(max_num_seqs=4, batch_timeout=3.0)
    arrivals = [(0, 2, 1), (2, 2, 1), (4, 2, 1)]
    script = Script(RequestLevel(limits, plenty()), arrivals, flush=False)
    assert script.run() == ["3: prefill 0:2 1:2 | done 0 1", "7: prefill 2:2 | done 2"]


def test_request_level_waits_no_longer_once_the_batch_is_full() -> None:
    limits = Limits(max_num_seqs=2, batch_timeout=30.0)
    script = Script(RequestLevel(limits, plenty()), [(0, 2, 1), (2, 2, 1)], flush=False)
    assert script.run() == ["2: prefill 0:2 1:2 | done 0 1"]


def test_the_timeout_runs_from_when_the_engine_got_the_oldest_request() -> None:
    """Not from when its client sent it, and not from when the youngest came."""
    scheduler = RequestLevel(Limits(max_num_seqs=4, batch_timeout=2.5), plenty())
    assert scheduler.wakeup(0.0) == math.inf
    oldest, youngest = Request(0, 0.0, 2, 2), Request(1, 0.0, 2, 2)
    oldest.queued, youngest.queued = 3.0, 5.0
    scheduler.submit(oldest)
    assert scheduler.schedule(3.0) is None
    assert scheduler.wakeup(3.0) == 5.5
    scheduler.submit(youngest)
    assert scheduler.wakeup(5.0) == 5.5
    assert scheduler.schedule(5.25) is None
    plan = scheduler.schedule(5.5)
    assert plan is not None
    assert plan.admitted == 2
    assert scheduler.wakeup(5.5) == math.inf


def test_nobody_joins_a_batch_under_way() -> None:
    limits = Limits(max_num_seqs=4, batch_timeout=0.0)
    assert play(RequestLevel, [(0, 2, 3), (1, 2, 1)], limits, plenty()) == [
        "0: prefill 0:2",
        "1: decode 0",
        "2: decode 0 | done 0",
        "3: prefill 1:2 | done 1",
    ]


def test_a_finished_sequence_costs_no_compute_but_keeps_its_slot_and_memory() -> None:
    """Sequences of 2 + 3 - 1 and 5 + 2 - 1 tokens: one block and two, to the end."""
    kv = PagedAllocator(num_blocks=10, block_size=4)
    script = Script(RequestLevel(Limits(max_num_seqs=2), kv), [(0, 2, 3), (0, 5, 2)])
    assert script.run() == [
        "0: prefill 0:2 1:5",
        "1: decode 0 1 | done 1",
        "2: decode 0 | done 0",
    ]
    assert [(plan.sequences, plan.context) for plan in script.plans] == [(0, 0), (2, 7), (1, 3)]
    assert [plan.held for plan in script.plans] == [7, 9, 4 + 6]
    assert [plan.running for plan in script.plans] == [2, 2, 2]
    assert script.reserved == [12, 12, 12]
    assert kv.reserved == 0


def test_request_level_takes_as_many_as_its_memory_holds_one_by_one() -> None:
    kv = PagedAllocator(num_blocks=5, block_size=4)
    arrivals = [(0, 4, 1), (0, 4, 1), (0, 4, 9), (0, 1, 1)]  # 1, 1, 3 and 1 blocks
    log = play(RequestLevel, arrivals, Limits(max_num_seqs=4), kv)
    assert log[0] == "0: prefill 0:4 1:4 2:4 | done 0 1"
    assert log[-1] == "9: prefill 3:1 | done 3"


# -- memory --------------------------------------------------------------------------------------


def test_contiguous_slabs_limit_how_many_run() -> None:
    """A hundred tokens hold two slabs of 40, and twenty-five blocks of 4."""
    arrivals, limits = [(0, 4, 2)] * 3, Limits(max_num_seqs=8, max_model_len=40)
    assert play(ChunkedPrefill, arrivals, limits, ContiguousAllocator(100, slab=40)) == [
        "0: prefill 0:4 1:4",
        "1: decode 0 1 | done 0 1",
        "2: prefill 2:4",
        "3: decode 2 | done 2",
    ]
    assert play(ChunkedPrefill, arrivals, limits, PagedAllocator(25, 4)) == [
        "0: prefill 0:4 1:4 2:4",
        "1: decode 0 1 2 | done 0 1 2",
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_limited_by_slabs(policy: type[Scheduler]) -> None:
    limits = Limits(max_num_seqs=4, max_model_len=40)
    kv = ContiguousAllocator(100, slab=40)
    script = Script(policy(limits, kv), [(0, 4, 2)] * 6)
    script.run()
    assert script.tokens == [2] * 6
    assert max(script.reserved) == 80
    assert max(plan.running for plan in script.plans) == 2


@pytest.mark.parametrize("policy", CONTINUOUS)
def test_slabs_never_preempt(policy: type[Scheduler]) -> None:
    limits = Limits(max_num_seqs=4, max_model_len=40)
    kv = ContiguousAllocator(160, slab=40)
    script = Script(policy(limits, kv), [(0, 20, 20)] * 4)
    script.run()
    assert len(script.plans) == 20  # all four together, one prefill and nineteen decodes
    assert not any(plan.preempted for plan in script.plans)


# -- what all of them do -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_to_do_is_no_plan(policy: type[Scheduler]) -> None:
    scheduler = policy(Limits(), plenty())
    assert scheduler.schedule(0.0) is None
    scheduler.flush()
    assert scheduler.schedule(1.0) is None
    assert scheduler.wakeup(1.0) == math.inf


@pytest.mark.parametrize("policy", POLICIES)
def test_one_token_outputs_end_with_their_prefill(policy: type[Scheduler]) -> None:
    script = Script(policy(Limits(max_num_seqs=3), plenty()), [(0, 4, 1), (0, 4, 1), (2, 4, 1)])
    script.run()
    assert script.tokens == [1, 1, 1]
    assert not any(plan.decode or plan.sequences for plan in script.plans)
    for request in script.requests:
        assert request.first_token == request.last_token == request.scheduled + 1.0
        assert request.computed == 4  # the sampled token never was in the cache
    assert script.scheduler.kv.reserved == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_one_token_output_beside_a_longer_one(policy: type[Scheduler]) -> None:
    script = Script(policy(Limits(max_num_seqs=2), plenty()), [(0, 4, 1), (0, 4, 3)])
    assert script.run()[0] == "0: prefill 0:4 1:4 | done 0"
    assert script.tokens == [1, 3]
    assert [plan.decode for plan in script.plans] == [0, 1, 1]


@pytest.mark.parametrize("policy", POLICIES)
def test_times_are_those_of_the_iterations(policy: type[Scheduler]) -> None:
    script = Script(policy(Limits(max_num_seqs=1), plenty()), [(0, 4, 3), (1, 4, 2)])
    script.run()
    first, second = script.requests
    assert (first.scheduled, first.first_token, first.last_token) == (0.0, 1.0, 3.0)
    assert (second.scheduled, second.first_token, second.last_token) == (3.0, 4.0, 5.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_plan_repeats_until_the_first_is_done_if_the_caller_wants_to(
    policy: type[Scheduler],
) -> None:
    script = Script(policy(Limits(max_num_seqs=2), plenty()), [(0, 4, 30), (0, 4, 9)])
    script.run(until=1)
    plan = script.scheduler.schedule(1.0)
    assert plan is not None
    assert plan.stationary
    assert [script.scheduler.repeats(limit) for limit in (1, 5, 8, 9, 1000)] == [1, 5, 8, 8, 8]
    done = script.scheduler.complete(plan, 8, 9.0)
    assert [r.id for r in done] == [1]


@pytest.mark.parametrize("policy", CONTINUOUS)
def test_a_plan_repeats_as_long_as_the_blocks_last(policy: type[Scheduler]) -> None:
    """Both open their second and last block at once, and there is none after the fourth decode."""
    kv = PagedAllocator(num_blocks=4, block_size=4)
    script = Script(policy(Limits(), kv), [(0, 4, 9), (0, 4, 9)])
    script.run(until=1)
    assert script.scheduler.schedule(1.0) is not None
    assert [script.scheduler.repeats(limit) for limit in (1, 3, 4, 5, 1000)] == [1, 3, 4, 4, 4]


# -- the decoding batch ---------------------------------------------------------------------------


def test_who_has_waited_longer_than_an_iteration_for_a_token() -> None:
    """0 and 1 have their first tokens at 1 and 3, and wait for a prompt that runs until 6."""
    batch = Steady()
    requests = [Request(number, 0.0, 4, 10) for number in range(4)]
    batch.join(requests[0], 1.0)
    assert batch.stalled(1.0) == []
    batch.join(requests[1], 3.0)
    batch.join(requests[2], 6.0)
    batch.join(requests[3], 6.0)
    assert batch.stalled(3.0) == [(1.0, 1)]
    assert batch.stalled(6.0) == [(1.0, 1), (3.0, 1)]
    batch.leave(requests[1])  # preempted before it could decode
    assert [cohort for cohort in batch.stalled(6.0) if cohort[1]] == [(1.0, 1)]
    batch.advance(2, 8.0)
    assert batch.stalled(8.0) == []
    batch.join(requests[1], 9.0)
    assert batch.stalled(9.0) == [(8.0, 3)]  # all but the one that has just got its token
    batch.leave(requests[0])
    assert (requests[0].generated, requests[0].last_token) == (2, 8.0)
    assert batch.stalled(9.0) == [(8.0, 2)]
    assert (batch.size, batch.iteration) == (3, 2)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_refusal_names_the_reason(policy: type[Scheduler]) -> None:
    """The last token is sampled but never cached, so 40 blocks of 4 hold 161 tokens in all."""
    limits = Limits(max_model_len=500, max_num_batched_tokens=1000)
    scheduler = policy(limits, PagedAllocator(num_blocks=40, block_size=4))
    reasons = {
        (100, 61): None,
        (100, 62): "larger than the KV cache",
        (1, 160): None,
        (400, 100): "larger than the KV cache",
        (400, 101): "longer than max_model_len",
    }
    for (prompt, output), reason in reasons.items():
        assert scheduler.refusal(Request(0, 0.0, prompt, output)) == reason
    tight = policy(Limits(max_model_len=161, max_num_batched_tokens=1000), scheduler.kv)
    assert tight.refusal(Request(0, 0.0, 100, 61)) is None
    assert tight.refusal(Request(0, 0.0, 100, 62)) == "longer than max_model_len"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_slab_refuses_what_is_longer_than_itself(policy: type[Scheduler]) -> None:
    scheduler = policy(Limits(max_model_len=500), ContiguousAllocator(1000, slab=50))
    assert scheduler.refusal(Request(0, 0.0, 40, 11)) is None
    assert scheduler.refusal(Request(0, 0.0, 40, 12)) == "larger than the KV cache"


@pytest.mark.parametrize("policy", POLICIES)
def test_only_prompts_that_are_not_cut_must_fit_an_iteration(policy: type[Scheduler]) -> None:
    scheduler = policy(Limits(max_num_batched_tokens=8, max_num_seqs=2), plenty())
    assert scheduler.refusal(Request(0, 0.0, 8, 50)) is None
    reason = scheduler.refusal(Request(0, 0.0, 9, 1))
    if policy is PrefillFirst:
        assert reason == "prompt longer than max_num_batched_tokens (without chunked prefill)"
    else:
        assert reason is None


# -- found by name -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batching", "chunked", "policy"),
    [
        ("static", True, Static),
        ("static", False, Static),
        ("request", False, RequestLevel),
        ("continuous", True, ChunkedPrefill),
        ("continuous", False, PrefillFirst),
    ],
)
def test_policies_by_name(batching: str, chunked: bool, policy: type[Scheduler]) -> None:
    kv, limits = plenty(), Limits(max_num_seqs=3)
    scheduler = make_scheduler(batching, limits, kv, rule="vllm" if chunked else "vllm-v0")
    assert type(scheduler) is policy
    assert scheduler.kv is kv
    assert scheduler.limits is limits


def message(batching: str) -> str:
    with pytest.raises(UsageError) as caught:
        make_scheduler(batching, Limits(), plenty())
    return str(caught.value)


def test_an_unknown_policy_is_answered_with_the_nearest_and_with_what_there_is() -> None:
    assert message("continous") == (
        "unknown batching 'continous' (did you mean 'continuous'?); "
        "known: static, request, continuous, or package.module:Class"
    )


@pytest.mark.parametrize(
    "batching",
    [
        "nosuchpackage.policies:Mine",
        "sim.nosuch:Mine",
        ":Mine",
        ".policies:Mine",
    ],
)
def test_a_class_that_cannot_be_imported(batching: str) -> None:
    assert message(batching).startswith(f"scheduler '{batching}' cannot be imported (")


@pytest.mark.parametrize("batching", ["sim.schedulers:Nosuch", "os:"])
def test_a_class_that_its_module_lacks(batching: str) -> None:
    name = batching.partition(":")[2]
    assert message(batching).startswith(f"scheduler '{batching}': ")
    assert f".py has no '{name}'" in message(batching)


@pytest.mark.parametrize(
    "batching", ["sim.request:Request", "math:pi", "sim.schedulers:make_scheduler"]
)
def test_a_class_that_is_no_scheduler(batching: str) -> None:
    assert message(batching).startswith(
        f"scheduler '{batching}' is not a subclass of sim.schedulers.Scheduler"
    )


def test_an_abstract_class_is_answered_with_what_it_lacks() -> None:
    assert message("sim.schedulers:Scheduler").startswith(
        "scheduler 'sim.schedulers:Scheduler' is abstract: it does not implement "
        "_retire, members, schedule"
    )


OWN_POLICY = '''
from collections import deque

from sim.schedulers import ChunkedPrefill


class ShortestFirst(ChunkedPrefill):
    """The shortest prompt that waits goes first."""

    def schedule(self, now):
        self.waiting = deque(sorted(self.waiting, key=lambda r: r.prompt_tokens))
        plan = super().schedule(now)
        if plan is not None and self.waiting:
            plan.stationary = False  # who comes next may be shorter and go first
        return plan
'''


def test_a_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_policy_for_tests.py").write_text(OWN_POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    make: Callable[..., Scheduler] = make_scheduler
    scheduler = make(
        "own_policy_for_tests:ShortestFirst",
        Limits(max_num_seqs=1),
        plenty(),
        rule="vllm-v0",
    )
    assert isinstance(scheduler, ChunkedPrefill)
    script = Script(scheduler, [(0, 9, 1), (0, 3, 1), (0, 6, 1)])
    assert script.run() == [
        "0: prefill 1:3 | done 1",
        "1: prefill 2:6 | done 2",
        "2: prefill 0:9 | done 0",
    ]
