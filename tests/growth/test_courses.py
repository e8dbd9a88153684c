"""What is accepted: hand-worked courses, the closed form of constant rates, streams by request."""

from __future__ import annotations

import numpy as np
import pytest

from sim.catalog.acceptance import tables
from sim.growth.courses import FIRST, Counts, DraftCourses, Upcoming
from sim.growth.sampled import Sampled
from sim.memory.drafted import DraftedAllocator
from sim.request import Request
from sim.specs.speculation import Speculation, constant_rates, rates_of_length

CLOSED_FORM = {  # (1 - a^(k+1)) / (1 - a) at k = 1, 2, 3, 4, 5, 7
    0.6: (1.6, 1.96, 2.176, 2.306, 2.383, 2.458),
    0.7: (1.7, 2.19, 2.533, 2.773, 2.941, 3.141),
    0.8: (1.8, 2.44, 2.952, 3.362, 3.689, 4.161),
    0.9: (1.9, 2.71, 3.439, 4.095, 4.686, 5.695),
}


def wanting(number: int, tokens: int) -> Request:
    """A request that has its first token and lacks ``tokens``."""
    request = Request(number, arrival=0.0, prompt_tokens=10, output_tokens=1 + tokens)
    request.computed, request.generated = 10, 1
    return request


@pytest.mark.parametrize("rate", CLOSED_FORM)
def test_tokens_an_iteration_are_those_of_the_closed_form(rate: float) -> None:
    for drafts, expected in zip((1, 2, 3, 4, 5, 7), CLOSED_FORM[rate], strict=True):
        speculation = Speculation("mtp", drafts, constant_rates(rate, drafts))
        assert speculation.length == pytest.approx(expected, abs=5e-4)
        courses = DraftCourses(speculation, seed=3)
        course = courses.begin(wanting(0, 200_000))
        drawn = course.gained[-2] / (course.last - 1)  # the last iteration may be cut
        assert drawn == pytest.approx(expected, rel=0.01)


def test_each_position_is_accepted_as_often_as_its_rate_says() -> None:
    rates = (0.85, 0.7, 0.5)
    course = DraftCourses(Speculation("eagle", 3, rates), seed=8).begin(wanting(1, 300_000))
    gains = np.diff(course.gained[:-1])
    reached = [float((gains > place + 1).mean()) for place in range(3)]
    assert reached == pytest.approx(rates, abs=0.004)


def test_a_course_ends_at_the_last_token_and_knows_what_was_too_much() -> None:
    always = DraftCourses(Speculation("ngram", 2, (1.0, 1.0)), seed=1)
    course = always.begin(wanting(0, 8))
    assert (course.gained.tolist(), course.last, course.cut) == ([0, 3, 6, 8], 3, 1)
    never = DraftCourses(Speculation("ngram", 2, (0.0, 0.0)), seed=1)
    assert never.begin(wanting(0, 3)).gained.tolist() == [0, 1, 2, 3]


def test_a_request_meets_the_same_draws_wherever_and_whenever_it_decodes() -> None:
    speculation = Speculation("mtp", 3, (0.8, 0.5, 0.3))
    here, there = DraftCourses(speculation, seed=5), DraftCourses(speculation, seed=5)
    there.begin(wanting(7, 90))  # another one first
    whole = here.begin(wanting(2, 400)).gained
    assert there.begin(wanting(2, 400)).gained.tolist() == whole.tolist()
    assert (
        DraftCourses(speculation, seed=6).begin(wanting(2, 400)).gained.tolist() != whole.tolist()
    )
    request = wanting(2, 400)
    again = DraftCourses(speculation, seed=5)
    again.begin(request)
    again.end(request, 50)  # preempted after 50 iterations; its prefill brings another token
    request.generated += int(whole[50]) + 1
    rest = again.begin(request).gained
    assert rest[:40].tolist() == (whole[50:90] - whole[50]).tolist()


def test_iterations_that_an_answer_takes_are_known_on_average() -> None:
    for rates in ((0.9, 0.8, 0.7, 0.6), (0.5,), (0.7, 0.1)):
        speculation = Speculation("mtp", len(rates), rates)
        courses = DraftCourses(speculation, seed=4)
        for tokens in (5, 40, 300):
            lasts = [courses.begin(wanting(number, tokens)).last for number in range(1500)]
            (expected,) = speculation.steps(np.array([float(tokens)]))
            assert np.mean(lasts) == pytest.approx(expected, rel=0.02)


def test_a_length_becomes_constant_chances() -> None:
    for length in (1.01, 1.3, 2.5, 3.999, 4.0):
        rates = rates_of_length(length, 3)
        assert 1 + sum(rates) == pytest.approx(length)
        given = [after / before for before, after in zip((1.0, *rates), rates, strict=False)]
        assert max(given) - min(given) < 1e-9


def test_published_lengths_are_those_of_the_rates() -> None:
    for name, table in tables().items():
        for drafts, length in enumerate(table.lengths, 1):
            rates = table.rates(drafts)
            assert 1 + sum(rates) == pytest.approx(length), name
            assert all(0 <= rate <= 1 for rate in rates)
            assert list(rates) == sorted(rates, reverse=True)


def test_sums_ahead_are_those_of_a_list() -> None:
    rng = np.random.default_rng(0)
    ahead, now = Upcoming(), 0
    running: list[tuple[int, Counts]] = []  # when they began, and what they reach
    for _ in range(600):
        for since, reached in [each for each in running if each[0] + len(each[1]) - 1 <= now]:
            ahead.take_off(now, reached[-1:])
            running = [each for each in running if each[1] is not reached]
            assert since + len(reached) - 1 == now
        if running and rng.random() < 0.2:
            since, reached = running.pop(0)
            ahead.take_off(now, reached[now - since :])
        reached = rng.integers(0, 5, int(rng.integers(2, 900))).cumsum()
        ahead.add(now, reached)
        running.append((now, reached))
        first = min(since + len(reached) - 1 for since, reached in running) - now
        levels = sum(reached[now - since :][: first + 1] for since, reached in running)
        assert ahead.gain(now, first) == levels[-1] - levels[0]
        limit = int(rng.integers(0, 900))
        fitting = int((levels[1:] - levels[0] <= limit).sum())
        assert ahead.within(now, first, limit) == fitting
        now += int(rng.integers(1, first + 1))
    assert now > 3 * FIRST


def test_blocks_hold_the_drafts_and_those_that_a_drafter_writes_ahead() -> None:
    """Prompt 10, blocks of 4, 2 drafts that are all right: 3 tokens of the pass and 2 ahead."""
    for method, opened in (("ngram", [3, 4, 4, 5]), ("mtp", [3, 4, 5, 6])):
        courses = DraftCourses(Speculation(method, 2, (1.0, 1.0)), seed=1)
        kv, batch = DraftedAllocator(20, 4, 100, courses), Sampled(courses)
        request = wanting(0, 9)
        assert kv.allocate(request, 10)
        batch.join(request, 0.0)
        kv.join(request)
        blocks = [kv.reserved // 4]
        for _ in range(3):
            assert kv.grow(1)
            batch.advance(1, 1.0)
            blocks.append(kv.reserved // 4)
            kv.check_integrity({request: (10 + batch.gained(request), True)})
        assert blocks == opened
        assert (batch.delivered, batch.accepted) == (3, 2)
        assert batch.pop_finished() == [request]
        kv.leave(request)
        kv.free(request)
        assert kv.reserved == 0


def test_iterations_long_after_the_last_course_need_nothing() -> None:
    """A batch may compute prompts alone for any time: nothing decodes, and nothing is gained."""
    ahead = Upcoming()
    course = np.array([1, 2, 3], dtype=np.int64)
    ahead.add(0, course)
    ahead.take_off(0, course)
    assert [ahead.gain(now, 1) for now in range(2 * FIRST + 2)] == [0] * (2 * FIRST + 2)
    ahead.add(2 * FIRST + 2, course)
    assert ahead.gain(2 * FIRST + 2, 2) == 2
