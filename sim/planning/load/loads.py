"""Provides the load of a scenario as a number that can be set: requests per second, or users.

The load of a trace is set in one of two ways. Its time is compressed, so that bursts get denser and
shorter, or copies of it are overlaid, which is more users with bursts as they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.cost.measured_experts import experts_note
from sim.deployments import deployment_of
from sim.errors import UsageError
from sim.metrics.record.cut_short import foreseen_cut
from sim.metrics.record.recorded import STEADY
from sim.planning.points.points import Settings
from sim.request import Prefix
from sim.scenario import Scenario
from sim.scenario.sections.traffic import TraceSettings
from sim.units import show_load, show_time
from sim.workload import (
    ClosedTraffic,
    LengthChunk,
    OpenTraffic,
    SessionTraffic,
    TrafficChunk,
    build,
)

Kind = Literal["rate", "concurrency"]
Scale = Literal["compress", "overlay"]
UNITS = {"rate": "requests/s", "concurrency": "users"}

SCALING = {
    "compress": "A higher load is the same trace in less time: its bursts get denser and shorter. "
    "For more users, with bursts as they were recorded: --scale overlay.",
    "overlay": "A higher load is more copies of the trace, shifted in time and overlaid: more "
    "users, with bursts as they were recorded. For the same trace in less time: --scale compress.",
}
"""The meaning of a trace at another load, and the other choice."""

SAMPLE = 20_000
"""Requests whose lengths stand for those of the traffic; more would not change their means."""

ENDLESS = (*STEADY, "closed")
"""Arrivals that go on as they are, so that a longer run asks the same question."""


@dataclass(frozen=True)
class Traffic:
    """The requests of a scenario as columns: lengths in tokens, how much of each prompt a prefix
    cache that never fills would have, and, where they come by the clock, how many arrive per
    second; what a reader of results should know of them; and how many requests a session has on
    average, None where there are none, and how long it is not waiting for answers (s)."""

    prompts: NDArray[np.int64]
    outputs: NDArray[np.int64]
    found: NDArray[np.int64]
    rate: float | None
    notes: tuple[str, ...] = ()
    per_session: float | None = None
    pauses: float = 0.0

    def taken(self, rows: NDArray[np.bool_]) -> Traffic:
        """The requests for which ``rows`` is true."""
        return replace(
            self, prompts=self.prompts[rows], outputs=self.outputs[rows], found=self.found[rows]
        )


def traffic_of(scenario: Scenario) -> Traffic:
    """The traffic under the scenario's own seed, at most ``SAMPLE`` requests of it if it is
    endless; TraceError for a file that cannot be read."""
    if scenario.workload.trace is None:
        scenario = scenario.override({"run.requests": SAMPLE, "run.warmup": "auto"})
    traffic = build(scenario, scenario.seed)
    if isinstance(traffic, SessionTraffic):
        return _of_sessions(scenario, traffic)
    times: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    prefixes: list[Prefix] = []
    chunks: Iterator[LengthChunk | TrafficChunk]
    chunks = traffic.lengths() if isinstance(traffic, ClosedTraffic) else traffic.chunks()
    for chunk in chunks:
        if isinstance(chunk, TrafficChunk):
            times += chunk.arrivals
        prompts += chunk.prompt_tokens
        outputs += chunk.output_tokens
        prefixes += chunk.prefixes or [()] * len(chunk.prompt_tokens)
    span = times[-1] - times[0] if times else 0.0
    rate = (len(times) - 1) / span if span else None
    notes = traffic.notes if isinstance(traffic, OpenTraffic) else ()
    caches = all(pool.kv_cache.enable_prefix_caching for pool in scenario.pools)
    found = _found(prompts, prefixes) if caches else np.zeros(len(prompts), dtype=np.int64)
    return Traffic(np.array(prompts), np.array(outputs), found, rate, notes)


def _of_sessions(scenario: Scenario, traffic: SessionTraffic) -> Traffic:
    """The requests of whole sessions, one session after the other."""
    caches = all(pool.kv_cache.enable_prefix_caching for pool in scenario.pools)
    prompts, outputs, found, sessions, pauses = [], [], [], 0, 0.0
    known: set[int] = set()  # texts before the first one of a session
    for session in traffic.first():
        sessions += 1
        new = {text for text, _ in session.prefix} - known
        for number, turn in enumerate(session.turns):
            pauses += turn.delay
            history = 0 if new and not number else turn.history
            for prompt, output in turn.requests:
                prompts.append(prompt)
                outputs.append(output)
                found.append(min(history, prompt - 1) if caches else 0)
        known |= new
    rate = sessions_rate(scenario)
    return Traffic(
        np.array(prompts),
        np.array(outputs),
        np.array(found, dtype=np.int64),
        None if rate is None else rate * len(prompts) / sessions,
        tuple(traffic.notes),
        len(prompts) / sessions,
        pauses / sessions,
    )


def sessions_rate(scenario: Scenario) -> float | None:
    """Sessions that start per second; None where no rate says so."""
    arrivals = scenario.workload.arrivals
    if arrivals is None or arrivals.kind not in ("poisson", "gamma", "constant"):
        return None
    return arrivals.rate


def _found(prompts: Sequence[int], prefixes: Sequence[Prefix]) -> NDArray[np.int64]:
    """Tokens of each prompt that earlier ones begin with too; at least one is left to compute."""
    known: dict[int, int] = {}  # where each text ends, as far as it was seen
    found = []
    for prompt, prefix in zip(prompts, prefixes, strict=True):
        longest = 0
        for text, end in prefix:
            longest = max(longest, min(end, known.get(text, 0)))
            known[text] = max(end, known.get(text, 0))
        found.append(min(longest, prompt - 1))
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True)
class LoadAxis:
    """The load of a scenario as one number that can be set; ``own`` is the scenario's own, None if
    it has none of this kind. ``scale`` says how a trace gets another load. Of sessions, which have
    ``per_session`` requests each on average, it is the rate of their requests."""

    scenario: Scenario
    kind: Kind
    own: float | None
    scale: Scale = "compress"
    per_session: float = 1.0

    @property
    def unit(self) -> str:
        """In which the load is counted."""
        return UNITS[self.kind]

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are loads."""
        return self.kind == "concurrency"

    @property
    def overlays(self) -> bool:
        """Whether other loads are more or fewer copies of a trace."""
        return self.scenario.workload.trace is not None and self.scale == "overlay"

    @property
    def scaling(self) -> dict[str, str] | None:
        """How the trace gets another load, as plain data; None where there is no trace."""
        if self.scenario.workload.trace is None:
            return None
        return {"how": self.scale, "text": SCALING[self.scale]}

    def settings(self, load: float) -> Settings:
        """Settings for ``load``; empty at the scenario's own."""
        arrivals, trace = self.scenario.workload.arrivals, self.scenario.workload.trace
        if load == self.own:
            return {}
        if self.kind == "concurrency":
            think = arrivals.think_time if arrivals is not None and arrivals.kind == "closed" else 0
            users = {"kind": "closed", "concurrency": round(load), "think_time": think}
            return {"workload.arrivals": users}
        assert self.own is not None
        if trace is not None:
            return self._overlaid(trace, load) if self.overlays else self._paced(trace, load)
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
        return {"workload.arrivals.rate": load / self.per_session}

    def session_note(self, load: float) -> list[str]:
        """The note on ``load`` in sessions; empty where there are none."""
        if self.scenario.workload.sessions is None or self.whole:
            return []
        return [
            f"A session has {self.per_session:.3g} requests on average, so that {show_load(load)} "
            f"requests/s are {show_load(load / self.per_session, 3)} sessions/s "
            "(workload.arrivals.rate)."
        ]

    def _paced(self, trace: TraceSettings, load: float) -> Settings:
        """The trace with its gaps scaled."""
        assert self.own is not None
        if trace.rate is not None:
            return {"workload.trace.rate": _rounded(trace.rate * load / self.own)}
        return {"workload.trace.time_scale": _rounded(trace.time_scale * self.own / load)}

    def _overlaid(self, trace: TraceSettings, load: float) -> Settings:
        """More or fewer copies of what is sent of the trace, at the pace that it has."""
        assert self.own is not None
        settings: dict[str, object] = {
            "workload.trace.overlay": _rounded(trace.overlay * load / self.own)
        }
        if trace.rate is not None:
            settings["workload.trace.rate"] = _rounded(trace.rate * load / self.own)
        sent = self.scenario.run.requests
        if sent is not None:  # all copies are of the part that is sent
            settings["workload.trace.limit"] = min(sent, trace.limit or sent)
            settings["run.requests"] = None
        return settings


def check_copies(scenario: Scenario, scale: Scale) -> None:
    """UsageError where ``scale`` would overlay more copies of a trace whose copies are cut."""
    trace = scenario.workload.trace
    cut = trace is not None and trace.overlay != 1 and scenario.run.requests is not None
    if cut and scale == "overlay":
        raise UsageError(
            "--scale overlay: run.requests cuts copies that the scenario overlays; cut the "
            "recording instead (workload.trace.limit)"
        )


def check_whole_curve(scenario: Scenario) -> None:
    """UsageError where a run would end before the curve of its rate does: what it holds would be
    the load of a part without the peak, say."""
    cut = foreseen_cut(scenario)
    if cut is not None:
        raise UsageError(
            f"{cut.text}, so that the load which it holds says nothing of the whole {cut.curve}; "
            f"for a whole {cut.curve} set {cut.remedy}"
        )


def further_notes(scenario: Scenario, played: int | None = None) -> list[str]:
    """Notes on every load of ``scenario``: the estimates in its model, that a horizon cuts its
    runs, and that ``run.requests`` is less than the ``played`` requests of its runs."""
    deployments = [deployment_of(scenario, pool) for pool in scenario.pools]
    layers = [group for each in deployments for group in each.model.layers]
    parts = (part for group in layers for part in (group.attention, group.mlp))
    spread = (each.node_note for each in deployments)
    told = [*spread, *map(experts_note, deployments), *(part.left_out for part in parts)]
    notes = list(dict.fromkeys(note for note in told if note is not None))
    run = scenario.run
    if run.horizon is not None:
        notes.append(
            f"Every run ends after {show_time(run.horizon)} (run.horizon): requests that are not "
            "finished by then count as beyond the limits, at any load."
        )
    if played is not None and set_aside(scenario, played):
        notes.append(
            f"run.requests={run.requests} is set aside: so few say little of a load near the "
            f"capacity. Runs of {played:,} requests or more, in which the batches are exchanged "
            "several times, decide."
        )
    return notes


def set_aside(scenario: Scenario, played: int) -> bool:
    """Whether ``run.requests`` is less than the ``played`` requests of its runs."""
    return scenario.workload.trace is None and played > (scenario.run.requests or played)


def as_played(given: Sequence[str], scenario: Scenario, played: int) -> list[str]:
    """The overrides ``given`` with the ``played`` requests where ``run.requests`` is set aside, so
    that a run repeats what was found."""
    if not set_aside(scenario, played):
        return list(given)
    kept = [text for text in given if text.partition("=")[0] != "run.requests"]
    return [*kept, f"run.requests={played}"]


def _rounded(value: float) -> float:
    return float(f"{value:.12g}")  # 0.1, not 0.0999...


def axis_of(
    scenario: Scenario, kind: Kind, traffic: Traffic, scale: Scale = "compress"
) -> LoadAxis:
    """The axis along which the load of ``scenario`` is looked for; ``scale`` is for traces alone.

    UsageError where the arrivals have no load of that kind. The rate of a ramp is the one at its
    end, that of a day its mean.
    """
    arrivals = scenario.workload.arrivals
    if kind == "concurrency":
        if arrivals is None:
            raise UsageError(
                "a trace says when requests come, so it has a rate, not a number of users; look "
                "for the rate (`--max rate`), or draw its lengths (`lengths: {kind: joint, path: "
                "...}`)"
            )
        own = float(arrivals.concurrency) if arrivals.kind == "closed" else None
        return LoadAxis(scenario, kind, own)
    if arrivals is None:
        if traffic.rate is None:
            raise UsageError("all requests of the trace come at one time: it has no rate")
        check_copies(scenario, scale)
        return LoadAxis(scenario, kind, traffic.rate, scale)
    match arrivals.kind:
        case "poisson" | "gamma" | "constant":
            many = traffic.per_session or 1.0
            return LoadAxis(scenario, kind, arrivals.rate * many, per_session=many)
        case "ramp":
            return LoadAxis(scenario, kind, arrivals.final_rate)
        case "diurnal":
            return LoadAxis(scenario, kind, (arrivals.rate + arrivals.peak_rate) / 2)
        case "burst":
            why = "all requests are there from the start"
        case "closed":
            why = "clients wait for their answers"
    raise UsageError(
        f"workload.arrivals: {why}, so there is no rate to look for; look for the highest number "
        "of users (`--max concurrency`), or give arrivals with a rate, such as poisson"
    )


def goes_on(axis: LoadAxis) -> bool:
    """Whether longer runs have more of the same traffic."""
    scenario = axis.scenario
    arrivals = scenario.workload.arrivals
    steady = axis.whole or (arrivals is not None and arrivals.kind in ENDLESS)
    made_up = scenario.workload.trace is None and scenario.run.requests is not None
    return steady and made_up and scenario.run.horizon is None
