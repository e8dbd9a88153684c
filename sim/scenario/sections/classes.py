"""Describes the classes of requests in the traffic, and the deadline of each. Times in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from sim.scenario.sections.slo import TtftLimit
from sim.scenario.sections.support import Section
from sim.scenario.text.document import show
from sim.scenario.values.fields import Line, Positive, Priority, Share, trouble

ROUNDING = 1e-6
"""How far the shares of all classes may be from 1 in sum."""


class TrafficClassSettings(Section):
    """Requests that are treated alike; order and results distinguish them from others."""

    name: Line = Field(description="Name of the class in results.", examples=["interactive"])
    share: Share | None = Field(
        default=None,
        description="Share of all requests; those of all classes sum to 1. null, for all classes: "
        "the trace's own column `priority` says which request is of which class.",
        examples=[0.8],
    )
    model: Line | None = Field(
        default=None,
        description="The model that its requests ask for, as a pool names it, in a fleet that "
        "serves several. null: the scenario's.",
        examples=["llama-3.2-1b"],
    )
    priority: Priority = Field(
        default=0,
        description="For scheduler.order: priority, which serves lower values first. 0, as for "
        "requests to vLLM without one.",
    )
    deadline: TtftLimit | None = Field(
        default=None,
        description="When the first token is due, counted from the arrival, with its unit (500ms): "
        "for scheduler.order: edf, and for the attainment of the class. A bare number up to 10 is "
        "in seconds. null: slo.ttft.",
        examples=["500ms"],
    )
    weight: Positive = Field(
        default=1.0,
        description="For scheduler.order: fair. While two classes both have waiting requests, one "
        "of twice the weight gets twice the tokens.",
    )


def checked(classes: Sequence[TrafficClassSettings]) -> None:
    """Refuse, by raising at the entry to blame, classes that contradict each other."""
    if not classes:
        raise trouble("the list is empty; without classes write null, or nothing")
    for index, item in enumerate(classes):
        if item.name in [other.name for other in classes[:index]]:
            raise trouble(f"a second class is called {show(item.name)}", (index, "name"))
    absent = [index for index, item in enumerate(classes) if item.share is None]
    if absent and len(absent) < len(classes):
        raise trouble("this class has no share, but others have; give all, or none", absent[0])
    total = math.fsum(item.share for item in classes if item.share is not None)
    if not absent and abs(total - 1) > ROUNDING:
        raise trouble(f"the shares sum to {total:.7g}, not to 1")
    priorities = [item.priority for item in classes]
    if absent and len(set(priorities)) < len(priorities):
        again = next(i for i, p in enumerate(priorities) if p in priorities[:i])
        raise trouble(
            f"a second class has priority {priorities[again]}; without shares classes are "
            "distinguished by their priority",
            (again, "priority"),
            again,
        )
