"""Sequences that gain several tokens an iteration: a batch and a run, and nothing else changes.

As with speculative decoding, how many a request gains in each iteration is drawn from a stream of
its own when it joins; the ends of iterations are a sum from the same anchor, with leaps or without.
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random

import pytest

from sim.growth.steady import Steady, SteadyRun
from sim.memory import ContiguousAllocator
from sim.request import Request
from sim.schedulers import ChunkedPrefill, Limits, PrefillFirst, RequestLevel, Scheduler
from tests.harness import LineTimer, Played, play


class Sampled(Steady):
    """``course[request][i]`` is what the request has gained after i iterations."""

    __slots__ = ("course",)

    def __init__(self) -> None:
        super().__init__()
        self.course: dict[Request, list[int]] = {}

    def join(self, request: Request, now: float) -> None:
        chance, wanted = Random(request.id), request.output_tokens - request.generated
        course = self.course[request] = [0]
        while course[-1] < wanted:
            course.append(min(wanted, course[-1] + chance.randint(1, 4)))
        super().join(request, now)

    def lasts(self, request: Request) -> int:
        return len(self.course[request]) - 1

    def gained(self, request: Request) -> int:
        return self.course[request][self.iteration - request.joined]

    def context_after(self, iterations: int) -> int:
        place = self.iteration + iterations
        later = (course[place - r.joined] for r, course in self.course.items())
        return self.context + sum(later) - sum(self.gained(request) for request in self.course)

    def advance(self, iterations: int, end: float) -> None:
        context = self.context_after(iterations)
        super().advance(iterations, end)
        self.context = context

    def pop_finished(self) -> list[Request]:
        finished = super().pop_finished()
        for request in finished:
            del self.course[request]
        return finished

    def run(
        self, start: float, sequences: int, context: int, line: tuple[float, float, float]
    ) -> SteadyRun:
        coming = range(self.next_finish - self.iteration)
        return SampledRun(
            start,
            sequences,
            [context - self.context + self.context_after(i) for i in coming],
            line,
        )


class SampledRun(SteadyRun):
    """Until the first sequence ends; ``contexts`` are those before each iteration."""

    __slots__ = ("contexts", "ends")

    def __init__(
        self,
        start: float,
        sequences: int,
        contexts: list[int],
        line: tuple[float, float, float],
    ) -> None:
        super().__init__(start, sequences, contexts[0], line)
        self.contexts = contexts
        self.ends = [start]
        _, intercept, slope = line
        for context in contexts:
            self.ends.append(self.ends[-1] + (intercept + slope * context))

    def continues(self, start: float, sequences: int, context: int) -> bool:
        known = sequences == self.sequences and self.done < len(self.contexts)
        return known and context == self.contexts[self.done] and start == self.end

    def left(self) -> int:
        return len(self.contexts) - self.done

    def boundary(self, j: int) -> float:
        return self.ends[j]

    def first_boundary_from(self, time: float, low: int, high: int) -> int:
        return bisect_left(self.ends, time, low, high)

    def advance(self, iterations: int, end: float) -> tuple[float, float]:
        length = self.ends[self.done + 1] - self.ends[self.done]
        super().advance(iterations, end)
        return length, 0.0


def serve(policy: type[Scheduler], growth: type[Steady], *, leap: bool) -> Played:
    def make() -> Scheduler:
        limits = Limits(max_num_seqs=4, max_num_batched_tokens=64, batch_timeout=2.0)
        scheduler = policy(limits, ContiguousAllocator(1_000, slab=200))
        scheduler.decoding = growth()
        return scheduler

    arrivals = [(2.7 * i, 8 + 5 * i % 23, 1 + 29 * i % 67) for i in range(20)]
    return play(list(arrivals), make, LineTimer(0.3, 0.07, 0.001, 0.01), leap=leap)


@pytest.mark.parametrize("policy", [ChunkedPrefill, PrefillFirst, RequestLevel])
def test_another_law_of_growth_leaps_as_it_steps(policy: type[Scheduler]) -> None:
    leaping, stepping = (serve(policy, Sampled, leap=leap) for leap in (True, False))
    assert leaping.log == stepping.log
    assert leaping.tokens == stepping.tokens
    assert leaping.events < stepping.events
    rows = leaping.recorder.request_rows()
    assert (rows["generated"] == rows["output_tokens"]).all()
    assert leaping.log[-1][0] < serve(policy, Steady, leap=True).log[-1][0]


def test_steady_growth_is_sampled_growth_of_one_token() -> None:
    """Both laws serve the same, up to the rounding of a sum."""

    class Ones(Sampled):
        __slots__ = ()

        def join(self, request: Request, now: float) -> None:
            self.course[request] = list(range(request.output_tokens - request.generated + 1))
            Steady.join(self, request, now)

    ones, steady = (serve(ChunkedPrefill, law, leap=True) for law in (Ones, Steady))
    assert [entry[1:] for entry in ones.log] == [entry[1:] for entry in steady.log]
    assert [time for time, *_ in ones.log] == pytest.approx([t for t, *_ in steady.log], rel=1e-12)
    assert ones.events == steady.events
