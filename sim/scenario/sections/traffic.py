"""Describes the traffic: arrivals with lengths, shared prefixes and sessions, or a recorded trace.

Times are in seconds, lengths in tokens.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from sim.scenario.clash import Clash, refuse
from sim.scenario.sections.arrivals import Arrivals
from sim.scenario.sections.classes import TrafficClassSettings, checked
from sim.scenario.sections.lengths import BothLengths, Lengths
from sim.scenario.sections.sessions import Sessions
from sim.scenario.sections.support import LimitedSection, Section
from sim.scenario.values.fields import (
    Count,
    Duration,
    File,
    Line,
    Nonnegative,
    Rate,
    Ratio,
    Tokens,
    between,
    trouble,
)

VARYING = ("ramp", "diurnal")
"""Arrivals whose rate follows a curve."""


class SharedPrefix(Section):
    """Prompts that begin alike, as with a system prompt."""

    tokens: Tokens = Field(
        description="Length of a prefix, tokens. It is a part of the prompt; a shorter prompt is "
        "its beginning. In sessions it stands before all else, in addition to prompt_tokens.",
        examples=[400],
    )
    groups: Count = Field(description="Number of different prefixes.", examples=[8], default=1)
    zipf: Annotated[Nonnegative, between(0, 10)] = Field(
        description="How unequally popular they are, as documents that are looked up: the k-th is "
        "drawn in proportion to 1/k to this power (Zipf's law). 0: all are equally likely.",
        examples=[1],
        default=0.0,
    )


class ColumnNames(Section):
    """The names of the columns of a trace."""

    arrival: Line = Field(description="Column of the arrivals: numbers, or dates.", examples=["ts"])
    prompt_tokens: Line = Field(description="Column of the prompt lengths.", examples=["in"])
    output_tokens: Line = Field(description="Column of the answer lengths.", examples=["out"])
    session: Line | None = Field(
        default=None, description="Column that names conversations; null: none.", examples=["user"]
    )
    priority: Line | None = Field(
        default=None,
        description="Column of priorities, of which lower ones go first; null: none.",
        examples=["rank"],
    )
    arrival_unit: Literal["s", "ms", "us", "ns"] = Field(
        default="s", description="Unit of arrivals that are numbers; seconds, as in most traces."
    )


class TraceSettings(Section):
    """Recorded requests, replayed."""

    path: File = Field(description="The file.", examples=["azure_conv.csv"])
    format: Literal[
        "auto",
        "azure",
        "burstgpt",
        "mooncake",
        "bailian",
        "aiperf",
        "llmservingsim",
        "vidur",
        "vllm",
        "csv",
    ] = Field(
        default="auto", description="Format of the file. auto: recognised by its column names."
    )
    columns: ColumnNames | None = Field(
        default=None,
        description="What the columns of the file are called, which is CSV or JSON lines. null: as "
        "the format has them.",
        examples=["{arrival: ts, arrival_unit: ms, prompt_tokens: in, output_tokens: out}"],
    )
    overlay: Ratio = Field(
        default=1.0,
        description="So many copies of the trace at once, evenly shifted in time: 3 is three times "
        "the users, whose bursts do not coincide; 2.5 keeps half of the requests of the last copy, "
        "0.5 half of those of the only one, chosen at random under the seed. 1: as recorded.",
        examples=[3],
    )
    time_scale: Ratio = Field(
        default=1.0,
        description="Every gap between arrivals is multiplied by it: 0.25 replays the same "
        "requests four times as fast, so that bursts get denser and shorter; 2 at half the rate. "
        "A fraction such as 1/3 is understood. 1: as recorded.",
    )
    rate: Rate | None = Field(
        default=None,
        description="Instead of time_scale: scale the gaps to this mean number of requests per "
        "second.",
        examples=[12],
    )
    busiest: Duration | None = Field(
        default=None,
        description="Use only the stretch of the recording, so long, in which most tokens arrive, "
        "of prompts and answers together: the busy hour of a day is 1h. null: all of it.",
        examples=["1h"],
    )
    limit: Count | None = Field(
        default=None,
        description="Use only this many requests from the start of the recording, or of its "
        "busiest stretch; null: all.",
    )
    spread: Duration | None = Field(
        default=None,
        description="Tick of the recording clock, s: each arrival moves on by a share of it, drawn "
        "uniformly under the seed. Mooncake's is 3 s. null: as recorded.",
        examples=["3s"],
    )

    @model_validator(mode="after")
    def _one_format(self) -> TraceSettings:
        if self.columns is not None and self.format != "auto":
            raise trouble("columns replaces format; give one or the other", "columns", "format")
        return self

    @model_validator(mode="after")
    def _one_pace(self) -> TraceSettings:
        if self.rate is not None and self.time_scale != 1.0:
            raise trouble("rate replaces time_scale; give one or the other", "time_scale", "rate")
        return self


class Workload(LimitedSection):
    """Either a trace, or arrivals with the lengths of prompts and answers."""

    arrivals: Arrivals | None = Field(
        default=None, description="When requests arrive.", examples=["{kind: poisson, rate: 6.0}"]
    )
    prompt_tokens: Lengths | None = Field(
        default=None,
        description="Input lengths; a whole number alone is that of all requests.",
        examples=["{kind: lognormal, mean: 800, p95: 2400, max: 6000}"],
    )
    output_tokens: Lengths | None = Field(
        default=None,
        description="Output lengths; a whole number alone is that of all requests.",
        examples=["{kind: lognormal, mean: 220, p95: 600, max: 1500}"],
    )
    lengths: BothLengths | None = Field(
        default=None,
        description="Instead of prompt_tokens and output_tokens: both together, from one file "
        "(joint), or of several kinds of requests, such as short and long ones (mixture).",
        examples=["{kind: joint, path: lengths.csv}"],
    )
    shared_prefix: SharedPrefix | None = Field(
        default=None,
        description="Tokens that prompts have in common, which a prefix cache computes once "
        "(kv_cache.enable_prefix_caching). null: none.",
        examples=["{tokens: 400, groups: 8}"],
    )
    sessions: Sessions | None = Field(
        default=None,
        description="Each arrival begins a conversation, whose turns send the history again; "
        "prompt_tokens are then what is new in a turn, and a client of a closed loop has one "
        "session after the other. null: every request stands alone.",
        examples=[
            "{turns: {kind: geometric, mean: 4}, think_time: {kind: lognormal, mean: 20s, cv: 1}}"
        ],
    )
    trace: TraceSettings | None = Field(
        default=None,
        description="Instead of arrivals and lengths.",
        examples=["{path: azure_conv.csv}"],
    )
    classes: tuple[TrafficClassSettings, ...] | None = Field(
        default=None,
        description="Kinds of requests, for scheduler.order priority and edf, and for results of "
        "each. Drawn by their shares, independently of arrivals and lengths. null: all are alike, "
        "unless the trace has a column `priority`.",
        examples=[
            "[{name: chat, share: 0.3, deadline: 500ms}, {name: batch, share: 0.7, priority: 1}]"
        ],
    )

    @field_validator("classes")
    @classmethod
    def _classes_together(
        cls, classes: tuple[TrafficClassSettings, ...] | None
    ) -> tuple[TrafficClassSettings, ...] | None:
        if classes is not None:
            checked(classes)
        return classes

    @model_validator(mode="after")
    def _classes_to_draw(self) -> Workload:
        if self.trace is None and self.classes is not None and self.classes[0].share is None:
            raise trouble(
                "the classes have no shares; only a trace with a column `priority` can do without",
                ("classes", 0),
            )
        return self

    @model_validator(mode="after")
    def _sessions_at_a_steady_rate(self) -> Workload:
        refuse(self, BY_CURVE)
        return self

    @model_validator(mode="after")
    def _trace_or_synthetic(self) -> Workload:
        names = ("arrivals", "prompt_tokens", "output_tokens", "lengths")
        given = [name for name in names if getattr(self, name) is not None]
        if self.trace is not None:
            others = ("shared_prefix", "sessions")
            given += [name for name in others if getattr(self, name) is not None]
            _replaces("a trace", given)
            return self
        if self.lengths is not None:
            _replaces("lengths", [name for name in given if name.endswith("_tokens")])
        needed = names[:1] if self.lengths is not None else names[:3]
        absent = [name for name in needed if name not in given]
        if absent:
            example = Workload.model_fields[absent[0]].examples or [""]
            message = f"{' and '.join(absent)} missing; for example `{absent[0]}: {example[0]}`"
            raise trouble(f"{message}, or a `trace` instead")
        return self


BY_CURVE: Clash[Workload] = Clash(
    "arrivals whose rate follows a curve",
    lambda w: w.sessions is not None and w.arrivals is not None and w.arrivals.kind in VARYING,
    "{arrivals.kind} arrivals with sessions are not simulated: later turns come after their "
    "answers, so that no curve says when requests arrive",
    "supported: poisson, gamma, constant, burst or closed",
    ("arrivals.kind", "sessions"),
)
"""The clash of sessions with a curve of arrivals."""


def _replaces(this: str, given: list[str]) -> None:
    """Refuse what is ``given`` together with ``this``."""
    if given:
        raise trouble(f"{this} replaces {' and '.join(given)}; give one or the other", given[0])
