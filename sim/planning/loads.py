"""What is the load of a scenario, and how is it set to another? Requests per second, or users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.planning.points import Settings
from sim.scenario import Scenario
from sim.workload import ClosedTraffic, build

Kind = Literal["rate", "concurrency"]
UNITS = {"rate": "requests/s", "concurrency": "users"}

SAMPLE = 20_000
"""Requests whose lengths stand for those of the traffic; more would not change their means."""


@dataclass(frozen=True)
class Traffic:
    """The requests of a scenario as columns: lengths in tokens and, where they come by the clock,
    how many arrive per second."""

    prompts: NDArray[np.int64]
    outputs: NDArray[np.int64]
    rate: float | None


def traffic_of(scenario: Scenario) -> Traffic:
    """The traffic under the scenario's own seed, at most ``SAMPLE`` requests of it if it is
    endless; TraceError for a file that cannot be read."""
    if scenario.workload.trace is None:
        scenario = scenario.override({"run.requests": SAMPLE, "run.warmup": "auto"})
    traffic = build(scenario, scenario.seed)
    times: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    if isinstance(traffic, ClosedTraffic):
        for lengths in traffic.lengths():
            prompts += lengths.prompt_tokens
            outputs += lengths.output_tokens
    else:
        for chunk in traffic.chunks():
            times += chunk.arrivals
            prompts += chunk.prompt_tokens
            outputs += chunk.output_tokens
    span = times[-1] - times[0] if times else 0.0
    return Traffic(np.array(prompts), np.array(outputs), (len(times) - 1) / span if span else None)


@dataclass(frozen=True)
class Axis:
    """The load of a scenario as one number that can be set; ``own`` is the scenario's own, None if
    it has none of this kind. ``factor`` is what multiplies whatever the scenario says of time."""

    scenario: Scenario
    kind: Kind
    own: float | None

    @property
    def unit(self) -> str:
        """In which the load is counted."""
        return UNITS[self.kind]

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are loads."""
        return self.kind == "concurrency"

    def settings(self, load: float) -> Settings:
        """What sets the scenario to ``load``; nothing at its own."""
        arrivals, trace = self.scenario.workload.arrivals, self.scenario.workload.trace
        if load == self.own:
            return {}
        if self.kind == "concurrency":
            think = arrivals.think_time if arrivals is not None and arrivals.kind == "closed" else 0
            users = {"kind": "closed", "concurrency": round(load), "think_time": think}
            return {"workload.arrivals": users}
        assert self.own is not None
        if trace is not None:
            scale = trace.time_scale * self.own / load
            return {"workload.trace.time_scale": float(f"{scale:.12g}")}  # 0.1, not 0.0999...
        assert arrivals is not None
        grown = load / self.own
        match arrivals.kind:
            case "ramp":
                return {
                    "workload.arrivals.rate": arrivals.rate * grown,
                    "workload.arrivals.final_rate": load,
                }
            case "diurnal":
                return {
                    "workload.arrivals.rate": arrivals.rate * grown,
                    "workload.arrivals.peak_rate": arrivals.peak_rate * grown,
                }
        return {"workload.arrivals.rate": load}


def axis_of(scenario: Scenario, kind: Kind, traffic: Traffic) -> Axis:
    """The axis along which the load of ``scenario`` is looked for.

    UsageError where the arrivals have no load of that kind. The rate of a ramp is the one at its
    end, that of a day its mean.
    """
    arrivals = scenario.workload.arrivals
    if kind == "concurrency":
        if arrivals is None:
            raise UsageError(
                "a trace says when requests come, so it has a rate, not a number of users; "
                "look for the rate, or draw its lengths (`lengths: {kind: joint, path: ...}`)"
            )
        own = float(arrivals.concurrency) if arrivals.kind == "closed" else None
        return Axis(scenario, kind, own)
    if arrivals is None:
        if traffic.rate is None:
            raise UsageError("all requests of the trace come at one time: it has no rate")
        return Axis(scenario, kind, traffic.rate)
    match arrivals.kind:
        case "poisson" | "gamma" | "constant":
            return Axis(scenario, kind, arrivals.rate)
        case "ramp":
            return Axis(scenario, kind, arrivals.final_rate)
        case "diurnal":
            return Axis(scenario, kind, (arrivals.rate + arrivals.peak_rate) / 2)
        case "burst":
            why = "all requests are there from the start"
        case "closed":
            why = "clients wait for their answers"
    raise UsageError(
        f"workload.arrivals: {why}, so there is no rate to look for; look for the concurrency, or "
        "give arrivals with a rate, such as poisson"
    )
