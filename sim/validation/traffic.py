"""Sends the requests of an observed run once more.

At the times at which they came, with the lengths that they had; the clients of a closed loop wait
for the simulator's answers, as they waited for the engine's. Seconds and tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from sim.errors import UsageError
from sim.request import TrafficClass
from sim.scenario import Scenario
from sim.validation.observed import ObservedRun
from sim.workload import Chunk, ClosedTraffic, LengthChunk, OpenTraffic, build

_PRIORITY = re.compile(r"priority (\d+)")
"""What a class is called that only the column of a trace has made."""


def observed_traffic(run: ObservedRun, scenario: Scenario) -> OpenTraffic | ClosedTraffic:
    """The requests of ``run``, ready to be simulated; ``scenario`` says how their classes rank.

    UsageError for a class that neither the scenario nor a trace could have named.
    """
    if run.summary_only:
        return build(scenario, scenario.seed)
    prompts = _lengths(run, "prompt_tokens")
    outputs = _lengths(run, "output_tokens")
    classes, members = _classes(run, scenario)
    arrivals = run.scenario.workload.arrivals
    if arrivals is not None and arrivals.kind == "closed":
        column = LengthChunk(prompts, outputs, members)
        return ClosedTraffic(
            len(prompts), arrivals.concurrency, arrivals.think_time, iter([column]), classes
        )
    times = run.requests["arrival_s"].tolist()
    return OpenTraffic(len(times), iter([Chunk(times, prompts, outputs, members)]), classes=classes)


def _lengths(run: ObservedRun, name: str) -> list[int]:
    """A request that failed may have got no token; sent again it wants one at least."""
    found: list[int] = run.requests[name].clip(lower=1).astype(int).tolist()
    return found


def _classes(
    run: ObservedRun, scenario: Scenario
) -> tuple[Sequence[TrafficClass], list[TrafficClass] | None]:
    """All classes, and that of each request; None where the traffic has none."""
    if "class" not in run.requests or run.requests["class"].isna().any():
        return (), None
    names: list[str] = run.requests["class"].astype(str).tolist()
    known = {name: _class(scenario, index, name) for index, name in enumerate(dict.fromkeys(names))}
    return tuple(known.values()), [known[name] for name in names]


def _class(scenario: Scenario, index: int, name: str) -> TrafficClass:
    common = math.inf if scenario.slo.ttft is None else scenario.slo.ttft
    for item in scenario.workload.classes or ():
        if item.name == name:
            deadline = common if item.deadline is None else item.deadline
            return TrafficClass(index, name, item.priority, deadline)
    if found := _PRIORITY.fullmatch(name):
        return TrafficClass(index, name, int(found[1]), common)
    raise UsageError(f"the observed requests are of class {name!r}, which the scenario lacks")
