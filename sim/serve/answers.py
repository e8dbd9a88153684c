"""Decides how many tokens an answer has, and what it says.

The requests of a session take the answers of the scenario's own traffic, in turn: the first has the
output tokens of its first request, and so on, up to ``max_tokens``. So traffic that is sent here
meets the lengths that `infersim run` draws. With ``ignore_eos`` an answer has ``max_tokens``
exactly; with a ``seed`` it is the same for every request that gives this seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from sim.rng import repetition_seed
from sim.scenario import Scenario
from sim.serve.tokens import Filler
from sim.workload import ClosedTraffic, SessionTraffic, build

DRAWN = 1_000_000
"""Requests of made-up traffic before it begins anew under another seed."""

SEEDED = 4096
"""Different lengths for different seeds of requests."""


class Answers:
    """The answers of a session of ``scenario``."""

    def __init__(self, scenario: Scenario) -> None:
        lengths = output_tokens(scenario)
        self._lengths = chain([next(lengths)], lengths)  # the first takes longest
        self._seeded: list[int] = []
        self._scenario = scenario
        self._number = 0

    def next(
        self,
        most: int,
        *,
        least: int = 0,
        exactly: bool = False,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> Filler:
        """An answer of up to ``most`` tokens, but not fewer than ``least``; ``exactly`` that many
        unless a ``stop`` text ends it."""
        start = self._number if seed is None else seed
        self._number += 1
        tokens = most
        if not exactly:
            drawn = next(self._lengths) if seed is None else self._of_seed(seed)
            tokens = min(most, max(drawn, least, 1))
        return Filler(tokens, start, stop, least)

    def _of_seed(self, seed: int) -> int:
        if not self._seeded:
            lengths = output_tokens(self._scenario)
            self._seeded = [next(lengths) for _ in range(SEEDED)]
        return self._seeded[seed % SEEDED]


def output_tokens(scenario: Scenario) -> Iterator[int]:
    """The output tokens of the scenario's requests, without end."""
    run, number = scenario.run, 0
    if scenario.workload.trace is None:
        run = run.model_copy(update={"requests": DRAWN})
    workload = scenario.workload.model_copy(update={"sessions": None})
    endless = scenario.model_copy(update={"run": run, "workload": workload})
    while True:
        traffic = build(endless, repetition_seed(scenario.seed, number))
        if isinstance(traffic, ClosedTraffic | SessionTraffic):
            for lengths in traffic.lengths():
                yield from lengths.output_tokens
        else:
            for chunk in traffic.chunks():
                yield from chunk.output_tokens
        number += 1
