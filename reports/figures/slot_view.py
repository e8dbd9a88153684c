"""Chooses the part of a run that a slot chart shows, so that single requests stay visible.

The whole of a small run; of a larger one the first replica, a stretch around the middle of its
service and the lowest slots, which the caption says. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.results.trail_files import Trail
from sim.schedulers import POLICIES
from sim.trails.courses import Courses
from sim.trails.iterations import Iterations
from sim.trails.slots import Phase, Stay, batch_ends, overlapping, placement
from sim.units import show_time

SLOTS, SPARE, LANES = 40, 8, 12
"""Most slots that are drawn (a few more where that shows all), and most lanes of waiting requests:
where more wait at once, their number is drawn instead."""

AFTER: Mapping[str, Phase] = {
    name: "padding" if policy.shape.padded else "held"
    for name, policy in POLICIES.items()
    if policy.shape.whole
}
"""Batching -> what happens to the slot of a request that is done before its batch."""

MOST_STEPS = 1_000
"""Most steps of the line that says how many wait."""

MOST_PARTS = 450
"""Most bars: more would be too thin to be distinguished."""

FEW_REQUESTS = 5_000
"""Most requests that are placed to see whether they fit; a longer stretch is cut at once."""

SHORTEST = 1e-4
"""Share of a run below which a stretch is not cut further, however many wait in it."""


class SlotCounts(NamedTuple):
    """How much of something is drawn, of how much there is."""

    drawn: int
    all: int


class QueueView(NamedTuple):
    """How many requests wait from each of these times (s) on."""

    times: NDArray[np.float64]
    number: NDArray[np.int64]


class BatchSpan(NamedTuple):
    """A batch that is served as a whole: from when to when (s), and which share of its drawn
    slots' time, as far as it is drawn, decodes."""

    start: float
    end: float
    decoding: float


@dataclass(frozen=True, slots=True)
class SlotView:
    """The view drawn: ``stays`` that touch ``start..end`` on ``replica``.

    ``duration`` is when the run ended, ``requests`` counts those in it; ``vague`` those of the
    stretch of which it is not known when they were preempted.
    """

    stays: tuple[Stay, ...]
    ids: tuple[int, ...]  # of each stay
    start: float
    end: float
    duration: float
    replicas: SlotCounts
    slots: SlotCounts
    lanes: SlotCounts
    requests: SlotCounts
    vague: int
    is_cut: bool  # whether the stretch is not the whole run
    queue: QueueView | None  # in place of lanes, where many wait
    decoding: float | None  # share of the slots' time that is decoded, where batches are whole
    batches: tuple[BatchSpan, ...]  # in their order, where batches are whole
    about: Mapping[int, str]  # of each request drawn: its lengths, its wait and its TTFT


def slot_view(
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    batching: str = "continuous",
    trail: Trail | None = None,
    window: tuple[float, float] | None = None,
    slots: int = SLOTS,
) -> SlotView | None:
    """The part that is drawn; None where no request ever ran.

    ``window`` (s) is the stretch to draw instead of one that is chosen here; of more than ``slots``
    slots the lowest are drawn.

    ``batching`` is the scenario's: under static and request-level batching a slot stays taken until
    the whole batch is done. ``trail`` is exact where the run saved it; else it is inferred what
    preempted requests did.
    """
    requests = _lasting(requests)
    served = requests[requests["first_token_s"].notna() | requests["scheduled_s"].notna()]
    served = served[served["replica"] >= 0]
    if not len(served):
        return None
    replica = int(served["replica"].min())
    rows = {str(name): requests[name].to_numpy() for name in requests.columns}
    plans = {str(name): timeseries[name].to_numpy() for name in timeseries.columns}
    courses = None if trail is None else _courses(trail, plans)
    duration = _end(requests, timeseries)
    own = served[served["replica"] == replica]
    first = float(own["arrival_s"].min())
    middle = float(own["scheduled_s"].fillna(own["first_token_s"]).median())
    after = _after(rows, replica, batching)
    running = plans["running"][plans["replica"] == replica].max(initial=0)
    # where all slots are drawn, every request in one has a bar or more
    few = FEW_REQUESTS if after or running > slots else MOST_PARTS
    iterations = Iterations(plans, replica)
    placing = _Placing(rows, iterations, replica, duration, after, courses, slots, few)
    part = placing.chosen(first, middle) if window is None else placing.given(*window)
    start, end, stays = part.start, part.end, part.stays
    accepted = ~requests["status"].isin(("rejected", "failed"))
    ids = tuple(int(rows["request_id"][stay.row]) for stay in stays)
    return SlotView(
        stays=stays,
        ids=ids,
        start=start,
        end=end,
        duration=duration,
        replicas=SlotCounts(1, served["replica"].nunique()),
        slots=part.slots,
        lanes=part.lanes,
        requests=SlotCounts(len(set(ids)), int(accepted.sum())),
        vague=part.vague,
        is_cut=start > first or end < duration,
        queue=_waiting(rows, replica, start, end) if part.lanes.all > LANES else None,
        decoding=_decoding(stays, start, end) if after else None,
        batches=_batches(rows, after, stays, start, end),
        about=_about(rows, sorted({stay.row for stay in stays})),
    )


def _lasting(requests: pd.DataFrame) -> pd.DataFrame:
    """``requests``, of which those whose clients gave up stand on no replica: when their last
    attempt left its slot is not in the table."""
    lost = (requests["status"] == "gave up") & requests["finish_s"].isna()
    return requests.assign(replica=requests["replica"].mask(lost, -1)) if lost.any() else requests


class _Stretch(NamedTuple):
    """The part drawn from ``start`` to ``end`` (s)."""

    start: float
    end: float
    stays: tuple[Stay, ...]
    slots: SlotCounts
    lanes: SlotCounts
    vague: int


@dataclass(frozen=True)
class _Placing:
    """The state for placing the requests of a ``replica`` in slots and lanes; ``slots`` is the most
    that is drawn, ``few`` the most requests in slots of which that may not be too much."""

    rows: dict[str, NDArray[Any]]
    iterations: Iterations
    replica: int
    duration: float
    after: Mapping[int, tuple[Phase, float]]
    courses: Courses | None
    slots: int
    few: int
    known: dict[int, tuple[list[Stay], bool]] = field(default_factory=dict)

    def chosen(self, first: float, middle: float) -> _Stretch:
        """The longest part about the ``middle`` that is not too much, of all from ``first`` on."""
        whole = half = max(middle - first, self.duration - middle)
        while True:
            start, end = max(first, middle - half), min(self.duration, middle + half)
            part = self.stretch(start, end, last=half < SHORTEST * whole)
            if part is not None:
                return part
            half *= 0.7

    def given(self, start: float, end: float) -> _Stretch:
        """The part from ``start`` to ``end``, however much it is."""
        part = self.stretch(start, end, last=True)
        assert part is not None
        return part

    def stretch(self, start: float, end: float, *, last: bool) -> _Stretch | None:
        """The part drawn from ``start`` to ``end``; None if it is too much, unless this is the
        ``last`` try."""
        rows, after = self.rows, self.after
        touching = _touching(rows, self.replica, after, start, end)
        waiting = touching[~(rows["scheduled_s"][touching] <= end)]
        in_slots = len(touching) - len(waiting)
        if (len(touching) > FEW_REQUESTS or in_slots > self.few) and not last:
            return None
        # of those that wait all the time a few are enough to fill the lanes
        chosen = np.setdiff1d(touching, waiting[FEW_REQUESTS:]).tolist()
        found = placement(
            rows,
            self.iterations,
            chosen,
            self.duration,
            after=after,
            courses=self.courses,
            known=self.known,
        )
        slots = found.slots if found.slots <= self.slots + SPARE else self.slots
        lanes = max(found.lanes, len(waiting))
        shown = 0 if lanes > LANES else lanes
        kept = _drawn(found.stays, start, end, slots, shown)
        if sum(len(stay.parts) for stay in kept) > MOST_PARTS and not last:
            return None
        counts = SlotCounts(slots, found.slots), SlotCounts(shown, lanes)
        return _Stretch(start, end, kept, *counts, found.vague)


def _touching(
    rows: dict[str, NDArray[Any]],
    replica: int,
    after: Mapping[int, tuple[Phase, float]],
    start: float,
    end: float,
) -> NDArray[Any]:
    """The rows of requests that wait or hold a slot between ``start`` and ``end``."""
    held = [row for row, (_, over) in after.items() if over >= start]
    held = [row for row in held if rows["scheduled_s"][row] <= end]
    return np.union1d(overlapping(rows, replica, start, end), np.array(held, int))


def _drawn(
    stays: Sequence[Stay], start: float, end: float, slots: int, lanes: int
) -> tuple[Stay, ...]:
    """The stays of the stretch in the lowest ``slots`` and ``lanes``."""
    return tuple(
        stay
        for stay in stays
        if stay.lane < (slots if stay.in_slot else lanes) and stay.end > start and stay.start < end
    )


def _about(rows: Mapping[str, NDArray[Any]], chosen: Sequence[int]) -> dict[int, str]:
    """Lengths, wait and TTFT of the requests in these rows; what is not known is left out."""
    found = {}
    for row in chosen:
        told = [f"{rows['prompt_tokens'][row]:,} in, {rows['output_tokens'][row]:,} out"]
        for name, title in (("queue_s", "waited"), ("ttft_s", "TTFT")):
            seconds = float(rows[name][row]) if name in rows else np.nan
            if np.isfinite(seconds):
                told.append(f"{title} {show_time(seconds)}")
        found[int(rows["request_id"][row])] = ", ".join(told)
    return found


def _courses(trail: Trail, plans: dict[str, NDArray[Any]]) -> Courses:
    chunks, absences = ({str(name): frame[name].to_numpy() for name in frame} for frame in trail)
    return Courses(chunks, absences, plans)


def _after(
    rows: dict[str, NDArray[Any]], replica: int, batching: str
) -> dict[int, tuple[Phase, float]]:
    """The phases of slots of requests that are done before their batch; row -> phase and end."""
    if batching not in AFTER:
        return {}
    return {row: (AFTER[batching], end) for row, end in batch_ends(rows, replica).items()}


def _waiting(rows: dict[str, NDArray[Any]], replica: int, start: float, end: float) -> QueueView:
    """How many requests of ``replica`` wait for their first iteration.

    Requests that were never scheduled wait to the end; preempted ones are not counted.
    """
    own = rows["replica"] == replica
    came = np.sort(rows["arrival_s"][own].astype(float))
    left = rows["scheduled_s"][own].astype(float)
    left = np.sort(np.where(np.isnan(left), rows["first_token_s"][own].astype(float), left))
    left = left[~np.isnan(left)]
    times = np.unique(np.concatenate(([start], came, left, [end])))
    times = times[(times >= start) & (times <= end)]
    number = np.searchsorted(came, times, side="right") - np.searchsorted(left, times, side="right")
    step = max(1, len(times) // MOST_STEPS)
    return QueueView(times[::step], number[::step])


def time_spent(stays: Sequence[Stay], start: float, end: float) -> dict[Phase, float]:
    """The seconds that the drawn slots spent in each phase while they were taken."""
    spent: dict[Phase, float] = {}
    for stay in stays:
        for part in stay.parts if stay.in_slot else ():
            inside = max(0.0, min(part.end, end) - max(part.start, start))
            spent[part.phase] = spent.get(part.phase, 0.0) + inside
    return spent


def _decoding(stays: Sequence[Stay], start: float, end: float) -> float | None:
    """The share of the drawn slots' time in which they decode; None where nothing is drawn."""
    spent = time_spent(stays, start, end)
    total = sum(spent.values())
    return spent.get("decode", 0.0) / total if total > 0 else None


def _batches(
    rows: Mapping[str, NDArray[Any]],
    after: Mapping[int, tuple[Phase, float]],
    stays: Sequence[Stay],
    start: float,
    end: float,
) -> tuple[BatchSpan, ...]:
    """The whole batches of which something is drawn."""
    begun: dict[float, float] = {}
    for row, (_, over) in after.items():
        begun[over] = min(begun.get(over, np.inf), float(rows["scheduled_s"][row]))
    members: dict[float, list[Stay]] = {}
    for stay in stays:
        if stay.in_slot and stay.row in after:
            members.setdefault(after[stay.row][1], []).append(stay)
    shares = {over: _decoding(drawn, start, end) for over, drawn in members.items()}
    found = [
        BatchSpan(begun[over], over, share) for over, share in shares.items() if share is not None
    ]
    return tuple(sorted(found))


def stretch(view: SlotView) -> str:
    """From when to when of the run the view is, in the seconds of its axis."""
    digits = max(0, 1 - floor(log10(max(view.end - view.start, 1e-6))))
    start, end, duration = (f"{at:,.{digits}f}" for at in (view.start, view.end, view.duration))
    return f"{start} to {end} s of {duration} s"


def caption(view: SlotView) -> str:
    """The text on what is shown, and on what is left out."""
    told = []
    if view.requests.drawn < view.requests.all:
        told.append(f"{view.requests.drawn:,} of {view.requests.all:,} requests.")
    if view.is_cut:
        told.append(f"A stretch of the run: {stretch(view)}.")
    if view.replicas.all > 1:
        told.append(f"One of {view.replicas.all:,} replicas.")
    if view.slots.drawn < view.slots.all:
        told.append(f"The lowest {view.slots.drawn:,} of {view.slots.all:,} slots.")
    if view.decoding is not None:
        told.append(f"{view.decoding:.0%} of the time of these slots is spent on decoding.")
    if view.vague:
        told.append(
            f"Of {view.vague:,} preempted requests it was not recorded when they were out of the "
            "batch."
        )
    return " ".join(told)


def _end(requests: pd.DataFrame, timeseries: pd.DataFrame) -> float:
    times = [requests[name].max() for name in ("first_token_s", "finish_s")]
    times += [timeseries["end_s"].max() if len(timeseries) else np.nan]
    return float(np.nanmax(times))
