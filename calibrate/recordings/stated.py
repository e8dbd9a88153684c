"""Defines what a file states of a real run: its requests, samples of the engine, its conditions.

Times are seconds since the first served request, lengths tokens; NaN is a time that the file does
not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def of_pool(name: str) -> str:
    """The dotted key of the only pool of a record."""
    return f"fleet.0.{name}"


@dataclass(frozen=True, eq=False)
class Requests:
    """Columns of equal length, in order of arrival.

    ``failures`` has the reason of each request that was not served, None for the others. Failed
    requests have no times but the arrival, which is 0 at the earliest.
    """

    arrivals: Floats
    scheduled: Floats
    first_token: Floats
    finish: Floats
    prompt_tokens: Integers
    output_tokens: Integers
    failures: tuple[str | None, ...]

    def taken(self, rows: NDArray[np.bool_]) -> Requests:
        """The requests for which the mask is true."""
        return Requests(
            arrivals=self.arrivals[rows],
            scheduled=self.scheduled[rows],
            first_token=self.first_token[rows],
            finish=self.finish[rows],
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            failures=tuple(compress(self.failures, rows)),
        )

    @property
    def served(self) -> NDArray[np.bool_]:
        """Which requests got their whole answer."""
        return np.array([reason is None for reason in self.failures], dtype=bool)


@dataclass(frozen=True, eq=False)
class Samples:
    """The engine's state, looked at now and then: ``start`` to ``end`` are the stretches.

    ``running`` and ``waiting`` requests and the ``used`` share (0..1) of the KV blocks are of the
    end of a stretch, ``prompts`` and ``outputs`` the tokens prefilled and generated in it.
    """

    start: Floats
    end: Floats
    prompts: Floats
    outputs: Floats
    running: Integers
    waiting: Integers
    used: Floats


@dataclass(frozen=True)
class Stated:
    """The conditions of the run, as far as they are stated.

    ``model`` and ``gpu`` as the source calls them; ``engine`` is what the server is named (vllm,
    sglang, ...), None where the source does not name it, and ``version`` its release; ``settings``
    are values of the scenario by their dotted keys, and ``unclear`` keys whose value must be given
    by hand, with what the source says instead; ``hardware`` and ``conditions`` are for the
    manifest.
    """

    model: str | None
    gpu: str | None
    engine: str | None
    version: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    unclear: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
