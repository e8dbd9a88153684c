"""Splits the latency of each request into parts in seconds that add up to it exactly.

The parts of a request; the first five and ``transfer`` make its TTFT, all its E2EL:

``front_end``          outside the engine: HTTP, tokeniser, hand-over
``queue``              in the scheduler's queue, until it was first in a batch
``prefill``            its own prompt: what the iterations with a chunk of it would have taken
                       without other requests' prompts in them
``prefill_delay``      what they took longer because of those, and iterations it was passed over in
``prefill_preempted``  preempted before its first token: until its prompt was complete
``decode``             its tokens after the first, at the speed of the batches it was in
``decode_delay``       what iterations took longer, or were put off, for other requests' prompts
``decode_preempted``   preempted after its first token: until all it had was computed again

Where prompts are computed in pools of their own, what lies between a complete prompt and the first
token belongs to the TTFT too:

``transfer``           until the decode replica has memory, the KV has arrived, and the prompt's
                       last token is computed there; 0 where a replica serves its requests alone

What an iteration would have taken without other requests' prompts is computed by the cost model
that timed it. Nothing is accumulated while a run goes on: its plans, their chunks and which request
was preempted when are recorded, and that is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.cost.recorded import seconds_of
from sim.growth.kept_rows import PlanRows
from sim.iteration import Timer
from sim.loop.recorder import COMPLETED
from sim.metrics.record.blocks import OBJECTS, blocks, durations
from sim.metrics.record.run_record import RunRecord

Floats = NDArray[np.float64]
Parts = Mapping[str, Floats]

PROMPT_PARTS = ("front_end", "queue", "prefill", "prefill_delay", "prefill_preempted")
"""The parts of the time until the prompt is complete."""
AFTER_PARTS = ("decode", "decode_delay", "decode_preempted")
"""The parts after the first token."""
TTFT_PARTS = (*PROMPT_PARTS, "transfer")
"""The parts of the time to first token."""
PARTS = (*PROMPT_PARTS, *AFTER_PARTS, "transfer")
"""The parts of the end-to-end latency."""


def latency_parts(run: RunRecord) -> Parts:
    """Each of ``PARTS`` for every request of a run, NaN for those that were not completed.

    NaN for all of a run that was observed, not simulated, or whose chunks were not recorded.
    """
    found: dict[str, Floats] = {}
    # pools that prefill last: theirs are the parts up to the complete prompt
    for each in sorted(run.parts, key=lambda part: part.pool.settings.role == "prefill"):
        if each.trail is None or run.observed:
            continue
        requests = each.requests
        if each.pool.settings.role == "prefill":
            requests = _until_complete(run, requests)
        timed = parts_of(requests, each.plans, *each.trail, each.pool.cost, run.passing(requests))
        if each.alone:
            return timed
        for name, seconds in timed.items():
            if each.pool.settings.role == "prefill" and name not in PROMPT_PARTS:
                continue
            whole = found.setdefault(name, _unknown(run))
            whole[each.places] = seconds
    if run.handed is not None and len(run.handed):
        _hand_over(run, found)
    return found or {name: _unknown(run) for name in PARTS}


def _until_complete(run: RunRecord, requests: NDArray[np.void]) -> NDArray[np.void]:
    """``requests`` that were handed over, as if they had ended when their prompts were complete."""
    assert run.handed is not None
    handed = run.handed[np.argsort(run.handed["request"])]
    at = np.searchsorted(handed["request"], requests["id"])
    rows = requests.copy()
    rows["first_token"] = rows["finish"] = handed["prefilled"][at]
    return rows


def _hand_over(run: RunRecord, found: dict[str, Floats]) -> None:
    """Put into ``found`` what requests waited for between a complete prompt and their first
    token."""
    assert run.handed is not None
    at = np.searchsorted(run.requests["id"], run.handed["request"])
    done = run.requests["status"][at] == COMPLETED
    at, prefilled = at[done], run.handed["prefilled"][done]
    found["transfer"][at] = run.requests["first_token"][at] - prefilled


def _unknown(run: RunRecord) -> Floats:
    return np.full(len(run.requests), np.nan)


def parts_of(
    requests: NDArray[np.void],
    plans: PlanRows,
    chunks: NDArray[np.void],
    absences: NDArray[np.void],
    timer: Timer,
    front_end: Floats | float,
) -> Parts:
    """Parts of latencies from the rows of ``sim.loop.recorder`` and what timed iterations."""
    away = _Absences(requests, absences)
    delayed = _delay_of_decodes(requests, plans, timer, away)  # first, since it takes most memory
    done = requests["status"] == COMPLETED
    scheduled, first, finish = (
        np.where(done, requests[name], np.nan) for name in ("scheduled", "first_token", "finish")
    )
    own = _own_prefill(requests, plans, chunks, timer, away)
    prefilling = first - scheduled - away.before
    # rounding: a predicted time may exceed the recorded duration by the last bit
    own = np.minimum(own, prefilling)
    decoding = finish - first - away.after
    delayed = np.clip(delayed, 0.0, decoding)
    zero = np.where(done, 0.0, np.nan)
    return {
        "front_end": zero + front_end,
        "queue": scheduled - (requests["arrival"] + front_end),
        "prefill": own,
        "prefill_delay": prefilling - own,
        "prefill_preempted": zero + away.before,
        "decode": decoding - delayed,
        "decode_delay": delayed,
        "decode_preempted": zero + away.after,
        "transfer": zero,
    }


class _Absences:
    """When requests were out of the batch: ``spans`` (row of the request -> start and end of each),
    and how long in all, ``before`` and ``after`` the first token."""

    def __init__(self, requests: NDArray[np.void], rows: NDArray[np.void]) -> None:
        self.before = np.zeros(len(requests))
        self.after = np.zeros(len(requests))
        self.spans: dict[int, list[tuple[float, float]]] = {}
        events: dict[int, list[tuple[float, bool]]] = defaultdict(list)
        for request, time, out in rows[["request", "time", "out"]].tolist():
            events[request].append((time, bool(out)))
        for index, noted in events.items():
            if requests["status"][index] != COMPLETED:
                continue
            first = float(requests["first_token"][index])
            self.spans[index] = spans = _spans([*noted, (first, False)])
            for start, end in spans:
                (self.before if end <= first else self.after)[index] += end - start


def _spans(events: list[tuple[float, bool]]) -> list[tuple[float, float]]:
    """From each time of going out to the next of being back, in order. A request that is back may
    go out again at the same instant.
    """
    spans: list[tuple[float, float]] = []
    since: float | None = None
    for time, out in sorted(events):
        if out and since is None:
            since = time
        elif not out and since is not None:
            spans.append((since, time))
            since = None
    return spans


def _own_prefill(
    requests: NDArray[np.void],
    plans: PlanRows,
    chunks: NDArray[np.void],
    timer: Timer,
    away: _Absences,
) -> Floats:
    """Seconds of each request's own prompt, up to its first token; what was lost to a preemption
    counts, what was computed once more after it does not."""
    chunks = chunks[_first_time(requests, plans, chunks, away)]
    at = chunks["plan"]
    seconds = plans["end"][at] - plans["start"][at]
    shared = np.flatnonzero(plans["prefill_seqs"][at] > 1)
    for block in blocks(len(shared), OBJECTS):
        some = shared[block]
        mine = chunks[["context", "tokens"]][some].tolist()
        admitted = [0 if before else 1 for before, _ in mine]
        alone = seconds_of(timer, plans, at[some], [(chunk,) for chunk in mine], admitted)
        seconds[some] = np.minimum(seconds[some], alone)
    total = np.zeros(len(requests))
    np.add.at(total, chunks["request"], seconds)
    return total


def _first_time(
    requests: NDArray[np.void],
    plans: PlanRows,
    chunks: NDArray[np.void],
    away: _Absences,
) -> NDArray[np.bool_]:
    """The chunks that belong to a first prefill: not to one that made up for a preemption."""
    owners, starts = chunks["request"], plans["start"][chunks["plan"]]
    kept = np.asarray(starts < requests["first_token"][owners])
    touched = np.isin(owners, np.fromiter(away.spans, dtype=np.int64))
    for row in np.flatnonzero(touched).tolist():
        start = float(starts[row])
        spans = away.spans[int(owners[row])]
        kept[row] &= not any(out <= start < back for out, back in spans)
    return kept


def _delay_of_decodes(
    requests: NDArray[np.void], plans: PlanRows, timer: Timer, away: _Absences
) -> Floats:
    """Seconds by which other requests' prompts put off each request's tokens after the first."""
    extra = _of_prompts(plans, timer)
    total = -_handed_out_late(requests, plans, extra)
    ends = plans["end"]
    for here, mine in _by_replica(requests, plans):
        ended, sums = ends[here], extra[here]
        np.cumsum(sums, out=sums)  # of a slice, where it stands: a copy takes as much memory

        def passed(times: Floats, ended: Floats = ended, sums: Floats = sums) -> Floats:
            at = np.searchsorted(ended, times, "right")
            return np.where(at > 0, sums[at - 1], 0.0)

        tokens = requests["first_token"][mine]
        total[mine] += passed(requests["finish"][mine]) - passed(tokens)
        for row in (row for row in mine.tolist() if row in away.spans):
            first, finish = float(requests["first_token"][row]), float(requests["finish"][row])
            edges = [first, *(t for span in away.spans[row] if span[0] >= first for t in span)]
            places = passed(np.array([*edges, finish]))
            total[row] = sum(b - a for a, b in list(pairwise(places.tolist()))[::2])
    return total


def _by_replica(
    requests: NDArray[np.void], plans: PlanRows
) -> Iterator[tuple[slice | NDArray[np.bool_], NDArray[np.intp]]]:
    """The plans of each replica, and the places of the requests that it completed."""
    places, done = plans["replica"], requests["status"] == COMPLETED
    alone = len(places) and (places == places[0]).all()
    for index in np.unique(requests["replica"][done]).tolist():
        mine = np.flatnonzero((requests["replica"] == index) & done)
        yield slice(None) if alone else places == index, mine


def _handed_out_late(requests: NDArray[np.void], plans: PlanRows, extra: Floats) -> Floats:
    """Seconds of the prompts in a plan that had passed when the first token of a request was handed
    out in the midst of it; none where several plans are in flight."""
    late = np.zeros(len(requests))
    all_starts, all_ends = plans["start"], plans["end"]
    for here, mine in _by_replica(requests, plans):
        starts, ends, first = all_starts[here], all_ends[here], requests["first_token"][mine]
        if not np.any(starts[1:] < ends[:-1]):
            at = np.minimum(np.searchsorted(ends, first, "right"), len(ends) - 1)
            most = np.where(first < ends[at], extra[here][at], 0.0)
            late[mine] = np.clip(first - starts[at], 0.0, most)
    return late


def _of_prompts(plans: PlanRows, timer: Timer) -> Floats:
    """Seconds by which the prompts in each plan made it longer than its decodes alone."""
    extra, prompts = durations(plans), plans["prefill_seqs"] > 0
    extra[~prompts] = 0.0
    mixed = np.flatnonzero(prompts & (plans["computed"] > 0))
    for block in blocks(len(mixed), OBJECTS):
        some = mixed[block]
        extra[some] = np.maximum(extra[some] - seconds_of(timer, plans, some), 0.0)
    return extra
