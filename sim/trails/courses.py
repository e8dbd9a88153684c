"""Looks up what the recorder noted of each request: its chunks, and when it was preempted.

Unlike what ``absences`` infers from the other tables, this is exact. Times in seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.trails.iterations import Columns

CHUNKS = ("plan", "request_id", "tokens", "context")
"""The columns of chunks: ``plan`` is a row of the timeseries, ``context`` the tokens of the request
that were computed before."""

ABSENCES = ("request_id", "time_s", "out")
"""The columns of absences: ``out`` where the request was preempted, else it caught up again."""


class CourseChunk(NamedTuple):
    """One chunk of a request, in the plan from ``start`` to ``end``.

    ``had`` is how many tokens of the answer there were before if the chunk brought one, else None.
    """

    start: float
    end: float
    tokens: int
    had: int | None


class Course(NamedTuple):
    """The chunks of one request in order of time, and when it was preempted."""

    chunks: tuple[CourseChunk, ...]
    outs: tuple[float, ...]

    @property
    def resumptions(self) -> list[tuple[float, int]]:
        """When a chunk brought a token after the first one, and how many there were before."""
        return [(chunk.end, chunk.had) for chunk in self.chunks if chunk.had]


class Courses:
    """The courses of all requests of a run, from the columns ``CHUNKS`` and ``ABSENCES``; ``plans``
    are those of the whole timeseries."""

    def __init__(self, chunks: Columns, absences: Columns, plans: Columns) -> None:
        order = np.argsort(chunks["request_id"], kind="stable")
        rows = chunks["plan"][order]
        self._owners = chunks["request_id"][order]
        self._start, self._end = plans["start_s"][rows], plans["end_s"][rows]
        self._tokens, self._context = chunks["tokens"][order], chunks["context"][order]
        order = np.argsort(absences["request_id"], kind="stable")
        self._away = absences["request_id"][order]
        self._time, self._out = absences["time_s"][order], absences["out"][order].astype(bool)

    def of(self, request: int, prompt_tokens: int, first_token: float) -> Course:
        """The course of the request with that id; ``first_token`` is NaN if it got none."""
        first, last = np.searchsorted(self._away, (request, request + 1)).tolist()
        times, out = self._time[first:last], self._out[first:last]
        first, last = np.searchsorted(self._owners, (request, request + 1)).tolist()
        complete = max(
            (end for end in self._end[first:last].tolist() if end <= first_token), default=None
        )  # when the prompt was: its token may be handed out later
        brought = {complete, *times[~out].tolist()}
        columns = (self._start, self._end, self._tokens, self._context)
        chunks = []
        for start, end, tokens, context in zip(
            *(column[first:last].tolist() for column in columns), strict=True
        ):
            had = None
            if end in brought:  # the first chunk that brings a token may be padded
                had = 0 if end == complete else context + tokens - prompt_tokens
            chunks.append(CourseChunk(start, end, tokens, had))
        return Course(tuple(chunks), tuple(times[out].tolist()))
