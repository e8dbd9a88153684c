"""Drafts planned ahead: memory for two iterations, and one too many after a lucky end."""

from __future__ import annotations

import numpy as np
import pytest

from sim.growth.courses import DraftCourse, DraftCourses
from sim.growth.sampled import Sampled
from sim.memory.drafted import DraftedAllocator, DraftedCachingAllocator
from sim.request import Request
from sim.schedulers import Limits
from sim.schedulers.ahead_drafts import AsyncDraftedPrefill
from sim.schedulers.continuous import ChunkedPrefill
from sim.specs.speculation import Speculation

DRAFTS = 2


class Given(DraftCourses):
    """Courses on which each iteration accepts so many drafts as ``right`` says."""

    right: int

    def begin(self, request, drafts=None):
        lacks = request.output_tokens - request.generated
        accepted = np.full(lacks, self.right)
        course = self._now[request] = DraftCourse(accepted, lacks, self.drafts, DRAFTS)
        return course


def serve(requests, right, *, ahead=True, blocks=64, kind=DraftedAllocator, slots=4, budget=64):
    """A line for each iteration: sequences that get tokens, that are computed, prompt tokens, who
    was preempted, blocks taken when it runs, who is done."""
    courses = Given(Speculation("ngram", DRAFTS, (0.5,) * DRAFTS), 0, ahead=ahead)
    courses.right = right
    limits = Limits(max_num_seqs=slots, max_num_batched_tokens=budget, max_model_len=60)
    policy = AsyncDraftedPrefill if ahead else ChunkedPrefill
    scheduler = policy(limits, kind(blocks, 1, 60, courses))
    scheduler.decoding = Sampled(courses)
    for request in requests:
        scheduler.submit(request)
    log, left = [], len(requests)
    while (plan := scheduler.schedule(float(len(log)))) is not None:
        lost = [request.id for request in scheduler.preempted]
        scheduler.preempted.clear()
        tokens, reserved = sum(chunk.tokens for chunk in plan.chunks), scheduler.kv.reserved
        finished = scheduler.complete(plan, 1, float(len(log) + 1))
        scheduler.check_integrity()
        left -= len(finished)
        done = [request.id for request in finished]
        log.append((plan.decode, plan.sequences, tokens, lost, reserved, done))
        assert len(log) < 100
    assert not left
    assert scheduler.kv.reserved == 0
    return log


def request(number=0, prompt=4, output=6):
    return Request(number, 0.0, prompt, output)


def test_an_iteration_has_memory_for_what_the_one_in_flight_may_accept():
    """All drafts are wrong. 4 tokens of the prompt; then 3 more of the first iteration; then those
    of two: 4 + 3 + 3, of which each iteration takes two back, one later than without."""
    ahead = [(row[0], row[4]) for row in serve([request()], right=0)]
    assert ahead == [(0, 4), (1, 7), (1, 10), (1, 11), (1, 12), (1, 13)]
    known = [(row[0], row[4]) for row in serve([request()], right=0, ahead=False)]
    assert known == [(0, 4), (1, 7), (1, 8), (1, 9), (1, 10), (1, 11)]


def test_who_ends_by_accepted_drafts_is_computed_once_more():
    """One token of the prompt's iteration, three of the first, and two that lacked of the second:
    before those came, the third was planned."""
    log = serve([request()], right=2)
    assert [row[:2] for row in log] == [(0, 0), (1, 1), (1, 1), (0, 1)]
    assert [row[5] for row in log] == [[], [], [0], []]


def test_who_lacks_one_token_is_not_computed_again():
    """1 + 3 + 1: with the last one in flight it is sure to end."""
    log = serve([request(output=5)], right=2)
    assert [row[:2] for row in log] == [(0, 0), (1, 1), (1, 1)]
    assert log[-1][5] == [0]


def test_the_wasted_tokens_and_the_slot_are_taken_from_those_who_wait():
    """A slot each; the second request enters after the iteration that computes the first for
    nothing, and its prompt is cut by the three tokens which that takes."""
    first, second = request(0), request(1, prompt=8)
    log = serve([first, second], right=2, slots=1)
    assert [row[:3] for row in log] == [
        (0, 0, 4),
        (1, 1, 0),
        (1, 1, 0),
        (0, 1, 0),
        (0, 0, 8),
        (1, 1, 0),
        (1, 1, 0),
        (0, 1, 0),
    ]
    late = serve([request(0), request(1, prompt=30, output=1)], right=2, budget=10)
    chunks = [row[2] for row in late]
    # 4 and 6 at first; 7 beside three drafted tokens each, also when they are for nothing
    assert chunks == [10, 7, 7, 7, 3]


def test_the_blocks_of_two_iterations_may_preempt_where_those_of_one_do_not():
    requests = [request(0, 4, 8), request(1, 4, 8)]
    assert not any(row[3] for row in serve(requests, right=0, ahead=False, blocks=26))
    requests = [request(0, 4, 8), request(1, 4, 8)]
    assert [1] in [row[3] for row in serve(requests, right=0, blocks=26)]


def test_a_prompt_under_way_gives_way_to_a_row_for_nothing_and_goes_on_anew():
    """The first request, which ended by its drafts, needs 13 blocks to be computed once more; the
    second has 11 of 22 and loses them, and is not let in again by the same plan."""
    log = serve([request(0), request(1, prompt=14, output=1)], right=2, budget=7, blocks=22)
    assert [row[:4] for row in log] == [
        (0, 0, 7, []),
        (1, 1, 4, []),
        (1, 1, 4, []),
        (0, 1, 0, [1]),
        (0, 0, 7, []),
        (0, 0, 7, []),
    ]
    # the first one's are free again as soon as the plan is made
    assert [row[4] for row in log] == [7, 14, 21, 0, 7, 14]


@pytest.mark.parametrize(("ahead", "seen"), [(False, [4, 5, 6, 7]), (True, [4, 4, 5, 6])])
def test_a_prefix_cache_learns_of_tokens_one_iteration_later(ahead, seen):
    """What others can find of a sequence whose drafts are all wrong, once each iteration is
    planned."""
    courses = Given(Speculation("ngram", DRAFTS, (0.5,) * DRAFTS), 0, ahead=ahead)
    courses.right = 0
    limits = Limits(
        max_num_seqs=4,
        max_num_batched_tokens=64,
        max_model_len=60,
        enable_prefix_caching=True,
    )
    policy = AsyncDraftedPrefill if ahead else ChunkedPrefill
    kv = DraftedCachingAllocator(64, 1, 60, courses)
    scheduler = policy(limits, kv)
    scheduler.decoding = Sampled(courses)
    one = request()
    scheduler.submit(one)
    found = []
    for now in range(4):
        plan = scheduler.schedule(float(now))
        follower = Request(1, 0.0, 30, 1, prefix=((~one.id, 30),))
        found.append(kv.cached(follower))
        scheduler.complete(plan, 1, float(now + 1))
    assert found == seen
