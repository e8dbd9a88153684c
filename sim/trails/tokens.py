"""Computes when each token of a request came, in seconds; where tokens are drafted, when each
delivery came, of one token or several.

Every sequence that decodes gets a token at the end of every iteration of its replica, so the times
follow from the first token, the last one and the iterations between. If the count does not come out
even, the request was preempted or passed over: its recorded course says when. Where none was saved,
a preemption may be at an unknown time; and a run may have no record of iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from sim.growth.leaps import DECODED
from sim.trails.absences import absence
from sim.trails.courses import Courses
from sim.trails.iterations import Columns, Floats, Iterations

How = Literal["exact", "preempted", "even"]
"""How surely a request's token times are known: all of them; all except those around a preemption
(the right number, ends of iterations, one long gap at the first plan that may have been it); or
only the first and the last (the others at even distances)."""

REQUESTS = ("replica", "first_token_s", "finish_s", "output_tokens", "preemptions")
"""The columns of requests that token times are read from."""

LASTED = "decode_preempted_s"
"""How long a request was out of the batch after its first token, where that is recorded."""


def token_times(
    requests: Columns, plans: Columns, courses: Courses | None = None
) -> Iterator[tuple[Floats, How]]:
    """The token times of each request in turn, which all were completed; ``courses`` where the run
    saved them."""
    known: dict[int, Iterations] = {}
    columns = [requests[name].tolist() for name in REQUESTS]
    lasted = requests[LASTED].tolist() if LASTED in requests else [math.nan] * len(columns[0])
    for row, (replica, first, finish, tokens, preemptions, out) in enumerate(
        zip(*columns, lasted, strict=True)
    ):
        if replica not in known:
            known[replica] = Iterations(plans, replica)
        if DECODED in plans:
            yield _deliveries(requests, row, known[replica], courses)
            continue
        found = _times(known[replica], first, finish, tokens, preemptions, out)
        if found[1] != "exact" or preemptions > 0:
            noted = _noted(requests, row, known[replica], courses)
            found = found if noted is None else (noted, "exact")
        yield found


def _deliveries(
    requests: Columns, row: int, iterations: Iterations, courses: Courses | None
) -> tuple[Floats, How]:
    """When a request got tokens where they are drafted: at the end of every iteration of its
    replica while it decoded, and of each prefill."""
    number, prompt, first, finish, tokens, preemptions = (
        requests[name][row].item() for name in ("request_id", "prompt_tokens", *REQUESTS[1:])
    )
    at, found = first, [np.array([first])]
    if preemptions and courses is None:
        return np.linspace(first, finish, tokens), "even"
    if preemptions and courses is not None:
        course = courses.of(number, prompt, first)
        for end, _ in course.resumptions:
            out = max(time for time in course.outs if time < end)
            found += [iterations.ends(at, out), np.array([end])]
            at = end
    found.append(iterations.ends(at, finish))
    return np.concatenate(found), "exact"


def _noted(
    requests: Columns, row: int, iterations: Iterations, courses: Courses | None
) -> Floats | None:
    """The token times by the recorded course of a request; None if there is none, or if it does not
    agree with the iterations: engines may bring several tokens at once."""
    if courses is None:
        return None
    number, prompt, first, finish, tokens = (
        requests[name][row].item()
        for name in ("request_id", "prompt_tokens", "first_token_s", "finish_s", "output_tokens")
    )
    at, had = first, 1
    found = [np.array([first])]
    for end, before in courses.of(number, prompt, first).resumptions:
        decoded = iterations.ends(at, end)[: max(0, before - had)]
        if len(decoded) != before - had:
            return None
        found += [decoded, np.array([end])]
        at, had = end, before + 1
    decoded = iterations.ends(at, finish)
    found.append(decoded)
    times = np.concatenate(found)
    if len(times) != tokens or times[-1] != finish or (np.diff(times) < 0).any():
        return None
    return times


def _times(
    iterations: Iterations,
    first: float,
    finish: float,
    tokens: int,
    preemptions: float,
    lasted: float,
) -> tuple[Floats, How]:
    if tokens < 2:
        return np.array([first]), "exact"
    ends = iterations.ends(first, finish)
    lost = len(ends) - (tokens - 1)
    if not len(ends) or ends[-1] != finish:
        return np.linspace(first, finish, tokens), "even"
    plain = np.concatenate([[first], ends])
    begun, over = iterations.between(first, finish)
    never_out = lasted == 0 or not (preemptions > 0 and iterations.preempts[begun:over].any())
    if lost == 0 and never_out:
        return plain, "exact"
    if preemptions == 1 and (lost or lasted > 0):  # else it was perhaps out before its first token
        out = absence(iterations, first, finish, tokens, lasted)
        if out is not None:
            had, rest = iterations.ends(first, out.start), iterations.ends(out.end, finish)
            return np.concatenate([[first], had, [out.end], rest]), "exact"
    if preemptions > 0 and lost >= 0:
        return np.delete(plain, _lost(iterations, first, ends, lost)), "preempted"
    return np.linspace(first, finish, tokens), "even"


def _lost(iterations: Iterations, first: float, ends: Floats, lost: int) -> slice:
    """``lost`` of the token times after the first, in a row from the first plan on that may have
    preempted the request."""
    begun = iterations.between(first, math.inf)[0]
    candidates = np.flatnonzero(iterations.preempts[begun:])
    start = iterations.start[begun + candidates[0]] if len(candidates) else first
    place = 1 + min(int(np.searchsorted(ends, start, "right")), len(ends) - 1 - lost)
    return slice(place, place + lost)
