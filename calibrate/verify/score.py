"""Scores predictions by relative errors, next to how much the engine differs from itself.

A run in which other programs used the processors is saved and marked, but not scored. Each run has
a prediction of its own, from the calibrations around it; the error is the median of theirs. The
noise is how far the farthest of the runs lies from their median. ``steady`` is the error with the
machine's drift between calibrations and run taken out (``drift``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from calibrate.device import DeviceFacts
from calibrate.measurements import Measurement, MeasurementTable
from calibrate.settle import settled
from calibrate.verify.budget import Wish
from calibrate.verify.drift import corrected
from calibrate.verify.traffic import TrafficSetting
from sim.specs.profile import Profile

METRICS = {
    "tpot": "mean_tpot_ms",
    "throughput": "output_throughput",
    "mean_ttft": "mean_ttft_ms",
    "p90_ttft": "p90_ttft_ms",
}
"""What is compared, and its key in a summary."""

WANTED = {"tpot": 0.05, "throughput": 0.05, "mean_ttft": 0.10, "p90_ttft": 0.10}
"""Errors that a prediction should stay within."""

GIVEN = {("poisson", "throughput")}
"""Metrics that the arrivals determine below saturation, and that no prediction can get wrong."""

MOST_DISTURBED = 0.1
"""Share of a run's time that may have been disturbed for it still to count."""

Document = dict[str, Any]


def metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """What is compared, of one summary."""
    return {name: float(summary[key]) for name, key in METRICS.items()}


def document(setting: TrafficSetting, facts: DeviceFacts, results: Sequence[Document]) -> Document:
    """Everything as one JSON object: the results with their scores, and what was run where."""
    return {
        "kind": "verification",
        "device": facts.document(),
        "setting": setting.document(),
        "wanted": dict(WANTED),
        "traces": [result | {"scores": _scores(result)} for result in results],
    }


def left_out(wish: Wish, results: Sequence[Document]) -> Document:
    """What of the wish was not done: traces; by trace the disciplines that were not run, and the
    fewest runs of one that was, where that is fewer than wished. All empty if everything was
    done."""
    batchings, repeats = {}, {}
    for result in results:
        made = Counter(told["batching"] for told in result["runs"])
        missing = [name for name in wish.batchings if not made[name]]
        if missing:
            batchings[result["trace"]] = missing
        if min(made.values()) < wish.repeats:
            repeats[result["trace"]] = min(made.values())
    done = {result["trace"] for result in results}
    return {
        "traces": [name for name in wish.traces if name not in done],
        "batchings": batchings,
        "repeats": repeats,
    }


def rows(document: Document) -> list[Document]:
    """A flat row for each trace, discipline and metric."""
    return [row for result in document["traces"] for row in result["scores"]]


def _scores(result: Document) -> list[Document]:
    found = []
    for batching in dict.fromkeys(told["batching"] for told in result["runs"]):
        mine = [told for told in result["runs"] if told["batching"] == batching]
        for name in METRICS:
            if (result["trace"], name) in GIVEN:
                continue
            valid = [told for told in mine if counts(told)]
            pairs = [(told["predicted"][name], told["measured"][name]) for told in valid]
            steady = [
                corrected(name, told["predicted"][name], told) / told["measured"][name] - 1
                for told in valid
            ]
            head = {"trace": result["trace"], "batching": batching, "metric": name}
            tail = {"steady": median(steady) if steady else None, "wanted": WANTED[name]}
            found.append(head | _score(pairs) | tail | {"runs": len(pairs)})
    return found


def counts(told: Mapping[str, Any]) -> bool:
    """Whether a run was undisturbed enough to count."""
    return (told["disturbed"] or 0.0) <= MOST_DISTURBED


def _score(pairs: Sequence[tuple[float, float]]) -> Document:
    """Medians of (predicted, measured) pairs, and of their errors."""
    if not pairs:
        return dict.fromkeys(("predicted", "measured", "error", "noise"))
    middle = median(measured for _, measured in pairs)
    return {
        "predicted": median(predicted for predicted, _ in pairs),
        "measured": middle,
        "error": median(predicted / measured - 1 for predicted, measured in pairs),
        "noise": max(abs(measured / middle - 1) for _, measured in pairs),
    }


def joined(before: MeasurementTable, after: MeasurementTable) -> list[Measurement]:
    """Two calibrations as one: for a point in both the geometric mean, for what lies between them
    is drift, and the runs lie between them too."""
    second = {row.key: row.seconds for row in settled(after)}
    first = settled(before)
    known = {row.key for row in first}
    both = [
        replace(row, seconds=math.sqrt((row.seconds or 0.0) * (second.get(row.key) or 0.0)))
        if second.get(row.key)
        else row
        for row in first
    ]
    return both + [row for row in settled(after) if row.key not in known]


def drift(tables: Sequence[MeasurementTable]) -> list[Document]:
    """From each calibration to the next, by operator: how much longer the same points took, in the
    median."""
    return [_change(before, after) for before, after in pairwise(tables)]


def _change(before: MeasurementTable, after: MeasurementTable) -> Document:
    second = {row.key: row.seconds or 0.0 for row in settled(after)}
    ratios: dict[str, list[float]] = {}
    for row in settled(before):
        if second.get(row.key) and row.seconds:
            ratios.setdefault(row.operator, []).append(second[row.key] / row.seconds - 1)
    return {name: median(values) for name, values in sorted(ratios.items())}


def holdout(profile: Profile) -> Document:
    """By operator: median and 90th percentile of the error on shapes held out of the fit."""
    return {
        operator: [fit.holdout.median, fit.holdout.p90]
        for operator, fits in profile.kernels.items()
        for fit in fits.values()
    }
