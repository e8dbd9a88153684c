"""Describes the laws of arrivals in a scenario.

Rates are per second, times in seconds.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import (
    LONGEST_TIME,
    Count,
    Duration,
    Positive,
    Rate,
    Wait,
    between,
    trouble,
)


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
        description="Pause between an answer and the client's next request, s. 0: none, as load "
        "generators do.",
    )


class RampArrivals(Section):
    """Poisson arrivals whose rate grows, or falls, evenly, and then stays."""

    kind: Literal["ramp"]
    rate: Rate = Field(description="Requests per second at the start.", examples=[1.0])
    final_rate: Rate = Field(
        description="Requests per second at the end of the ramp and from then on.", examples=[20.0]
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
        description="Time of the peak, s after the start. null: half a period, so that a run "
        "starts at the quietest time.",
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
