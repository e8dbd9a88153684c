"""What is asked of the deployment: when requests arrive, how long they are, or a recorded trace.

Rates are per second, times in seconds, lengths in tokens.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sim.scenario.fields import Count, Duration, File, Line, Positive, Rate, Tokens, Wait, trouble
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
    cv: Positive = Field(
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
    """Poisson arrivals whose rate grows evenly."""

    kind: Literal["ramp"]
    rate: Rate = Field(description="Requests per second at the start.", examples=[1.0])
    final_rate: Rate = Field(description="Requests per second at the end.", examples=[20.0])
    duration: Duration = Field(description="From the start to the end, s.", examples=["10min"])


Arrivals = Annotated[
    PoissonArrivals | GammaArrivals | ConstantArrivals | BurstArrivals | ClosedArrivals
    | RampArrivals,
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
    mean: Positive = Field(description="Mean before clipping, tokens.", examples=[800])
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
    p95: Positive | None = Field(default=None, description="95 of 100 are no longer, tokens.")
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
    """Lengths spread evenly around the mean."""

    kind: Literal["normal"]
    std: Positive = Field(description="Standard deviation, tokens.", examples=[100])


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


class SharedPrefix(Section):
    """Prompts that begin alike, as with a system prompt."""

    tokens: Tokens = Field(description="Length of a prefix, tokens.", examples=[400])
    groups: Count = Field(description="Different prefixes.", examples=[8])


class Trace(Section):
    """Recorded requests, replayed."""

    path: File = Field(description="The file.", examples=["azure_conv.csv"])
    format: Literal["auto", "azure", "mooncake", "csv"] = Field(
        default="auto", description="How to read it. auto: told by the names of its columns."
    )
    time_scale: Positive = Field(
        default=1.0,
        description="Every gap between arrivals is multiplied by it: 0.25 replays the same "
        "requests four times as fast, 2 at half the rate. 1: as recorded.",
    )
    limit: Count | None = Field(default=None, description="Only the first so many; null: all.")


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

    @model_validator(mode="after")
    def _trace_or_synthetic(self) -> Workload:
        parts = {
            "arrivals": self.arrivals,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
        }
        if self.trace is not None:
            extra = [name for name, part in parts.items() if part is not None]
            if extra:
                listed = " and ".join(extra)
                raise trouble(f"a trace replaces {listed}; give one or the other", extra[0])
            return self
        absent = [name for name, part in parts.items() if part is None]
        if absent:
            example = Workload.model_fields[absent[0]].examples or [""]
            message = f"{' and '.join(absent)} missing; for example `{absent[0]}: {example[0]}`"
            raise trouble(f"{message}, or a `trace` instead")
        return self
