"""Proposes changes that might correct a prediction that is off.

Each cause comes with the variant of the prediction in which it is corrected: memory, from what the
engine says of itself; terms of the iterations, from their residuals; without iterations, what the
requests' own times suggest. Seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrate.validation.iterations import Floats, ObservedIterations
from calibrate.validation.observed import ObservedRun
from calibrate.validation.prediction import Prediction, ValidationQuestion, Variant
from calibrate.validation.residuals import HOST, KERNELS, Term
from sim.pools import per_prompt_token_of
from sim.scenario.pools import only
from sim.specs.engine import Factors

FEW = 5
"""Requests from which a constant of all requests can be read."""

BLOCKS, FRONT_END, CONSTANT, PROPORTIONAL = (
    *("num_gpu_blocks", "front_end", "per_iteration", "kernels"),
)

BY_REQUESTS = {CONSTANT, PROPORTIONAL}
"""Causes that requests alone suggest; one of them is as good as the other."""


class Cause(NamedTuple):
    """One thing to change: ``value`` is the new count, the seconds to add, or the relative change
    of kernels, with an interval where there is one; ``rivals`` cannot be distinguished from it."""

    name: str
    value: float
    low: float | None
    high: float | None
    rivals: tuple[str, ...]
    variant: Variant


def merged(one: Variant, other: Variant) -> Variant:
    """Two changes as one."""
    blocks = other.num_gpu_blocks
    return Variant(
        num_gpu_blocks=one.num_gpu_blocks if blocks is None else blocks,
        per_iteration=one.per_iteration + other.per_iteration,
        per_sequence=one.per_sequence + other.per_sequence,
        per_new_request=one.per_new_request + other.per_new_request,
        front_end=one.front_end + other.front_end,
        factors=one.factors.times(other.factors),
    )


def blocks(run: ObservedRun, asked: ValidationQuestion) -> Cause | None:
    """The engine's own number of KV blocks, if it is another one."""
    found = run.figure("kv_cache", "num_gpu_blocks")
    if found is None or found < 1 or int(found) == asked.setup.only.capacity.num_gpu_blocks:
        return None
    return Cause(BLOCKS, found, None, None, (), Variant(num_gpu_blocks=int(found)))


def of_term(term: Term) -> Cause:
    """A term of the iterations."""
    seconds = dict.fromkeys(HOST, 0.0)
    factors = dict.fromkeys(KERNELS, 1.0)
    if term.name in HOST:
        seconds[term.name] = term.value
    else:
        factors[term.name] += term.value
    variant = Variant(
        per_iteration=seconds["per_iteration"],
        per_sequence=seconds["per_sequence"],
        per_new_request=seconds["per_new_request"],
        factors=Factors(**factors),
    )
    return Cause(term.name, term.value, term.low, term.high, term.rivals, variant)


def front_end(run: ObservedRun, current: Prediction) -> Cause | None:
    """Time outside the engine, on top of what ``current`` has of it; none where the times were
    taken inside the engine.

    Read from requests that came while nothing ran, where the iterations are known; else from how
    much later all first tokens came.
    """
    if run.front_end == "none":
        return None
    known = current.result.record.front_end
    if run.iterations is not None:
        each = per_prompt_token_of(current.result.record.pools)
        delays = idle_delays(run, run.iterations, each)
        late = delays - known
    else:
        late = _paired(run, current, "ttft")
    if len(late) < FEW:
        return None
    middle, apart = middle_of(late)
    if abs(middle) <= 2 * apart or abs(middle) < LEAST_FRONT_END:
        return None
    value = max(middle, -known)
    return Cause(FRONT_END, value, *_between(run, value, 2 * apart), (), Variant(front_end=value))


def _between(run: ObservedRun, value: float, off: float) -> tuple[float | None, float | None]:
    """The interval of a value; none where one median stands for all requests."""
    return (None, None) if run.summary_only else (value - off, value + off)


LEAST_FRONT_END = 2e-4
"""A shorter time outside the engine than 0.2 ms is none."""


def idle_delays(
    run: ObservedRun, iterations: ObservedIterations, per_prompt_token: float
) -> Floats:
    """The delays of requests that came while nothing ran: TTFT less the iterations of their prompt,
    and less what each of its tokens takes in front of the engine."""
    requests = run.requests
    if "first_token_s" not in requests:
        return np.zeros(0)
    first, last = _prompt_spans(iterations)
    delays = []
    order = zip(
        requests["request_id"].tolist(),
        requests["arrival_s"].tolist(),
        requests["first_token_s"].tolist(),
        (per_prompt_token * requests["prompt_tokens"]).tolist(),
        strict=True,
    )
    start, end = iterations.start, iterations.end
    for request, arrival, token, read in order:
        if request not in first or not np.isfinite(token):
            continue
        before = int(np.searchsorted(start, arrival, side="right")) - 1
        if before >= 0 and end[before] > arrival:
            continue  # something ran
        if before + 1 != first[request]:
            continue  # others went first
        delays.append(token - arrival - read - (end[last[request]] - start[first[request]]))
    return np.array(delays)


def _prompt_spans(iterations: ObservedIterations) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the last iteration of each request's prompt, up to its first token."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    again: set[int] = set()  # after a preemption
    for number, parts in enumerate(iterations.prefills):
        for part in parts:
            if part.before == 0 and part.request in first:
                again.add(part.request)
            if part.request not in again:
                first.setdefault(part.request, number)
                last[part.request] = number
    return first, last


def of_requests(run: ObservedRun, current: Prediction) -> list[Cause]:
    """Without iterations: what the time per token asks for, as a constant or in proportion."""
    late = _paired(run, current, "tpot")
    if len(late) < FEW:
        return []
    middle, apart = middle_of(late)
    rows = current.result.record
    usual = float(np.nanmedian(rows.tpot))
    if abs(middle) <= 2 * apart or not usual:
        return []
    constant = max(middle, -only(rows.pools).deployment.engine.per_iteration)
    share = max(middle / usual, -0.8)
    off = 2 * apart
    return [
        Cause(
            CONSTANT,
            constant,
            *_between(run, constant, off),
            (PROPORTIONAL,),
            Variant(per_iteration=constant),
        ),
        Cause(
            PROPORTIONAL,
            share,
            *_between(run, share, off / usual),
            (CONSTANT,),
            Variant(factors=Factors(kernels=1.0 + share)),
        ),
    ]


def sharpened(run: ObservedRun, cause: Cause, before: Prediction, tried: Prediction) -> Cause:
    """A cause of ``of_requests``, larger or smaller by what it did to the time per token in
    ``tried`` relative to what was wanted of it."""
    wanted, left = _paired(run, before, "tpot"), _paired(run, tried, "tpot")
    moved = float(np.median(wanted) - np.median(left)) if len(left) else 0.0
    factor = float(np.median(wanted)) / moved if moved else 1.0
    if not 0.2 < factor < 5.0:
        return cause
    value = cause.value * factor
    off = 0.0 if cause.high is None else cause.high - cause.value
    constant = Variant(per_iteration=value)
    variant = constant if cause.name == CONSTANT else Variant(factors=Factors(kernels=1.0 + value))
    low, high = _between(run, value, off)
    return cause._replace(value=value, low=low, high=high, variant=variant)


def _paired(run: ObservedRun, current: Prediction, name: str) -> Floats:
    """Observed less predicted, request by request, where both have it; of a summary the difference
    of the medians, as often as it takes to be believed."""
    if run.summary_only:
        key = f"median_{name}_ms"
        both = run.summary.get(key), current.summary.get(key)
        if both[0] is None or both[1] is None:
            return np.zeros(0)
        return np.full(FEW, (both[0] - both[1]) / 1e3)
    column = f"{name}_s"
    if column not in run.requests:
        return np.zeros(0)
    ours = run.requests[column].to_numpy(np.float64)
    theirs = getattr(current.result.record, name)
    count = min(len(ours), len(theirs))
    late = ours[:count] - theirs[:count]
    found: Floats = late[np.isfinite(late)]
    return found


def middle_of(values: Floats) -> tuple[float, float]:
    """The median, and its standard error by the median deviation."""
    middle = float(np.median(values))
    deviation = 1.4826 * float(np.median(np.abs(values - middle)))
    return middle, 1.2533 * deviation / float(np.sqrt(len(values)))
