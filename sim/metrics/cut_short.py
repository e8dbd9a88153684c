"""Says of arrivals whose rate follows a curve whether a run ends before the curve does.

What such a run says is of the part of the curve that it has: of the first minutes of a day, not of
its peak. Times in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sim.metrics.long_enough import WHOLE
from sim.scenario import Scenario
from sim.scenario.arrivals import DiurnalArrivals, RampArrivals
from sim.units import show_time
from sim.workload.varying import Diurnal, Ramp

if TYPE_CHECKING:
    from sim.metrics.run_record import RunRecord


@dataclass(frozen=True, slots=True)
class Cut:
    """A run that ends ``end`` after its start, before the ``length`` of the ``curve`` has passed;
    ``missing`` is what it lacks, and ``remedy`` the settings that take it to the end of it."""

    end: float
    length: float
    curve: str
    missing: str
    has_peak: bool
    remedy: str

    @property
    def text(self) -> str:
        """As a sentence without its full stop, to stand within another."""
        return (
            f"the run ends after {show_time(self.end)} of a {self.curve} of "
            f"{show_time(self.length)}: {self.missing}"
        )

    @property
    def note(self) -> str:
        """As sentences of their own, with the remedy."""
        return f"{self.text[0].upper()}{self.text[1:]}. For a whole {self.curve}: {self.remedy}."


def cut_short(run: RunRecord) -> Cut | None:
    """How ``run`` was cut; None if it has all of its curve, or there is no curve."""
    horizon, sent = run.scenario.run.horizon, len(run.requests)
    if horizon is not None and sent != run.scenario.run.requests:
        return _cut(run.scenario, horizon)
    return _cut(run.scenario, float(run.requests["arrival"].max()) if sent else 0.0)


def foreseen_cut(scenario: Scenario) -> Cut | None:
    """How a run of ``scenario`` will be cut, on average; None if it has all of its curve."""
    law, run = scenario.workload.arrivals, scenario.run
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
    """When so many requests have come, on average, seconds after the start."""
    if isinstance(law, DiurnalArrivals):
        curve: Diurnal | Ramp = Diurnal(law.rate, law.peak_rate, law.period, _peak_at(law))
        length = law.period
    else:
        curve, length = Ramp(law.rate, law.final_rate, law.duration), law.duration
    times = np.linspace(0.0, length, 1025)
    return float(np.interp(requests, curve.expected(times), times))
