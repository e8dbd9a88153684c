"""Reconstructs when preempted requests were out of the batch, in seconds.

A run records how often each request was preempted, and which plans preempted a request, but not
which request was out when. It can often be inferred: a request that decodes gets a token from every
iteration of its replica, and one more from the prefill that makes up for a preemption. So an
absence from the start of a plan that preempted until the end of one that prefilled must leave
exactly its number of tokens, and last as long as is recorded, where that is. If exactly one pair of
plans does, the absence is known; it is not if a request of the batch was passed over meanwhile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sim.trails.iterations import Iterations

TOLERANCE = 1e-9
"""How far (s, and relatively) a recorded length of an absence may be from the one that is found."""


class Absence(NamedTuple):
    """Out of the batch from ``start``; ``resumed`` is the start of the plan whose prefill, at
    ``end``, made up for it. Longer prefills had begun before ``resumed``."""

    start: float
    resumed: float
    end: float


def absence(
    iterations: Iterations,
    first_token: float,
    finish: float,
    tokens: int,
    lasted: float = math.nan,
) -> Absence | None:
    """The one absence of a request preempted once, after ``first_token``; None if it is not known.

    ``tokens`` are those it received, ``lasted`` how long it was out if that is recorded, else NaN.
    """
    found: list[Absence] = []
    first, last = iterations.between(first_token, finish)
    if iterations.passes[first:last].any():
        return None
    start, end, before = iterations.start, iterations.end, iterations.before
    for out in (first + np.flatnonzero(iterations.preempts[first:last])).tolist():
        had = before[out] - before[first]
        rest = tokens - 2 - had  # except the first one, and the one that the prefill brings
        if rest < 0:
            break
        # plans after which that many iterations are left
        low = int(np.searchsorted(before, before[last] - rest, "left")) - 1
        high = int(np.searchsorted(before, before[last] - rest, "right")) - 1
        for back in range(max(low, out), min(high, last)):
            if before[back + 1] != before[last] - rest or not iterations.prefills[back]:
                continue
            length = end[back] - start[out]
            if math.isnan(lasted) or math.isclose(
                length, lasted, rel_tol=TOLERANCE, abs_tol=TOLERANCE
            ):
                found.append(Absence(float(start[out]), float(start[back]), float(end[back])))
        if len(found) > 1:
            return None
    return found[0] if found else None
