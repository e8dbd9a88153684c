"""Chooses the time of each point that was measured twice or while the machine drifted. Seconds.

Two timings of one point that agree are averaged; of two that do not the shorter counts, since any
disturbance makes a measurement longer. Anchors are timed over and over: where all of them say that
the machine was slower for a while than it mostly was, the times measured then are reduced by as
much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median

import numpy as np

from calibrate.bench.base import Key
from calibrate.measurements import Measurement, MeasurementTable

AGREE = 0.05
"""Relative difference up to which two timings agree."""

NOTICED = 0.05
"""Relative drift below which nothing is corrected: anchors are not more certain than that."""

LEAST_ANCHORS = 4
"""Times that an anchor must have been measured to distinguish drift from chance."""

Level = tuple[float, float]
"""When, s; and the logarithm of how much slower than mostly the machine was."""


def settled(table: MeasurementTable) -> list[Measurement]:
    """The usable timings of ``table`` with the time chosen for each."""
    levels = drift_levels(table)
    second = {row.key: _steady(row, levels) for row in table.of("again")}
    found = []
    for row in table.usable():
        first, other = _steady(row, levels), second.get(row.key)
        seconds = first if other is None else believed(first, other)
        found.append(replace(row, seconds=seconds))
    return found


def believed(one: float, other: float) -> float:
    """The time of one point from two timings of it.

    >>> believed(1.0, 1.02), believed(1.0, 1.4)
    (1.01, 1.0)
    """
    low, high = sorted((one, other))
    return (low + high) / 2 if high <= low * (1 + AGREE) else low


def drift_levels(table: MeasurementTable) -> list[Level]:
    """The machine's level over time, smoothed; empty where anchors are too few, or differ."""
    series: dict[Key, list[Level]] = {}
    for row in table.of("anchor"):
        if row.at and row.seconds:
            series.setdefault(row.key, []).append((_clock(row.at), math.log(row.seconds)))
    usable = [looks for looks in series.values() if len(looks) >= LEAST_ANCHORS]
    if not usable:
        return []
    curves = []
    times = sorted(time for looks in usable for time, _ in looks)
    for looks in usable:
        middle = median(level for _, level in looks)
        smooth = smoothed([level - middle for _, level in looks])
        curves.append(np.interp(times, [time for time, _ in looks], smooth))
    together = np.array(curves)
    agreed = np.where(
        (together > 0).all(axis=0) | (together < 0).all(axis=0), together.mean(axis=0), 0.0
    )
    return list(zip(times, agreed.tolist(), strict=True))


def smoothed(values: Sequence[float]) -> list[float]:
    """Each value's median with its neighbours: one bad timing of an anchor is no drift."""
    padded = [values[0], *values, values[-1]]
    return [median(padded[i : i + 3]) for i in range(len(values))]


def _steady(row: Measurement, levels: Sequence[Level]) -> float:
    seconds = row.seconds or 0.0
    if not levels or not row.at:
        return seconds
    level = float(np.interp(_clock(row.at), [t for t, _ in levels], [v for _, v in levels]))
    return seconds / math.exp(level) if abs(level) > NOTICED else seconds


def _clock(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
