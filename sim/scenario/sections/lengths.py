"""Describes the laws of prompt and answer lengths, apart or together, in tokens."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import File, Line, Mean, Positive, Share, Tokens, located, trouble
from sim.scenario.values.readers import ConstantLaw, Together

ROUNDING = 1e-6
"""How far the shares of all parts may be from 1 in sum."""

Z95 = 1.6448536269514722
"""The standard normal distribution's 95th percentile."""
LARGEST_P95_TO_MEAN = math.exp(Z95**2 / 2)
"""No lognormal has a 95th percentile of more than 3.87 means: the ratio is exp(1.645 s - s^2/2)."""


class FixedLengths(Section):
    """One length for all requests."""

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
        default=1,
        description="Minimum length; shorter draws are raised to it. 1: nothing is empty.",
    )
    max: Tokens | None = Field(
        default=None, description="Maximum length; longer draws are cut to it. null: no limit."
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
    p95: Mean | None = Field(default=None, description="95th percentile of the lengths, tokens.")
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
    ConstantLaw(FixedLengths),
    Together("lengths", "prompts and answers"),
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
        description="Column of the prompt lengths; null, as the other: the column that has one of "
        "the usual names.",
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


class MixturePart(Section):
    """Requests of one kind, with the laws of their prompts and answers."""

    share: Share = Field(
        description="Share of all requests; those of all parts sum to 1.", examples=[0.8]
    )
    prompt_tokens: Lengths = Field(
        description="Input lengths of this part.",
        examples=["{kind: lognormal, mean: 300, cv: 1}"],
    )
    output_tokens: Lengths = Field(description="Output lengths of this part.", examples=[200])


class MixtureLengths(Section):
    """Several kinds of requests, such as short chat and long documents, each with its own laws."""

    kind: Literal["mixture"]
    parts: tuple[MixturePart, ...] = Field(
        description="Kinds of requests; each request is of one, chosen by the shares.",
        examples=[
            "[{share: 0.8, prompt_tokens: 300, output_tokens: 200}, "
            "{share: 0.2, prompt_tokens: 12000, output_tokens: 500}]"
        ],
    )

    @model_validator(mode="after")
    def _whole(self) -> MixtureLengths:
        total = math.fsum(part.share for part in self.parts)
        if abs(total - 1) > ROUNDING:
            raise trouble(f"the shares of the parts sum to {total:.7g}, not to 1", "parts")
        return self


BothLengths = Annotated[JointLengths | MixtureLengths, Field(discriminator="kind")]
"""The laws of prompts and answers together."""
