"""What is asked of the deployment: when requests arrive, how long they are, or a recorded trace.

Rates are per second, times in seconds, lengths in tokens.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from sim.scenario.classes import TrafficClass, checked
from sim.scenario.fields import (
    LONGEST_TIME,
    Count,
    Duration,
    Factor,
    File,
    Line,
    Mean,
    Positive,
    Rate,
    Tokens,
    Wait,
    between,
    located,
    trouble,
)
from sim.scenario.support import LimitedSection, Section

_Z95 = NormalDist().inv_cdf(0.95)
LARGEST_P95_TO_MEAN = math.exp(_Z95**2 / 2)
"""No lognormal has a 95th percentile of more than 3.87 means: the ratio is exp(1.645 s - s^2/2)."""


class PoissonArrivals(Section):
    """Independent users: exponential gaps."""

    kind: Literal["poisson"]
    rate: Rate = Field(description="Mean requests per second.", examples=[6.0])


class GammaArrivals(Section):
    """Gaps of a chosen burstiness: a coefficient of variation of 1 is Poisson, more is bursty."""

    kind: Literal["gamma"]
    rate: Rate = Field(description="Mean requests per second.", examples=[6.0])
    cv: Annotated[Positive, between(1e-4, 1e3)] = Field(
        description="Standard deviation of the gaps over their mean.", examples=[2]
    )


class ConstantArrivals(Section):
    """Equal gaps."""

    kind: Literal["constant"]
    rate: Rate = Field(description="Requests per second.", examples=[6.0])


class BurstArrivals(Section):
    """Everything at time 0: an offline batch."""

    kind: Literal["burst"]


class ClosedArrivals(Section):
    """A fixed number of users, each of whom waits for the answer before asking again."""

    kind: Literal["closed"]
    concurrency: Count = Field(description="Users.", examples=[32])
    think_time: Wait = Field(
        default=0.0,
        description="From an answer to the next request, s. None: as load generators do.",
    )


class RampArrivals(Section):
    """Poisson arrivals whose rate grows, or falls, evenly, and then stays."""

    kind: Literal["ramp"]
    rate: Rate = Field(description="Requests per second at the start.", examples=[1.0])
    final_rate: Rate = Field(
        description="Requests per second at the end of the ramp and ever after.", examples=[20.0]
    )
    duration: Duration = Field(
        description="From the start to the end of the ramp, s.", examples=["10min"]
    )


class DiurnalArrivals(Section):
    """Poisson arrivals whose rate swings between quiet and busy hours, as a cosine."""

    kind: Literal["diurnal"]
    rate: Rate = Field(description="Requests per second when it is quietest.", examples=[1.0])
    peak_rate: Rate = Field(description="Requests per second at the peak.", examples=[10.0])
    period: Annotated[Duration, between(1e-3, LONGEST_TIME)] = Field(
        default=86400.0, description="From peak to peak, s. A day."
    )
    peak_at: Wait | None = Field(
        default=None,
        description="When the peak comes, s after the start. null: half a period, so that a run "
        "starts when it is quietest.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> DiurnalArrivals:
        if self.peak_rate < self.rate:
            message = f"peak_rate ({self.peak_rate:g}) is less than rate ({self.rate:g})"
            raise trouble(message, "peak_rate", "rate")
        return self


Arrivals = Annotated[
    PoissonArrivals | GammaArrivals | ConstantArrivals | BurstArrivals | ClosedArrivals
    | RampArrivals | DiurnalArrivals,
    Field(discriminator="kind"),
]  # fmt: skip


class FixedLengths(Section):
    """The same length for all."""

    kind: Literal["fixed"]
    value: Tokens = Field(description="Tokens.", examples=[512])


class UniformLengths(Section):
    """Any length from low to high, both included, equally often."""

    kind: Literal["uniform"]
    low: Tokens = Field(description="The shortest, tokens.", examples=[100])
    high: Tokens = Field(description="The longest, tokens.", examples=[1000])

    @model_validator(mode="after")
    def _ordered(self) -> UniformLengths:
        if self.low > self.high:
            raise trouble(f"low ({self.low:,}) is more than high ({self.high:,})", "low", "high")
        return self


class _Clipped(Section):
    """Lengths around a mean, kept between ``min`` and ``max``."""

    kind: str
    mean: Mean = Field(description="Mean before clipping, tokens.", examples=[800])
    min: Tokens = Field(
        default=1, description="Shorter draws become this long. 1: nothing is empty."
    )
    max: Tokens | None = Field(
        default=None, description="Longer draws become this long; null: no limit."
    )

    @model_validator(mode="after")
    def _mean_inside(self) -> _Clipped:
        if self.mean < self.min:
            raise trouble(f"mean ({self.mean:g}) is less than min ({self.min:,})", "mean", "min")
        if self.max is not None and self.max < self.mean:
            raise trouble(f"max ({self.max:,}) is less than mean ({self.mean:g})", "max", "mean")
        return self


class LognormalLengths(_Clipped):
    """Many short, a few very long: the shape of real prompts and answers."""

    kind: Literal["lognormal"]
    p95: Mean | None = Field(default=None, description="95 of 100 are no longer, tokens.")
    cv: Positive | None = Field(default=None, description="Standard deviation over mean.")

    @model_validator(mode="after")
    def _one_spread(self) -> LognormalLengths:
        if (self.p95 is None) == (self.cv is None):
            given = "neither" if self.p95 is None else "both"
            message = f"a lognormal is given by its mean and one of p95 and cv; here is {given}"
            raise trouble(message, "p95" if self.p95 is not None else "kind")
        if self.p95 is None:
            return self
        if self.p95 <= self.mean:
            message = f"p95 ({self.p95:g}) is not more than mean ({self.mean:g})"
            raise trouble(message, "p95", "mean")
        if self.p95 > LARGEST_P95_TO_MEAN * self.mean:
            raise trouble(
                f"p95 ({self.p95:g}) is {self.p95 / self.mean:.2f} times the mean "
                f"({self.mean:g}), but no lognormal has more than {LARGEST_P95_TO_MEAN:.2f}; give "
                "cv, or the recorded lengths (kind: empirical)",
                "p95",
                "mean",
            )
        return self


class NormalLengths(_Clipped):
    """Lengths spread evenly to both sides of the mean, most of them near it."""

    kind: Literal["normal"]
    std: Mean = Field(description="Standard deviation, tokens.", examples=[100])


class EmpiricalLengths(Section):
    """Lengths drawn from a file of observed ones."""

    kind: Literal["empirical"]
    path: File = Field(description="A CSV file, one row a request.", examples=["lengths.csv"])
    column: Line | None = Field(
        default=None, description="Column of the lengths; null: the only one."
    )


Lengths = Annotated[
    FixedLengths | UniformLengths | LognormalLengths | NormalLengths | EmpiricalLengths,
    Field(discriminator="kind"),
]


def _absolute(value: str, info: ValidationInfo) -> str:
    return str(located(value, info))


class JointLengths(Section):
    """Prompts with their answers, drawn together from a file of observed ones."""

    kind: Literal["joint"]
    path: Annotated[File, AfterValidator(_absolute)] = Field(
        description="A CSV or JSON file, one row a request.", examples=["lengths.csv"]
    )
    prompt_column: Line | None = Field(
        default=None,
        description="Column of the prompt lengths; null, as the other: told by the usual names.",
        examples=["num_prefill_tokens"],
    )
    output_column: Line | None = Field(
        default=None, description="Column of the answer lengths.", examples=["num_decode_tokens"]
    )

    @model_validator(mode="after")
    def _both_columns(self) -> JointLengths:
        names = ("prompt_column", "output_column")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) == 1:
            raise trouble(f"{given[0]} alone; give both {' and '.join(names)}, or none", given[0])
        return self

    @property
    def columns(self) -> tuple[str, str] | None:
        """The columns of prompts and answers; None: those that have one of the usual names."""
        if self.prompt_column is None or self.output_column is None:
            return None
        return self.prompt_column, self.output_column


class SharedPrefix(Section):
    """Prompts that begin alike, as with a system prompt."""

    tokens: Tokens = Field(description="Length of a prefix, tokens.", examples=[400])
    groups: Count = Field(description="Different prefixes.", examples=[8])


class Trace(Section):
    """Recorded requests, replayed."""

    path: File = Field(description="The file.", examples=["azure_conv.csv"])
    format: Literal[
        "auto", "azure", "burstgpt", "mooncake", "bailian", "aiperf", "llmservingsim", "vllm", "csv"
    ] = Field(default="auto", description="How to read it. auto: told by the names of its columns.")
    time_scale: Factor = Field(
        default=1.0,
        description="Every gap between arrivals is multiplied by it: 0.25 replays the same "
        "requests four times as fast, 2 at half the rate. 1: as recorded.",
    )
    limit: Count | None = Field(default=None, description="Only the first so many; null: all.")
    spread: Duration | None = Field(
        default=None,
        description="Tick of the recording clock, s: each arrival moves on by a share of it, drawn "
        "uniformly under the seed. Mooncake's is 3 s. null: as recorded.",
        examples=["3s"],
    )


class Workload(LimitedSection):
    """Either a trace, or arrivals with the lengths of prompts and answers."""

    arrivals: Arrivals | None = Field(
        default=None, description="When requests come.", examples=["{kind: poisson, rate: 6.0}"]
    )
    prompt_tokens: Lengths | None = Field(
        default=None,
        description="Input lengths.",
        examples=["{kind: lognormal, mean: 800, p95: 2400, max: 6000}"],
    )
    output_tokens: Lengths | None = Field(
        default=None,
        description="Output lengths.",
        examples=["{kind: lognormal, mean: 220, p95: 600, max: 1500}"],
    )
    lengths: JointLengths | None = Field(
        default=None,
        description="Instead of prompt_tokens and output_tokens: both from one file.",
        examples=["{kind: joint, path: lengths.csv}"],
    )
    shared_prefix: SharedPrefix | None = Field(
        default=None,
        description="Tokens that prompts have in common. null: none.",
        examples=["{tokens: 400, groups: 8}"],
    )
    trace: Trace | None = Field(
        default=None,
        description="Instead of all of the above.",
        examples=["{path: azure_conv.csv}"],
    )
    classes: tuple[TrafficClass, ...] | None = Field(
        default=None,
        description="Kinds of requests, for scheduler.order priority and edf, and for results of "
        "each. Drawn by their shares, without a say in arrivals and lengths. null: all are alike, "
        "unless the trace has a column `priority`.",
        examples=[
            "[{name: chat, share: 0.3, deadline: 500ms}, {name: batch, share: 0.7, priority: 1}]"
        ],
    )

    @field_validator("classes")
    @classmethod
    def _classes_together(
        cls, classes: tuple[TrafficClass, ...] | None
    ) -> tuple[TrafficClass, ...] | None:
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
    def _trace_or_synthetic(self) -> Workload:
        names = ("arrivals", "prompt_tokens", "output_tokens", "lengths")
        given = [name for name in names if getattr(self, name) is not None]
        if self.trace is not None:
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


def _replaces(this: str, given: list[str]) -> None:
    """Refuse what is ``given`` beside ``this``."""
    if given:
        raise trouble(f"{this} replaces {' and '.join(given)}; give one or the other", given[0])
