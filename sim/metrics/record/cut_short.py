"""Says of arrivals whose rate follows a curve, or a trace, whether a run ends before they do.

What such a run says is of the part that it has: of the first minutes of a day, not of its peak.
Times in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.metrics.record.recorded import Recorded
from sim.scenario import Scenario
from sim.scenario.sections.arrivals import DiurnalArrivals, RampArrivals
from sim.units import show_time
from sim.workload import OpenTraffic, build
from sim.workload.varying import Diurnal, Ramp

TENTH = 0.1
"""The share of its traffic, or of the busiest stretch, that a run may lack and still count as
whole: the counts of equal stretches, and how long as many requests take to come, differ by
chance."""

WHOLE = 1 - TENTH

MINUTE = 60.0

WINDOWS = {MINUTE: "minutes", 10.0: "10 s stretches", 1.0: "seconds"}
"""Stretches over which the load of a trace is averaged. A minute, because that is what monitoring
of real services shows, and longer than most requests stay: more than the capacity in it is a queue
that grows, not a batch that fills. Shorter ones are for shorter traces, and for bursts."""

BUSIEST = {MINUTE: "minute", 10.0: "10 s", 1.0: "second"}
"""The names of the busiest stretches, by length (s)."""

LEAST = 10
"""Stretches that a run must have at least; the busiest of fewer says little more than the mean."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A run that ends ``end`` after its start, before the ``length`` of the ``curve`` (a cycle, a
    ramp, a trace) has passed; ``missing`` is what it lacks, and ``remedy`` the settings that take
    it to the end of it. ``has_peak``: the busiest part is in it."""

    end: float
    length: float
    curve: str
    missing: str
    has_peak: bool
    remedy: str

    @property
    def text(self) -> str:
        """The sentence without its full stop, to stand within another."""
        return (
            f"the run ends after {show_time(self.end)} of a {self.curve} of "
            f"{show_time(self.length)}: {self.missing}"
        )

    @property
    def note(self) -> str:
        """The sentences of a note, with the remedy."""
        return f"{self.text[0].upper()}{self.text[1:]}. For a whole {self.curve}: {self.remedy}."

    @property
    def part(self) -> str:
        """The part that a run has.

        >>> Cut(60, 7200, "cycle", "its peak at 1 h is not in it", False, "run.horizon=7200").part
        'the first 60 s of a cycle of 2 h'
        """
        return f"the first {show_time(self.end)} of a {self.curve} of {show_time(self.length)}"

    def document(self) -> dict[str, Any]:
        """The cut as plain data."""
        return {"part": self.part, "note": self.note, "has_peak": self.has_peak}


def cut_short(run: Recorded) -> Cut | None:
    """How ``run`` was cut; None if it has all of its curve, or there is no curve. Of a trace, only
    what ``run.horizon`` or an interrupt cuts off counts: ``run.requests`` chooses a part of it."""
    horizon, sent = run.scenario.run.horizon, len(run.requests)
    if run.scenario.workload.trace is not None:
        if run.observed or sent >= run.offered:
            return None
        return _cut_trace(run.scenario, min(run.end, math.inf if horizon is None else horizon))
    if horizon is not None and sent != run.scenario.run.requests:
        return _cut(run.scenario, horizon)
    return _cut(run.scenario, float(run.requests["arrival"].max()) if sent else 0.0)


def foreseen_cut(scenario: Scenario) -> Cut | None:
    """How a run of ``scenario`` will be cut, on average; None if it has all of its curve."""
    law, run = scenario.workload.arrivals, scenario.run
    if scenario.workload.trace is not None and run.horizon is not None:
        return _cut_trace(scenario, run.horizon)
    if not isinstance(law, DiurnalArrivals | RampArrivals):
        return None
    end = math.inf if run.horizon is None else run.horizon
    if run.requests is not None and run.requests < WHOLE * requests_of_curve(law):
        end = min(end, _when(law, run.requests))
    return _cut(scenario, end)


def requests_of_curve(law: DiurnalArrivals | RampArrivals) -> int:
    """Requests that come in a whole curve, on average."""
    if isinstance(law, DiurnalArrivals):
        return math.ceil((law.rate + law.peak_rate) / 2 * law.period)
    return math.ceil((law.rate + law.final_rate) / 2 * law.duration)


def _cut(scenario: Scenario, end: float) -> Cut | None:
    law = scenario.workload.arrivals
    if not isinstance(law, DiurnalArrivals | RampArrivals):
        return None
    day = isinstance(law, DiurnalArrivals)
    length = law.period if isinstance(law, DiurnalArrivals) else law.duration
    if end >= WHOLE * length:
        return None
    if isinstance(law, DiurnalArrivals):
        peak = _peak_at(law) % law.period
        has_peak = peak < end
        missing = (
            "not all of its rates are in it"
            if has_peak
            else f"its peak at {show_time(peak)} is not in it"
        )
    else:
        has_peak = law.rate >= law.final_rate
        missing = f"the {law.final_rate:g} requests/s at its end are not in it"
    curve = "cycle" if day else "ramp"
    return Cut(end, length, curve, missing, has_peak, _remedy(scenario, law, length))


def _cut_trace(scenario: Scenario, end: float) -> Cut | None:
    """How a run of a trace that ends at ``end`` is cut; None if it has nearly all of it, and what
    is as busy as the rest."""
    traffic = build(scenario, scenario.seed)
    assert isinstance(traffic, OpenTraffic)
    times = np.concatenate([np.array(chunk.arrivals) for chunk in traffic.chunks()])
    length, sent = float(times[-1]), int(np.searchsorted(times, end, side="right"))
    if sent == len(times):
        return None
    window = next((w for w in WINDOWS if LEAST * w <= length), None)
    missing, has_peak = f"{len(times) - sent:,} of its {len(times):,} requests are not in it", True
    if window is not None:
        counts = np.searchsorted(times, times + window) - np.arange(len(times))
        busiest = int(np.argmax(counts))
        seen = int(counts[: max(0, int(np.searchsorted(times, end - window)))].max(initial=0))
        has_peak = bool(seen >= WHOLE * counts[busiest])
        if not has_peak:
            at = show_time(float(times[busiest]))
            missing = f"its busiest {BUSIEST[window]}, at {at}, is not in it"
    if has_peak and end >= WHOLE * length:
        return None
    return Cut(end, length, "trace", missing, has_peak, "run.horizon=null")


def _remedy(scenario: Scenario, law: DiurnalArrivals | RampArrivals, length: float) -> str:
    """The settings with which a run has all of its curve."""
    run, wanted, found = scenario.run, requests_of_curve(law), []
    if run.requests is not None and run.requests < wanted:
        found.append(f"run.requests={wanted}")
    if run.horizon is not None and run.horizon < length:
        found.append(f"run.horizon={length:.12g}")
    return " and ".join(found) or "a run that is not interrupted"


def _peak_at(law: DiurnalArrivals) -> float:
    return law.period / 2 if law.peak_at is None else law.peak_at


def _when(law: DiurnalArrivals | RampArrivals, requests: int) -> float:
    """Seconds after the start until that many requests have arrived, on average."""
    if isinstance(law, DiurnalArrivals):
        curve: Diurnal | Ramp = Diurnal(law.rate, law.peak_rate, law.period, _peak_at(law))
        length = law.period
    else:
        curve, length = Ramp(law.rate, law.final_rate, law.duration), law.duration
    times = np.linspace(0.0, length, 1025)
    return float(np.interp(requests, curve.expected(times), times))
