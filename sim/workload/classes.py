"""Assigns each request to a class, by shares or by the priorities that a trace records.

Deadlines are in seconds after arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError
from sim.request import TrafficClass
from sim.rng import stream
from sim.workload.traffic import LengthChunk

if TYPE_CHECKING:
    from sim.scenario import Scenario
    from sim.workload.traces import Trace

MOST = 1000
"""Different priorities in a trace that can be reported one by one."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Classes that requests fall into independently of each other, each with its share of them."""

    classes: tuple[TrafficClass, ...]
    shares: tuple[float, ...]

    def draw(self, rng: np.random.Generator, size: int) -> list[TrafficClass]:
        """The classes of ``size`` requests."""
        drawn = np.searchsorted(np.cumsum(self.shares)[:-1], rng.random(size), side="right")
        return _named(self.classes, drawn)


@dataclass(frozen=True, slots=True)
class Labels:
    """The class of each request of a trace, in its order, and all classes there are."""

    classes: tuple[TrafficClass, ...] = ()
    column: list[TrafficClass] | None = None


def classified(lengths: Iterator[LengthChunk], mix: Mix, seed: int) -> Iterator[LengthChunk]:
    """The lengths with a class each, from a random stream of its own: with classes and
    without, arrivals and lengths are the same."""
    rng = stream(seed, "classes")
    for chunk in lengths:
        yield chunk._replace(classes=mix.draw(rng, len(chunk.prompt_tokens)))


def mix_of(scenario: Scenario) -> Mix | None:
    """The classes that the scenario wants drawn; None if there are none, or the trace says."""
    wanted = scenario.workload.classes
    if not wanted:
        return None
    shares = tuple(item.share for item in wanted if item.share is not None)
    return Mix(classes_of(scenario), shares) if shares else None


def labels_of(scenario: Scenario, trace: Trace, seed: int) -> Labels:
    """The class of each request of ``trace``: by the priority that it records, else drawn.

    A recorded priority without a class in the scenario is a class of its own if the scenario has
    none at all. UsageError where trace and scenario contradict each other.
    """
    mix, priorities = mix_of(scenario), trace.priorities
    if mix is not None:
        if priorities is not None:
            raise UsageError(
                "workload.classes: the trace has a column 'priority', which says which request is "
                "of which class; leave out the shares"
            )
        return Labels(mix.classes, mix.draw(stream(seed, "classes"), len(trace)))
    if priorities is None:
        if scenario.workload.classes:
            raise UsageError(
                "workload.classes: the trace has no column 'priority' that would say which request "
                "is of which class; give each class a share"
            )
        return Labels()
    known = np.unique(priorities).tolist()
    return _by_priority(classes_of(scenario) or _one_each(known, scenario), priorities, known)


def classes_of(scenario: Scenario) -> tuple[TrafficClass, ...]:
    """The classes of the scenario; their deadline is slo.ttft unless they say otherwise."""
    common = _common_deadline(scenario)
    return tuple(
        TrafficClass(
            index,
            item.name,
            item.priority,
            common if item.deadline is None else item.deadline,
            item.weight,
        )
        for index, item in enumerate(scenario.workload.classes or ())
    )


def _one_each(priorities: list[int], scenario: Scenario) -> tuple[TrafficClass, ...]:
    if len(priorities) > MOST:
        raise UsageError(
            f"the trace has {len(priorities):,} different priorities; at most {MOST:,} are possible"
        )
    deadline = _common_deadline(scenario)
    return tuple(
        TrafficClass(index, f"priority {priority}", priority, deadline)
        for index, priority in enumerate(priorities)
    )


def _by_priority(
    classes: tuple[TrafficClass, ...], priorities: NDArray[np.int64], known: list[int]
) -> Labels:
    """``known`` are the different ``priorities``, ascending."""
    by_priority = {item.priority: item.index for item in classes}
    strange = [priority for priority in known if priority not in by_priority]
    if strange:
        raise UsageError(
            f"workload.classes: no class has priority {strange[0]}, which the trace has; the "
            f"classes have {', '.join(map(str, sorted(by_priority)))}"
        )
    indices = np.array([by_priority[priority] for priority in known])
    return Labels(classes, _named(classes, indices[np.searchsorted(known, priorities)]))


def _common_deadline(scenario: Scenario) -> float:
    return math.inf if scenario.slo.ttft is None else scenario.slo.ttft


def _named(classes: Sequence[TrafficClass], indices: NDArray[np.int64]) -> list[TrafficClass]:
    return [classes[index] for index in indices.tolist()]
