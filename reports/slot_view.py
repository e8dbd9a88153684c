"""Which part of a run is drawn as a slot chart, so that single requests can be told apart?

The whole of a small run; of a larger one the first replica, a stretch around the middle and the
lowest seats, of which the caption tells. Times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from sim.trails.iterations import Iterations
from sim.trails.seats import Stay, overlapping, seating

SEATS, LANES = 40, 16
"""Most seats, and most lanes of waiting requests, that are drawn."""

MOST_PARTS = 450
"""Most bars: more would be thinner than they can be told apart."""

FEW_REQUESTS = 5_000
"""So many requests are seated to see whether they fit; a longer stretch is cut at once."""

SHORTEST = 1e-4
"""Share of a run below which a stretch is not cut further, however many wait in it."""


class Counts(NamedTuple):
    """How much of something is drawn, of how much there is."""

    drawn: int
    all: int


@dataclass(frozen=True, slots=True)
class SlotView:
    """What is drawn: ``stays`` that touch ``start..end`` on ``replica``.

    ``duration`` is when the run ended, ``requests`` counts those in it; ``vague`` those of the
    stretch of which it is not known when they were preempted.
    """

    stays: tuple[Stay, ...]
    ids: tuple[int, ...]  # of each stay
    start: float
    end: float
    duration: float
    replicas: Counts
    seats: Counts
    lanes: Counts
    requests: Counts
    vague: int
    is_cut: bool  # whether the stretch is not the whole run


def slot_view(requests: pd.DataFrame, timeseries: pd.DataFrame) -> SlotView | None:
    """The part that is drawn; None where no request ever ran."""
    served = requests[requests["first_token_s"].notna() | requests["scheduled_s"].notna()]
    if not len(served):
        return None
    replicas = np.unique(served["replica"])
    replica = int(replicas[0])
    rows = {str(name): requests[name].to_numpy() for name in requests.columns}
    plans = {str(name): timeseries[name].to_numpy() for name in timeseries.columns}
    iterations = Iterations(plans, replica)
    duration = _end(requests, timeseries)
    arrivals = np.sort(served.loc[served["replica"] == replica, "arrival_s"].to_numpy(float))
    first, middle = float(arrivals[0]), float(arrivals[len(arrivals) // 2])
    whole = half = max(middle - first, duration - middle)
    while True:
        start, end = max(first, middle - half), min(duration, middle + half)
        touching = overlapping(rows, replica, start, end)
        waiting = touching[~(rows["scheduled_s"][touching] <= end)]
        if len(touching) <= FEW_REQUESTS or half < SHORTEST * whole:
            # of those that wait all the time a few are enough to fill the lanes
            chosen = np.setdiff1d(touching, waiting[FEW_REQUESTS:])
            found = seating(rows, iterations, chosen.tolist(), duration)
            kept = tuple(stay for stay in found.stays if _fits(stay, start, end))
            parts = sum(len(stay.parts) for stay in kept)
            if parts <= MOST_PARTS or half < SHORTEST * whole:
                break
        half *= 0.7
    ids = tuple(int(rows["request_id"][stay.row]) for stay in kept)
    return SlotView(
        stays=kept,
        ids=ids,
        start=start,
        end=end,
        duration=duration,
        replicas=Counts(1, len(replicas)),
        seats=Counts(min(found.seats, SEATS), found.seats),
        lanes=Counts(min(found.lanes, LANES), max(found.lanes, len(waiting))),
        requests=Counts(
            len(set(ids)), int((~requests["status"].isin(("rejected", "failed"))).sum())
        ),
        vague=found.vague,
        is_cut=half < whole,
    )


def caption(view: SlotView) -> str:
    """What is shown, and what is left out."""
    told = []
    if view.requests.drawn < view.requests.all:
        told.append(f"{view.requests.drawn:,} of {view.requests.all:,} requests.")
    if view.is_cut:
        span = f"{view.start:.1f} s to {view.end:.1f} s of {view.duration:.1f} s"
        told.append(f"From the middle of the run: {span}.")
    if view.replicas.all > 1:
        told.append(f"One of {view.replicas.all:,} replicas.")
    if view.seats.drawn < view.seats.all:
        told.append(f"The lowest {view.seats.drawn:,} of {view.seats.all:,} seats.")
    if view.lanes.drawn < view.lanes.all:
        told.append(f"The first {view.lanes.drawn:,} of up to {view.lanes.all:,} that wait.")
    if view.vague:
        told.append(
            f"Of {view.vague:,} preempted requests it was not recorded when they were out of the "
            "batch."
        )
    return " ".join(told)


def _fits(stay: Stay, start: float, end: float) -> bool:
    """Whether a stay is among the seats or lanes that are drawn, and touches the stretch."""
    return stay.lane < (SEATS if stay.seated else LANES) and stay.end > start and stay.start < end


def _end(requests: pd.DataFrame, timeseries: pd.DataFrame) -> float:
    times = [requests[name].max() for name in ("first_token_s", "finish_s")]
    times += [timeseries["end_s"].max() if len(timeseries) else np.nan]
    return float(np.nanmax(times))
