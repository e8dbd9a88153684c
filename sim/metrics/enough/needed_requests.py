"""Says with which settings a run has as many requests as would decide something.

More requests (``run.requests``) do not come where ``run.horizon`` ends the run first, nor where a
trace has no more. Times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sim.metrics.latency.intervals import rounded_up
from sim.metrics.record.cut_short import requests_of_curve
from sim.metrics.record.run_record import RunRecord
from sim.scenario.sections.arrivals import ClosedArrivals, DiurnalArrivals, RampArrivals

MANY = 1_000_000
"""Requests beyond which the number that would decide is not worth stating: it is an estimate from
how near a share is to its target, which chance moves too."""


def reach(run: RunRecord) -> dict[str, Any] | None:
    """The facts of a run for ``reach_text``; None where ``run.requests`` alone sets how many
    requests there are."""
    scenario = run.scenario
    if scenario.workload.trace is not None:
        sent = len(run.requests)
        if sent == scenario.run.requests or run.observed:
            return None
        horizon = scenario.run.horizon if sent < run.offered else None
        return {"trace": run.offered, "horizon": horizon, "requests": None}
    horizon, law = scenario.run.horizon, scenario.workload.arrivals
    if horizon is None or law is None:
        return None
    return {
        "trace": None,
        "horizon": horizon,
        "requests": scenario.run.requests,
        **_pace(run, law, horizon),
    }


def _pace(run: RunRecord, law: Any, horizon: float) -> dict[str, float | None]:
    """Requests per second, and the length of the curve that they follow."""
    if isinstance(law, DiurnalArrivals | RampArrivals):
        length = law.period if isinstance(law, DiurnalArrivals) else law.duration
        return {"rate": requests_of_curve(law) / length, "curve": length}
    rate = getattr(law, "rate", None)
    if isinstance(law, ClosedArrivals):
        rate = len(run.requests) / horizon
    return {"rate": rate, "curve": None}


def reach_text(found: Mapping[str, Any] | None, requests: int) -> str:
    """How to come to that many ``requests``, in brackets and with a blank before them; empty where
    ``run.requests`` does it.

    >>> law = {"trace": None, "horizon": 60.0, "requests": 5000, "rate": 4.0, "curve": None}
    >>> reach_text(law, 23_000)
    ' (run.requests=23000 and run.horizon=5800)'
    >>> reach_text({**law, "requests": 40_000, "curve": 7200.0}, 23_000)
    ' (run.horizon=7200)'
    >>> reach_text({**law, "horizon": 1e6}, 23_000), reach_text(None, 23_000)
    ('', '')
    >>> reach_text({"trace": 6155, "horizon": 60.0, "requests": None}, 19_000)
    ' (run.horizon=null for all 6,155 of the trace, which has no more)'
    """
    if found is None:
        return ""
    if found["trace"] is not None:
        return _of_trace(found["trace"], requests, cut=found["horizon"] is not None)
    rate = found["rate"]
    if not rate or found["horizon"] * rate >= requests:
        return ""
    wanted = requests / rate
    curve = found["curve"]
    horizon = rounded_up(wanted) if curve is None else math.ceil(wanted / curve) * curve
    more = [f"run.requests={requests}"] if (found["requests"] or 0) < requests else []
    return f" ({' and '.join([*more, f'run.horizon={horizon:.12g}'])})"


def simulate_more(found: Mapping[str, Any] | None, requests: int) -> str:
    """The advice to simulate that many ``requests``, with how to come to them."""
    return f"Simulate {requests:,} requests or more{reach_text(found, requests)}."


def come_with(found: Mapping[str, Any] | None, requests: int) -> str:
    """A sentence, with a blank before it, on the settings that bring that many ``requests`` where
    ``run.horizon`` keeps them out; empty elsewhere."""
    how = reach_text(found, requests)
    if not how or found is None or found["trace"] is not None:
        return ""
    return f" They come with {how.strip(' ()')}."


def _of_trace(trace: int, requests: int, *, cut: bool) -> str:
    if not cut:
        return f" (the trace has no more than {trace:,})" if requests > trace else ""
    whole = "run.horizon=null"
    if requests <= trace:
        return f" ({whole})"
    return f" ({whole} for all {trace:,} of the trace, which has no more)"
