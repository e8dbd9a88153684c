"""Draws conversations: how many turns each has, what is new in each, and how long lies between.

A session is drawn as a whole, in the order in which sessions begin, each property from a random
stream of its own. So what a session asks for depends neither on the scheduler nor on the order in
which answers come; only the times do. Times in seconds, lengths in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.request import PLAIN, Prefix, TrafficClass
from sim.rng import stream
from sim.workload.arrivals import ArrivalLaw, Burst, check_latest
from sim.workload.classes import Mix
from sim.workload.longer import Longer
from sim.workload.shared import Groups
from sim.workload.traffic import LengthChunk

Ending = Literal["whole", "outgrown"]
"""Why a session has no further turn: it has had all, or the next one would be longer than the model
takes."""

CHUNK = 256
"""Sessions that are drawn at once."""


class CountLaw(Protocol):
    """Anything that can say how many there are, one value from its generator for each."""

    @property
    def mean(self) -> float:
        """How many there are on average."""

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """The next ``size`` numbers, each at least 1."""


@dataclass(frozen=True, slots=True)
class Between:
    """Every whole number from ``low`` to ``high``, both included, is equally likely."""

    low: int
    high: int

    @property
    def mean(self) -> float:
        """The middle."""
        return (self.low + self.high) / 2

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Independent numbers."""
        return self.low + np.floor(rng.random(size) * (self.high - self.low + 1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class GeometricLaw:
    """At least one, ``mean`` on average; however many there were, one more is equally likely."""

    mean: float

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Independent numbers, by inversion: P(more than k) = (1 - 1/mean)^k."""
        uniform = rng.random(size)
        if self.mean == 1:
            return np.ones(size, dtype=np.int64)
        return 1 + np.floor(np.log1p(-uniform) / math.log1p(-1 / self.mean)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Delay:
    """A mean time (s), times 1, an exponential variable, or a lognormal one of that ``cv``."""

    mean: float
    kind: Literal["fixed", "exponential", "lognormal"] = "fixed"
    cv: float = 0.0

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """The next ``size`` times."""
        if self.kind == "fixed":
            return np.full(size, self.mean)
        if self.kind == "exponential":
            return self.mean * rng.standard_exponential(size)
        variance = math.log1p(self.cv**2)
        deviates = rng.standard_normal(size)
        return self.mean * np.exp(math.sqrt(variance) * deviates - variance / 2)


class SessionTurn(NamedTuple):
    """``requests`` (tokens of the prompt and of the answer) that are sent at once, ``delay`` after
    the last answer to the turn before. Each prompt begins with the first ``history`` tokens of
    what the turn before had and said."""

    delay: float
    history: int
    requests: list[tuple[int, int]]


class Conversation:
    """One conversation: the ``number`` of it, when it starts (NaN: when a client is free), what is
    before its first text (``prefix``), and all of its turns, of which there is at least one."""

    __slots__ = ("ending", "number", "prefix", "start", "traffic_class", "turns")

    def __init__(
        self,
        number: int,
        start: float,
        turns: list[SessionTurn],
        ending: Ending,
        prefix: Prefix = (),
        traffic_class: TrafficClass = PLAIN,
    ) -> None:
        self.number, self.start, self.turns, self.ending = number, start, turns, ending
        self.prefix, self.traffic_class = prefix, traffic_class


@dataclass(frozen=True, slots=True)
class SessionLaw:
    """The make-up of sessions.

    ``think`` and ``tool`` are the delays of turns that follow a person or a tool, ``tool_share``
    the share of the latter. ``longest`` are the tokens that a prompt and its answer may have
    together; ``system`` what all prompts of a session begin with.
    """

    turns: CountLaw
    think: Delay
    tool: Delay
    tool_share: float
    branches: CountLaw
    keep_answer: bool
    longest: int
    system: Groups | None
    by: Longer

    @property
    def requests(self) -> float:
        """Requests of a session on average, if none is too long."""
        return self.turns.mean * self.branches.mean


@dataclass
class _Drawn:
    """Values for some sessions, taken one after the other."""

    counts: list[int]
    delays: Iterator[float]
    branches: Iterator[int]
    classes: Iterator[TrafficClass]
    prefixes: Iterator[Prefix]
    starts: Iterator[float]


@dataclass
class SessionTraffic:
    """Sessions that start at given times, or that ``clients`` have one after the other, each
    ``pause`` seconds after the end of the one before, until ``total`` requests are sent.

    They are those of ``law``; ``arrivals`` None where clients start them.
    """

    total: int
    law: SessionLaw
    texts: Iterator[LengthChunk]
    seed: int
    arrivals: ArrivalLaw | None = None
    clients: int = 0
    pause: float = 0.0
    mix: Mix | None = None
    notes: Sequence[str] = ()
    _read: bool = field(default=False, init=False)

    @property
    def classes(self) -> tuple[TrafficClass, ...]:
        """The classes that sessions have."""
        return () if self.mix is None else self.mix.classes

    def sessions(self) -> Iterator[Conversation]:
        """The sessions in order of their start, without end; of those that all start at once as
        many as have ``total`` requests. RuntimeError when asked for a second time."""
        if self._read:
            raise RuntimeError("this traffic was already read; build it again for another run")
        self._read = True
        number, planned = 0, 0
        lengths = chain.from_iterable(
            zip(each.prompt_tokens, each.output_tokens, strict=True) for each in self.lengths()
        )
        for drawn in self._drawn():
            for count in drawn.counts:
                if planned >= self.total and isinstance(self.arrivals, Burst):
                    return
                turns, ending = self._turns(count, drawn, lengths)
                start, prefix = next(drawn.starts), next(drawn.prefixes)
                yield Conversation(number, start, turns, ending, prefix, next(drawn.classes))
                number += 1
                planned += sum(len(turn.requests) for turn in turns)

    def lengths(self) -> Iterator[LengthChunk]:
        """The new texts and their answers in order, without end."""
        return self.texts

    def first(self) -> Iterator[Conversation]:
        """The first sessions that have ``total`` requests, each whole."""
        planned = 0
        for session in self.sessions():
            if planned >= self.total:
                return
            yield session
            planned += sum(len(turn.requests) for turn in session.turns)

    def _drawn(self) -> Iterator[_Drawn]:
        """Everything but lengths, ``CHUNK`` sessions at a time."""
        law, seed = self.law, self.seed
        of_turns, of_branches = stream(seed, "sessions/turns"), stream(seed, "sessions/branches")
        of_kinds = stream(seed, "sessions/kinds")
        of_people, of_tools = stream(seed, "sessions/think"), stream(seed, "sessions/tools")
        of_classes, of_groups = stream(seed, "classes"), stream(seed, "shared-prefix")
        starts: Iterator[Sequence[float]] = repeat([math.nan] * CHUNK)
        if self.arrivals is not None:
            times = self.arrivals.times(stream(seed, "arrivals"), repeat(CHUNK))
            starts = (each.tolist() for each in times)
        for begin in starts:
            if self.arrivals is not None:
                check_latest(begin[0])
            counts = law.turns.draw(of_turns, CHUNK)
            size = int(counts.sum())
            by_tool = of_kinds.random(size) < law.tool_share
            thought, worked = law.think.draw(of_people, size), law.tool.draw(of_tools, size)
            yield _Drawn(
                counts.tolist(),
                iter(np.where(by_tool, worked, thought).tolist()),
                iter(law.branches.draw(of_branches, size).tolist()),
                repeat(PLAIN) if self.mix is None else iter(self.mix.draw(of_classes, CHUNK)),
                repeat(()) if law.system is None else iter(law.system.draw(of_groups, CHUNK)),
                iter(begin),
            )

    def _turns(
        self, count: int, drawn: _Drawn, lengths: Iterator[tuple[int, int]]
    ) -> tuple[list[SessionTurn], Ending]:
        """The turns of a session of ``count``, and why they are no more. What an outgrown session
        leaves out is drawn all the same, so that the sessions after it do not depend on that."""
        law = self.law
        turns: list[SessionTurn] = []
        ending: Ending = "whole"
        by = law.by.lengths if law.by.changes else None
        history = 0 if law.system is None else law.system.tokens
        said = 0  # tokens that the others than the first of the turn before have answered
        for number in range(count):
            delay, texts = next(drawn.delays), list(islice(lengths, next(drawn.branches)))
            if ending == "outgrown":
                continue
            if by is not None:
                texts = [by(*text) for text in texts]
            requests = [(history + said + new, output) for new, output in texts]
            if turns and max(map(sum, requests)) > law.longest:
                ending = "outgrown"
                continue
            turns.append(SessionTurn(delay if number else 0.0, history, requests))
            history = requests[0][0]
            said = 0
            if law.keep_answer:
                history += requests[0][1]
                said = sum(output for _, output in requests[1:])
        return turns, ending
