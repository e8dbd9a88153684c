"""Describes how much is simulated, and which part of it counts. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from sim import units
from sim.scenario.sections.support import LimitedSection
from sim.scenario.text.document import show
from sim.scenario.text.parsing import scalar
from sim.scenario.values import spelling
from sim.scenario.values.fields import LARGEST_COUNT, Count, Duration, Switch, trouble
from sim.scenario.values.readers import Kind

DEFAULT_REQUESTS = 1000
"""For made-up traffic: enough for a steady p95, while a good p99 wants several thousand."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """The part left out of the statistics at the start: that many requests, or that many seconds.

    Both None means ``auto``: the simulator finds where the start-up phase ends.
    """

    requests: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        if self.requests is not None:
            return str(self.requests)
        return "auto" if self.seconds is None else f"{self.seconds!r}s"


def _read_warmup(value: object) -> Warmup:
    allowed = "auto, a number of requests, or a time with its unit such as 30s"
    if isinstance(value, Warmup) or value == "auto":
        return value if isinstance(value, Warmup) else Warmup()
    number = scalar(value.strip()) if isinstance(value, str) else value
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= LARGEST_COUNT:
        return Warmup(requests=number)
    if not isinstance(number, str):
        raise ValueError(f"expected {allowed}; got {show(value)}")
    try:
        seconds = units.parse(number, "time")
    except ValueError as error:
        raise ValueError(f"{error}; expected {allowed}") from None
    if seconds < 0:
        raise ValueError(f"expected {allowed}; got {show(value)}")
    return Warmup(seconds=seconds)


def _write_warmup(warmup: Warmup) -> str | int:
    return str(warmup) if warmup.requests is None else warmup.requests


def _warmups() -> spelling.Schema:
    text = f"auto|{spelling.WHOLE}|{spelling.with_unit('time')}"
    bounds = {"minimum": 0, "maximum": LARGEST_COUNT}
    return {"type": ["integer", "string"], **bounds, "pattern": spelling.all_of(text)}


WARMUP = Kind("warmup", "auto, a number of requests, or a time with its unit such as 30s", _warmups)


class RunSettings(LimitedSection):
    """How much is simulated, and what of it counts."""

    requests: Count | None = Field(
        default=None,
        description=f"How many are sent. Left out: {DEFAULT_REQUESTS:,} of made-up traffic, or "
        "the whole of a trace; of an overlaid trace, the first so many of all copies together.",
    )
    warmup: Annotated[
        Warmup, PlainValidator(_read_warmup), PlainSerializer(_write_warmup), WARMUP
    ] = Field(
        default_factory=Warmup,
        description="auto, a number of requests (200), or a time (30s) to leave out of the "
        "statistics. auto: the start is cut where it differs from the rest, never beyond the first "
        "failure or timeout, or the first request that waited at the gateway for a cold start.",
    )
    repetitions: Count = Field(
        default=1,
        description="Independent runs, each with a seed of its own, whose means are shown with "
        "95 % intervals. One: a quick look. Five to ten separate chance from difference.",
    )
    horizon: Duration | None = Field(
        default=None, description="Simulated time at which to stop, s. null: when all are served."
    )

    leap: Switch = Field(
        default=True,
        description="Simulate runs of similar iterations in one step. Requests, their times, "
        "counts and all metrics of them are the same either way, to the last bit; false is the "
        "slow reference. What is integrated over a step may differ: mean_reserved and "
        "fragmentation of the KV cache, as blocks are taken evenly within a step; with drafts, "
        "what follows from the context that they are timed at (speculation.context and "
        "pays_up_to, mbu, operators, energy and the band); mean_used behind windows under whole "
        "batches or with a prefix cache.",
    )

    @model_validator(mode="after")
    def _something_left(self) -> RunSettings:
        skipped = self.warmup.requests
        if self.requests is not None and skipped is not None and skipped >= self.requests:
            raise trouble(
                f"a warmup of {skipped:,} requests leaves nothing of {self.requests:,}",
                "warmup",
                "requests",
            )
        return self
