"""Assigns each request a slot of its replica's batch, and says what it did there and when.

A slot is a place in the batch of one replica: as many are taken at once as requests run. The
engines have no numbered slots; here each request takes the lowest one that is free, which is how
batching is drawn by hand. Requests that wait stand in lanes, numbered in the same way. Times in
seconds since the start of the run.

Where the run saved chunks and absences, they say what each request did (``courses``). Without them
only what the other tables say is drawn: an iteration that prefills anything between a request's
scheduling and its first token has a chunk of its prompt; when a preempted request was out comes
from ``absences``, where it can be inferred.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.trails.absences import Absence, absence
from sim.trails.courses import Course, CourseChunk, Courses
from sim.trails.iterations import Columns, Iterations
from sim.trails.tokens import LASTED

Phase = Literal["queue", "prefill", "decode", "stalled", "preempted", "unknown", "padding", "held"]

WAITING: frozenset[Phase] = frozenset({"queue", "preempted"})
"""Phases in which a request has no slot."""

REQUESTS = (
    *("request_id", "replica", "arrival_s", "scheduled_s", "first_token_s", "finish_s"),
    *("generated_tokens", "prompt_tokens", "output_tokens", "preemptions"),
)
"""The columns of requests that slots are read from."""


class SlotPart(NamedTuple):
    """One request in one phase.

    ``queue``      it has arrived and was never in a batch
    ``prefill``    one iteration with a chunk of its prompt, of ``tokens`` (0: not known)
    ``decode``     it gets a token from every iteration
    ``stalled``    it has a slot, but the iteration does nothing for it
    ``preempted``  out of the batch, until the iteration that makes up for it
    ``unknown``    it is in the system, but what it did was not recorded apart
    ``padding``    it is done, but its slot is computed until the whole batch is
    ``held``       it is done, but its slot stays reserved until the whole batch is
    """

    phase: Phase
    start: float
    end: float
    tokens: int = 0


class Stay(NamedTuple):
    """A request in one place: a slot of the batch, or a lane of those that wait.

    ``row`` is its place in the table of requests, ``lane`` counts from 0.
    """

    row: int
    in_slot: bool
    lane: int
    start: float
    end: float
    parts: tuple[SlotPart, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Every stay that touches a window, by start; ``slots`` and ``lanes`` are how many there are;
    ``vague`` counts requests of which it is not known when they were preempted."""

    stays: tuple[Stay, ...]
    slots: int
    lanes: int
    vague: int


def overlapping(requests: Columns, replica: int, start: float, end: float) -> NDArray[np.intp]:
    """The requests of ``replica`` that were in the system at any time of ``start..end``."""
    left = np.nan_to_num(requests["finish_s"].astype(float), nan=math.inf)
    own = (requests["replica"] == replica) & (requests["arrival_s"] <= end) & (left >= start)
    return np.flatnonzero(own)


def batch_ends(requests: Columns, replica: int) -> dict[int, float]:
    """When the batch of each request of ``replica`` ended, where batches are served as a whole:
    row -> seconds. A batch is over when the last of its requests is done, and none begins before.
    """
    own = (requests["replica"] == replica) & ~np.isnan(requests["scheduled_s"].astype(float))
    rows = np.flatnonzero(own)
    rows = rows[np.argsort(requests["scheduled_s"][rows].astype(float), kind="stable")]
    ends: dict[int, float] = {}
    batch: list[int] = []
    over = -math.inf
    for row in rows.tolist():
        if float(requests["scheduled_s"][row]) >= over:
            ends |= dict.fromkeys(batch, over)
            batch, over = [], -math.inf
        batch.append(row)
        finish = float(requests["finish_s"][row])
        over = max(over, math.inf if math.isnan(finish) else finish)
    return ends | dict.fromkeys(batch, over)


def placement(
    requests: Columns,
    iterations: Iterations,
    rows: Sequence[int],
    until: float,
    *,
    after: Mapping[int, tuple[Phase, float]] | None = None,
    courses: Courses | None = None,
    known: dict[int, tuple[list[Stay], bool]] | None = None,
) -> Placement:
    """The stays of the requests ``rows``, all of one replica; what has no end lasts ``until``.

    ``courses`` has their chunks and absences, where the run saved those; ``after`` says what
    happens to the slot of a request (row) when it is done, and until when. ``known`` keeps the
    stays of each request for the next call with the same other arguments.
    """
    known = {} if known is None else known
    stays: list[Stay] = []
    vague = 0
    for row in rows:
        if row not in known:
            parts, is_vague = _parts(requests, iterations, row, until, courses)
            if after is not None and row in after and parts and parts[-1].phase not in WAITING:
                phase, end = after[row]
                parts += _lasting(SlotPart(phase, parts[-1].end, min(end, until)))
            known[row] = _stays(row, parts), is_vague
        stays += known[row][0]
        vague += known[row][1]
    in_slot, slots = _placed([stay for stay in stays if stay.in_slot])
    waiting, lanes = _placed([stay for stay in stays if not stay.in_slot])
    return Placement(tuple(sorted((*in_slot, *waiting), key=_start)), slots, lanes, vague)


def _start(stay: Stay) -> float:
    return stay.start


def _stays(row: int, parts: list[SlotPart]) -> list[Stay]:
    """``parts``, in order of time, as stays that are not yet in any lane."""
    stays: list[Stay] = []
    pending: list[SlotPart] = []
    for part in parts:
        if pending and (part.phase in WAITING) != (pending[0].phase in WAITING):
            stays.append(_stay(row, pending))
            pending = []
        pending.append(part)
    if pending:
        stays.append(_stay(row, pending))
    return stays


def _stay(row: int, parts: list[SlotPart]) -> Stay:
    in_slot = parts[0].phase not in WAITING
    return Stay(row, in_slot, 0, parts[0].start, parts[-1].end, tuple(parts))


def _placed(stays: list[Stay]) -> tuple[list[Stay], int]:
    """Each stay in the lowest lane that is free when it begins; and how many lanes there are."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    placed, lanes = [], 0
    for stay in sorted(stays, key=lambda each: (each.start, each.row)):
        while taken and taken[0][0] <= stay.start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, lanes = lanes, lanes + 1
        heapq.heappush(taken, (stay.end, lane))
        placed.append(Stay(stay.row, stay.in_slot, lane, stay.start, stay.end, stay.parts))
    return placed, lanes


def _parts(
    requests: Columns, iterations: Iterations, row: int, until: float, courses: Courses | None
) -> tuple[list[SlotPart], bool]:
    """The parts of one request, in order of time; and whether some of it is not known."""
    arrival, scheduled = float(requests["arrival_s"][row]), float(requests["scheduled_s"][row])
    first, finish = float(requests["first_token_s"][row]), float(requests["finish_s"][row])
    end = until if math.isnan(finish) else finish
    preempted = bool(requests["preemptions"][row] > 0)
    if math.isnan(scheduled):
        if math.isnan(first):
            return _lasting(SlotPart("queue", arrival, end)), False
        return [
            *_lasting(SlotPart("unknown", arrival, first)),
            *_lasting(SlotPart("decode", first, end)),
        ], False
    parts = _lasting(SlotPart("queue", arrival, scheduled))
    if courses is not None:
        number, tokens = (int(requests[name][row]) for name in ("request_id", "prompt_tokens"))
        course = courses.of(number, tokens, first)
        received = int(requests["generated_tokens"][row])
        noted = _noted(course, iterations, (scheduled, end), received)
        served = noted is not None and noted[-1].phase in ("decode", "prefill")
        if noted is not None and (served or math.isnan(finish)):
            return parts + noted, False
    prompt = until if math.isnan(first) else first
    parts += _prefill(iterations, scheduled, prompt)
    if math.isnan(first):
        return parts, preempted
    if not preempted:
        return parts + _decode(iterations, first, end), False
    return _after_preemptions(requests, iterations, row, parts, (first, end))


def _after_preemptions(
    requests: Columns,
    iterations: Iterations,
    row: int,
    parts: list[SlotPart],
    span: tuple[float, float],
) -> tuple[list[SlotPart], bool]:
    """``parts`` and what followed the first token of a request that was preempted."""
    first, end = span
    tokens, received = (int(requests[n][row]) for n in ("output_tokens", "generated_tokens"))
    if received < tokens:
        return [*parts, *_lasting(SlotPart("unknown", first, end))], True
    lasted = float(requests[LASTED][row]) if LASTED in requests else math.nan
    if iterations.count(first, end) == tokens - 1 and not lasted > 0:
        return parts + _decode(iterations, first, end), True  # it was out before its first token
    out: Absence | None = None
    if requests["preemptions"][row] == 1:
        out = absence(iterations, first, end, tokens, lasted)
    if out is None:
        return [*parts, *_lasting(SlotPart("unknown", first, end))], True
    return [
        *parts,
        *_decode(iterations, first, out.start),
        *_lasting(SlotPart("preempted", out.start, out.resumed)),
        SlotPart("prefill", out.resumed, out.end),
        *_decode(iterations, out.end, end),
    ], False


def _noted(
    course: Course, iterations: Iterations, span: tuple[float, float], received: int
) -> list[SlotPart] | None:
    """A request's parts from its scheduling to its end (``span``) by its recorded course, with the
    tokens it ``received`` in all; None if it is not recorded or contradicts the iterations."""
    events: list[tuple[float, CourseChunk | None]] = [(out, None) for out in course.outs]
    events += [(chunk.start, chunk) for chunk in course.chunks]
    events.sort(key=lambda event: (event[0], event[1] is not None))
    brought = [chunk.had for chunk in course.chunks if chunk.had is not None]
    reached = iter([*brought[1:], received])
    at, end = span
    parts: list[SlotPart] = []
    phase: Phase = "stalled"
    had = 0
    for time, chunk in [*events, (end, None)]:
        decodes = phase == "decode"
        if decodes:
            parts += _decoded(iterations, at, time, next(reached) - had)
        else:
            parts += _lasting(SlotPart(phase, at, time))
        if chunk is None:
            phase, at = "preempted", time
            continue
        # a sequence that was passed over catches up by a chunk of one token
        part = SlotPart("prefill", chunk.start, chunk.end, chunk.tokens)
        parts.append(SlotPart("decode", chunk.start, chunk.end) if decodes else part)
        phase, at = "stalled", chunk.end
        if chunk.had is not None:
            phase, had = "decode", chunk.had + 1
    edges = [(span[0], span[0]), *((part.start, part.end) for part in parts), (end, end)]
    whole = bool(course.chunks) and all(a[1] == b[0] < b[1] for a, b in pairwise(edges[:-1]))
    return _merged(parts) if whole and edges[-2][1] == end else None


def _decoded(iterations: Iterations, start: float, end: float, tokens: int) -> list[SlotPart]:
    """Decoding from ``start`` until there are ``tokens`` more, then passed over until ``end``;
    nothing if there are not that many iterations."""
    there = iterations.count(start, end)
    if tokens == there:
        return _decode(iterations, start, end)
    if not 0 <= tokens < there:
        return []
    last = float(iterations.ends(start, end)[tokens - 1]) if tokens else start
    return [*_decode(iterations, start, last), SlotPart("stalled", last, end)]


def _merged(parts: list[SlotPart]) -> list[SlotPart]:
    """``parts`` with those in a row as one that decode, or that stall."""
    merged: list[SlotPart] = []
    for part in parts:
        if merged and part.phase in ("decode", "stalled") and merged[-1].phase == part.phase:
            merged[-1] = SlotPart(part.phase, merged[-1].start, part.end)
        else:
            merged.append(part)
    return merged


def _lasting(part: SlotPart) -> list[SlotPart]:
    return [part] if part.end > part.start else []


def _prefill(iterations: Iterations, start: float, end: float) -> list[SlotPart]:
    """The chunks between scheduling and first token, and the iterations between them."""
    parts: list[SlotPart] = []
    first, last = iterations.between(start, end)
    at = start
    starts, ends = iterations.times
    for plan in iterations.prefilling(first, last):
        begin, done = starts[plan], ends[plan]
        parts += _lasting(SlotPart("stalled", at, begin))
        parts.append(SlotPart("prefill", begin, done, int(iterations.chunk[plan])))
        at = done
    if not parts:
        return _lasting(SlotPart("unknown" if last == first else "prefill", start, end))
    return parts + _lasting(SlotPart("stalled", at, end))


def _decode(iterations: Iterations, start: float, end: float) -> list[SlotPart]:
    """Decoding from ``start`` to ``end``, except the plans in between that only prefill."""
    first, last = iterations.between(start, end)
    starts, ends = iterations.times
    parts: list[SlotPart] = []
    at = start
    for plan in iterations.idle(first, last):
        begin, done = starts[plan], ends[plan]
        parts += _lasting(SlotPart("decode", at, begin))
        if parts and parts[-1].phase == "stalled" and parts[-1].end == begin:
            parts[-1] = parts[-1]._replace(end=done)
        else:
            parts.append(SlotPart("stalled", begin, done))
        at = done
    return parts + _lasting(SlotPart("decode", at, end))
