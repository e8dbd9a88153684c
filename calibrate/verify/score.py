"""How wrong are the predictions, beside how much the engine differs from itself? Relative errors.

A run in which others used the processors is kept and marked, but not scored. What was measured is
the median of the runs that count, its noise how far the farthest of them lies from that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from calibrate.device import DeviceFacts
from calibrate.measurements import Measurement, Table
from calibrate.settle import settled
from calibrate.verify.traffic import Setting
from sim.profile import Profile

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
"""What the arrivals decide below saturation, and no prediction can get wrong."""

MOST_DISTURBED = 0.1
"""Share of a run's time that may have been disturbed for it still to count."""

Document = dict[str, Any]


def metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """What is compared, of one summary."""
    return {name: float(summary[key]) for name, key in METRICS.items()}


def document(setting: Setting, facts: DeviceFacts, results: Sequence[Document]) -> Document:
    """Everything as one JSON object: the results with their scores, and what was run where."""
    scored = [
        result | {"disciplines": [_scored(result, d) for d in result["disciplines"]]}
        for result in results
    ]
    return {
        "kind": "verification",
        "device": facts.document(),
        "setting": setting.document(),
        "wanted": dict(WANTED),
        "traces": scored,
    }


def rows(document: Document) -> list[Document]:
    """A flat row for each trace, discipline and metric."""
    found = []
    for result in document["traces"]:
        for discipline in result["disciplines"]:
            for name, entry in discipline["scores"].items():
                found.append(
                    {"trace": result["trace"], "batching": discipline["batching"], "metric": name}
                    | entry
                )
    return found


def _scored(result: Document, discipline: Document) -> Document:
    """A discipline with its scores."""
    counted = [told for told in discipline["runs"] if counts(told)]
    scores = {}
    for name in METRICS:
        if (result["trace"], name) in GIVEN:
            continue
        predicted = discipline["predicted"][name]
        scores[name] = _score(predicted, [told["measured"][name] for told in counted])
        scores[name] |= {"wanted": WANTED[name], "runs": len(counted)}
    return discipline | {"scores": scores}


def counts(told: Mapping[str, Any]) -> bool:
    """Whether a run was left alone enough to count."""
    return (told["disturbed"] or 0.0) <= MOST_DISTURBED


def _score(predicted: float, measured: Sequence[float]) -> Document:
    if not measured:
        return {"predicted": predicted, "measured": None, "error": None, "noise": None}
    middle = median(measured)
    return {
        "predicted": predicted,
        "measured": middle,
        "error": predicted / middle - 1,
        "noise": max(abs(value / middle - 1) for value in measured),
    }


def joined(before: Table, after: Table) -> list[Measurement]:
    """Both calibrations as one: of a point in both the geometric mean, for what lies between them
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


def drift_by_operator(before: Table, after: Table) -> Document:
    """By operator: how much longer the second calibration's points took, in the median."""
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
