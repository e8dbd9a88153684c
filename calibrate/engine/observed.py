"""Defines the record that a run of any real engine leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrate.device import DeviceFacts
from calibrate.engine.log import Iteration
from sim.metrics.record.run_record import RunRecord
from sim.version import version


@dataclass(frozen=True)
class EngineFacts:
    """Which engine served: its name, its version, and the settings it really ran with."""

    name: str
    version: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def reference_engine() -> EngineFacts:
    """The engine of this project."""
    return EngineFacts("infersim reference engine", version())


@dataclass(frozen=True)
class Observed:
    """The outcome of a run of an engine: the simulator's record, filled with real times; its
    iterations; and the tokens of each finished request, by its id.

    ``attention`` says in words which kernels ran, ``sampling`` how the next token was chosen.
    """

    record: RunRecord
    iterations: Sequence[Iteration]
    token_times: dict[int, list[float]]
    answers: dict[int, list[int]]
    facts: DeviceFacts
    precision: str
    attention: str
    sampling: str
    engine: EngineFacts = field(default_factory=reference_engine)
