"""Estimates as SGLang does what memory and an iteration of prompts hold when it admits a request.

``NewTokenRatio`` is the share of the answers asked for that requests are expected to generate,
``Budget`` what an iteration may still take, and ``KnownLengths`` whether memory lasts until the
answers end, where their lengths are known.

After ``managers/schedule_policy.py`` of SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from sim.schedulers.base import Limits

CLIP = 4096
"""Most tokens of an answer that are expected (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""

FIRST_RATIO, LEAST_RATIO, RATIO_STEPS = 0.7, 0.14, 600
"""``SGLANG_INIT_NEW_TOKEN_RATIO``, its least as a share of that, and decode iterations between."""

States = list[tuple[int, int]]
"""Requests by (tokens to come, tokens held)."""


class NewTokenRatio:
    """The share of what was asked for that requests are expected to generate.

    It falls by the same with every decode iteration; added up one by one, as SGLang does, and kept,
    so that any number of iterations is one look-up.
    """

    __slots__ = ("_at", "_first", "_least", "_step", "_values")

    def __init__(self, conservativeness: float) -> None:
        first = min(FIRST_RATIO * conservativeness, 1.0)
        self._least = min(first * LEAST_RATIO, 1.0)
        self._step = (first - self._least) / RATIO_STEPS
        self._at = 0
        self._values = self._first = self._from(first)

    def _from(self, value: float) -> list[float]:
        values, step, least = [value], self._step, self._least
        while True:
            after = value - step
            if after < least:  # in place of max(), which takes twice as long
                after = least
            if after == value:
                return values
            values.append(value := after)

    @property
    def current(self) -> float:
        """The share that holds now."""
        return self._values[min(self._at, len(self._values) - 1)]

    def decay(self, iterations: int) -> None:
        """Account for decode iterations that have run."""
        self._at += iterations

    def reset(self) -> None:
        """The engine is idle: as at the start."""
        self._values, self._at = self._first, 0

    def set(self, value: float) -> None:
        """Sets the ratio that a retraction found."""
        self._values, self._at = self._from(value), 0


class Budget:
    """Budget left in an iteration of prompts: SGLang's ``PrefillAdder`` and ``PrefillBudget``.

    ``total`` is the memory left once all answers are as long as expected, ``current`` the memory
    left now, ``prompt`` and ``chunk`` tokens of the iteration; ``chunk`` is None where prompts are
    not cut. ``decodes`` that run along take their share first.
    """

    __slots__ = ("chunk", "current", "page", "prompt", "total")

    def __init__(
        self, page: int, free: int, promised: float, limits: Limits, chunk: int | None, decodes: int
    ) -> None:
        self.page = page
        self.total = free - decodes - promised
        self.current = free - decodes
        self.prompt = limits.max_prefill_tokens - decodes
        self.chunk = None if chunk is None else chunk - decodes

    def paged(self, tokens: int) -> int:
        """The pages of ``tokens``, in tokens."""
        return -(-tokens // self.page) * self.page

    def take(self, tokens: int, answer: int) -> None:
        """A prompt of ``tokens`` is in the iteration, and ``answer`` will follow it."""
        paged = self.paged(tokens)
        self.total -= paged + self.page + answer
        self.current -= paged + self.page
        self.prompt -= paged
        if self.chunk is not None:
            self.chunk -= paged

    def pin(self, tokens: int) -> None:
        """Free tokens of the prefix cache are found, and can no longer be evicted."""
        self.total -= tokens
        self.current -= tokens

    @property
    def memory(self) -> bool:
        """Whether memory is left."""
        return self.total > 0 and self.current > 0

    @property
    def tokens(self) -> bool:
        """Whether the iteration has tokens left."""
        return self.prompt > 0 and (self.chunk is None or self.chunk > 0)


class KnownLengths:
    """Whether memory lasts until the answers end, all of them of known length: the earlier ones
    free what they hold for the later ones (``PrefillAdder.add_one_req_ignore_eos``).

    ``states`` are (tokens to come, tokens held) of the first ``running`` requests of the batch,
    ``to_come`` those in sum. None is walked while memory is ample.
    """

    __slots__ = ("_entered", "_running", "_sorted", "_states", "_to_come")

    def __init__(self, states: Callable[[int], States], running: int, to_come: int) -> None:
        self._states = states
        self._running = running
        self._to_come = to_come
        self._entered: States = []  # that asked to enter, first to last
        self._sorted: States | None = None

    def last(self, to_come: int, held: int, size: int, left: int) -> bool:
        """Whether ``left`` free tokens last if a request enters that ``to_come`` tokens follow and
        that holds ``held`` now, with ``size`` requests in all."""
        self._entered.append((to_come, held))
        self._to_come += to_come
        if left > 2 * (self._to_come + size):  # enough for any order of ends
            if self._sorted is not None:
                self._insert(to_come, held)
            return True
        if self._sorted is None:
            first, *others = self._entered
            self._sorted = sorted([first, *self._states(self._running)], key=itemgetter(0))
            for each in others:
                self._insert(*each)
        else:
            self._insert(to_come, held)
        freed, ends = 0, len(self._sorted)
        for tokens, kept in self._sorted:
            if left + freed - tokens * ends <= ends:
                return False
            freed += kept
            ends -= 1
        return True

    def _insert(self, to_come: int, held: int) -> None:
        """Before the first that ends no earlier; SGLang puts the longest before the last."""
        assert self._sorted is not None
        later = (i for i, (tokens, _) in enumerate(self._sorted) if to_come <= tokens)
        place = next(later, max(len(self._sorted) - 1, 0))
        self._sorted.insert(place, (to_come, held))
