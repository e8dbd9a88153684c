"""Defines what an iteration computes, apart from whose tokens they are, and what times it.

Seconds, lengths in tokens, contexts in KV tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from sim.growth.window_reads import WindowReads

Ints = tuple[int, ...]


class Part:
    """``tokens`` of one prompt, prefilled on top of ``context`` tokens already computed."""

    __slots__ = ("context", "tokens")

    def __init__(self, tokens: int, context: int) -> None:
        self.tokens = tokens
        self.context = context

    @property
    def pairs(self) -> float:
        """Causal query-key pairs of its attention.

        >>> Part(2, 10).pairs  # the first query sees 11 keys, the second 12
        23.0
        """
        return self.tokens * self.context + self.tokens * (self.tokens + 1) / 2


class Batch(NamedTuple):
    """The computation of one iteration.

    ``sequences`` are those that the decode kernels run over, ``context`` the KV tokens that they
    hold in sum before the iteration, ``parts`` the prompts or parts of prompts to prefill,
    ``admitted`` the requests that enter the batch with this iteration. ``seen`` is how much of
    ``context`` they see through each window of a model that has any (``sim.specs.window``); where
    it is not given, all sequences hold equally much.
    """

    sequences: int
    context: int
    parts: Sequence[Part] = ()
    admitted: int = 0
    seen: tuple[int, ...] = ()


class PassConditions(NamedTuple):
    """The conditions of an iteration besides its batch; the defaults are usual.

    The other data ranks have ``others`` tokens in the pass (None: each as many as this one), and a
    drafter goes over ``others_requests`` of theirs. ``drafts`` of each decoding sequence are
    checked, and made for the next iteration (None: as many as for a batch of its size). The pass
    has that many different ``adapters`` (None: as many as it can have).
    """

    others: int | None = None
    others_requests: int = 0
    drafts: tuple[int, int] | None = None
    adapters: int | None = None


class Passage(NamedTuple):
    """How one batch goes through the stages of a pipeline. Seconds.

    The host takes ``host`` before the first of the ``stages``, which take so long each; a message
    to the next one takes ``messages``, one of each border between two. The next batch does not
    begin within ``pace`` of this one, nor does this one end sooner. ``attention`` is spent in
    prefill attention of that many query-key ``pairs``.
    """

    host: float
    stages: Sequence[float]
    messages: Sequence[float] = ()
    pace: float = 0.0
    attention: float = 0.0
    pairs: float = 0.0


Legs = Sequence[tuple[float, float, float]]
"""Of each stage of a pipeline the seconds of the message before it, and the intercept and slope of
the seconds in the stage, a line in the context."""


class Timer(ABC):
    """Times iterations: the cost model, or a simple law in its place.

    ``line`` and ``iteration`` are what a replica asks of it; everything else asks for ``seconds``.
    """

    @abstractmethod
    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        """(limit, intercept, slope): a decode-only iteration over ``sequences`` that hold
        ``context`` tokens in sum takes ``intercept + slope * context``, for context < limit."""

    @abstractmethod
    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        """(duration, share of it spent in prefill attention, query-key pairs of that) of an
        iteration with prompts; the fields of a ``Batch`` one by one, so that no replica has to make
        one. ``seen`` is what each sequence attends to; only models with windows use it."""

    def launched(self, seconds: float) -> float:
        """Seconds for which the host launches an iteration with prompts of ``seconds`` before it
        plans the next one; zero here, so that later arrivals wait for the plan after it."""
        return 0.0

    def under(self, conditions: PassConditions) -> Timer:
        """The times of iterations under other ``conditions`` than the usual ones."""
        return self

    def graph(self, sequences: int) -> int:
        """The batch size to which an iteration without prompts is padded, where graphs were
        captured for some sizes only; else 0."""
        return 0

    def passage(self, batch: Batch) -> Passage:
        """``batch`` on its way through the stages of a pipeline; here, through a single one."""
        if not batch.parts:
            return Passage(0.0, (self.seconds(batch),))
        seconds, attention, pairs = self.iteration(*batch)
        return Passage(0.0, (seconds,), attention=attention, pairs=pairs)

    def legs(self, sequences: int, context: int) -> tuple[float, Legs]:
        """(limit, legs) of the way that ``passage`` describes, of decoding ``sequences`` that hold
        at least ``context``; they hold below the limit."""
        limit, intercept, slope = self.line(sequences, context)
        return limit, [(0.0, intercept, slope)]

    def cycle(self, batch: Batch) -> float:
        """Seconds from one batch to the next at each place in flight of a pipeline, where all are
        like ``batch``; else its duration."""
        return self.seconds(batch)

    def windowed_line(
        self, sequences: int, context: int, seen: WindowReads
    ) -> tuple[float, float, float]:
        """``line`` of sequences that see so much through the windows of their model; it holds no
        longer than ``seen.left`` iterations."""
        return self.line(sequences, context)

    def seconds(self, batch: Batch) -> float:
        """The duration of one iteration over ``batch``; none of an empty one."""
        sequences, context, parts, _, seen = batch
        if parts:
            return self.iteration(*batch)[0]
        if not sequences:
            return 0.0
        if seen:
            still = WindowReads(seen, (0,) * len(seen), 1)
            _, intercept, slope = self.windowed_line(sequences, context, still)
        else:
            _, intercept, slope = self.line(sequences, context)
        return intercept + slope * context
