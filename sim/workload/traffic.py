"""Provides the traffic that the simulator receives: columns of requests, a chunk at a time.

Arrivals are in seconds since the start of the run, lengths in tokens. No object per request ever
exists here, and a million requests need the memory of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from sim.request import PLAIN, Prefix, TrafficClass

CHUNK = 4096
"""Rows in a full chunk; only the last one of a run may be shorter."""

MAX_TOKENS = 2**31 - 1
"""The largest token count that the results can hold."""


class TrafficChunk(NamedTuple):
    """Some consecutive requests as columns of equal length.

    Arrivals never decrease, neither inside a chunk nor from one to the next, and the first is not
    negative. Both token counts are at least 1. ``classes`` is None where the traffic has none,
    ``prefixes`` where no prompt begins like another, ``sessions`` where it is not known which
    requests belong to one conversation.
    """

    arrivals: list[float]
    prompt_tokens: list[int]
    output_tokens: list[int]
    classes: list[TrafficClass] | None = None
    prefixes: list[Prefix] | None = None
    sessions: list[int] | None = None

    def rows(self) -> Iterator[tuple[float, int, int, TrafficClass, Prefix, int]]:
        """The requests one by one: arrival, prompt and output tokens, class, prefix, session."""
        size = len(self.arrivals)
        return zip(
            self.arrivals,
            self.prompt_tokens,
            self.output_tokens,
            repeat(PLAIN, size) if self.classes is None else self.classes,
            repeat((), size) if self.prefixes is None else self.prefixes,
            repeat(-1, size) if self.sessions is None else self.sessions,
            strict=True,
        )


class LengthChunk(NamedTuple):
    """The lengths of some consecutive requests whose arrival is not known in advance."""

    prompt_tokens: list[int]
    output_tokens: list[int]
    classes: list[TrafficClass] | None = None
    prefixes: list[Prefix] | None = None

    def rows(self) -> Iterator[tuple[int, int, TrafficClass, Prefix]]:
        """The requests one by one: prompt and output tokens, class, prefix."""
        size = len(self.prompt_tokens)
        return zip(
            self.prompt_tokens,
            self.output_tokens,
            repeat(PLAIN, size) if self.classes is None else self.classes,
            repeat((), size) if self.prefixes is None else self.prefixes,
            strict=True,
        )


class OpenTraffic:
    """Requests that arrive by the clock, however long the answers take: a law, or a trace."""

    def __init__(
        self,
        total: int,
        chunks: Iterator[TrafficChunk],
        notes: Sequence[str] = (),
        classes: Sequence[TrafficClass] = (),
        patience: Mapping[int, float] | None = None,
    ) -> None:
        self.total = total
        """Number of requests in all chunks together."""
        self.patience = patience or {}
        """Seconds after which clients went away, by the place of their request, from 0."""
        self.notes = tuple(notes)
        """Notes on these requests for a reader of the results, in whole sentences."""
        self.classes = tuple(classes)
        """The classes that the chunks name, each at the place of its index."""
        self._chunks: Iterator[TrafficChunk] | None = chunks

    def chunks(self) -> Iterator[TrafficChunk]:
        """The requests in order of arrival; RuntimeError when asked for a second time."""
        if self._chunks is None:
            raise RuntimeError("this traffic was already read; build it again for another run")
        chunks, self._chunks = self._chunks, None
        return chunks


class ClosedTraffic:
    """Requests of ``concurrency`` users, each waiting for an answer before asking again.

    A user asks at 0, and then ``think_time`` seconds after each answer, until ``total`` requests
    have been issued by all users together. Lengths are taken in order of issue.
    """

    def __init__(
        self,
        total: int,
        concurrency: int,
        think_time: float,
        lengths: Iterator[LengthChunk],
        classes: Sequence[TrafficClass] = (),
    ) -> None:
        self.total = total
        self.concurrency = concurrency
        self.think_time = think_time
        self.classes = tuple(classes)
        self._lengths: Iterator[LengthChunk] | None = lengths

    def lengths(self) -> Iterator[LengthChunk]:
        """The lengths in order of issue; RuntimeError when asked for a second time."""
        if self._lengths is None:
            raise RuntimeError("this traffic was already read; build it again for another run")
        lengths, self._lengths = self._lengths, None
        return lengths


def chunk_sizes(total: int, chunk: int = CHUNK) -> Iterator[int]:
    """How many rows each chunk of ``total`` requests has.

    >>> list(chunk_sizes(10, 4))
    [4, 4, 2]
    """
    for start in range(0, total, chunk):
        yield min(chunk, total - start)
