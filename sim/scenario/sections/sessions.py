"""Describes conversations: how many turns they have, what lies between, and what is sent again.

Times are in seconds, lengths in tokens.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import (
    Count,
    Duration,
    Positive,
    Share,
    Switch,
    Wait,
    between,
    trouble,
)
from sim.scenario.values.readers import ConstantLaw

MOST_TURNS = 10_000
"""Turns of a session, or requests of a turn, on average and at most: more than any agent takes."""

Several = Annotated[Count, between(1, MOST_TURNS)]


class FixedCount(Section):
    """One number for all sessions."""

    kind: Literal["fixed"]
    value: Several = Field(description="How many.", examples=[4])


class UniformCount(Section):
    """Any number from low to high, both included, equally often."""

    kind: Literal["uniform"]
    low: Several = Field(description="The fewest.", examples=[1])
    high: Several = Field(description="The most.", examples=[4])

    @model_validator(mode="after")
    def _ordered(self) -> UniformCount:
        if self.low > self.high:
            raise trouble(f"low ({self.low:,}) is more than high ({self.high:,})", "low", "high")
        return self


class GeometricCount(Section):
    """One, and then each time another one with the same chance: many few, a few many."""

    kind: Literal["geometric"]
    mean: Annotated[Positive, between(1, MOST_TURNS)] = Field(
        description="Mean number, 1 or more.", examples=[4]
    )


Counts = Annotated[
    FixedCount | UniformCount | GeometricCount, Field(discriminator="kind"), ConstantLaw(FixedCount)
]


class FixedDelay(Section):
    """One delay for all turns."""

    kind: Literal["fixed"]
    value: Wait = Field(description="Seconds.", examples=["2s"])


class ExponentialDelay(Section):
    """Times whose end is as likely at any moment."""

    kind: Literal["exponential"]
    mean: Duration = Field(description="Mean, s.", examples=["20s"])


class LognormalDelay(Section):
    """Many short times, a few very long: how people read and type."""

    kind: Literal["lognormal"]
    mean: Duration = Field(description="Mean, s.", examples=["20s"])
    cv: Annotated[Positive, between(1e-3, 1e2)] = Field(
        description="Standard deviation over mean.", examples=[1]
    )


Delays = Annotated[
    FixedDelay | ExponentialDelay | LognormalDelay,
    Field(discriminator="kind"),
    ConstantLaw(FixedDelay),
]


class Sessions(Section):
    """Conversations, of people or of agents: each arrival begins one, each turn sends the whole
    history again."""

    turns: Counts = Field(
        description="Turns of a session: a prompt and its answer each, whether a person or a tool "
        "wrote what is new in the prompt. Drawn for each session.",
        examples=["{kind: geometric, mean: 4}"],
    )
    think_time: Delays | None = Field(
        default=None,
        description="Time from an answer to the next turn when a person reads and writes. null: "
        "there are no such turns; if tool_delay is null too, the next turn comes at once.",
        examples=["{kind: lognormal, mean: 20s, cv: 1}"],
    )
    tool_delay: Delays | None = Field(
        default=None,
        description="Time from an answer to the next turn when the answer calls a tool whose "
        "result is the new text. null: there are no such turns; if think_time is "
        "null, all turns after the first are of this kind.",
        examples=["{kind: exponential, mean: 2s}"],
    )
    tool_share: Share | None = Field(
        default=None,
        description="With both think_time and tool_delay: the chance that a turn, after the first, "
        "follows a tool and not a person. null: there is only one kind.",
        examples=[0.8],
    )
    branches: Counts | None = Field(
        default=None,
        description="Requests of a turn: an agent and its sub-agents. Each has the history and a "
        "new text of its own, all are sent at once, and the next turn waits for all. The first one "
        "goes on: its prompt and answer are the history of the next turn, to whose prompt the "
        "answers of the others are added. null: one.",
        examples=["{kind: uniform, low: 1, high: 4}"],
    )
    keep_answer: Switch = Field(
        default=True,
        description="Whether the history includes the answers. Off: only the prompts are sent "
        "again, as with the thoughts of reasoning models.",
    )

    @model_validator(mode="after")
    def _kinds_of_turns(self) -> Sessions:
        both = self.think_time is not None and self.tool_delay is not None
        if both and self.tool_share is None:
            raise trouble(
                "think_time and tool_delay are both given; say which share of the turns follows a "
                "tool: `tool_share: 0.8`",
                "tool_delay",
            )
        if not both and self.tool_share is not None:
            raise trouble(
                "tool_share divides turns among think_time and tool_delay; give both of them",
                "tool_share",
            )
        return self
