"""Checks requests that a benchmark's client recorded one by one, and turns them into columns.

Shared by formats that have an object per request. Seconds and tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibrate.recordings.stated import Requests
from sim.errors import TraceError
from sim.workload.traces.rows import LATEST, shown
from sim.workload.traffic import MAX_TOKENS

TTFT = (
    "TTFT is the client's: from sending a request to the first piece of its answer, "
    "including the network and the engine's front end."
)


class SeenClient(NamedTuple):
    """One request: when it was sent, got its first and its last token, its lengths, and why it
    failed (None: it was served). Of a failed one only ``sent`` counts."""

    sent: float
    first: float
    last: float
    prompt_tokens: int
    output_tokens: int
    failure: str | None


def columns(path: Path, seen: Sequence[SeenClient]) -> Requests:
    """The requests of ``path``; TraceError where none was served."""
    if all(each.failure is not None for each in seen):
        raise TraceError(f"{path}: none of the {len(seen):,} requests was served")
    times = np.array([(each.sent, each.first, each.last) for each in seen])
    times[[each.failure is not None for each in seen], 1:] = math.nan
    return Requests(
        arrivals=times[:, 0],
        scheduled=np.full(len(seen), math.nan),
        first_token=times[:, 1],
        finish=times[:, 2],
        prompt_tokens=np.array([each.prompt_tokens for each in seen], dtype=np.int64),
        output_tokens=np.array([each.output_tokens for each in seen], dtype=np.int64),
        failures=tuple(each.failure for each in seen),
    )


def time(place: str, found: Mapping[str, object], name: str, *, least: float = 0.0) -> float:
    """A time in seconds; TraceError, which begins with ``place``, for anything else."""
    value = found.get(name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= LATEST:  # type: ignore[operator]
        at = "0" if not least else "that of the previous moment"
        raise TraceError(f"{place}: {name} is {shown(value)}; allowed: seconds from {at}")
    return float(value)  # type: ignore[arg-type]


def tokens(place: str, found: Mapping[str, object], name: str) -> int:
    """A number of tokens, at least 1; TraceError for anything else."""
    value = found.get(name)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not 1 <= value <= MAX_TOKENS:  # type: ignore[operator]
        raise TraceError(f"{place}: {name} is {shown(value)}; allowed: a whole number from 1")
    return int(value)  # type: ignore[call-overload, no-any-return]


def mapping(place: str, found: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The mapping at ``name``, empty where there is none; TraceError for anything else."""
    value = found.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TraceError(f"{place}: {name} is {shown(value)}; allowed: a mapping")
    return value


def reason(text: object) -> str:
    """Why a request failed: the last line of what the client noted."""
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    return f"failed: {shown(lines[-1])[1:-1]}" if lines else "failed"


def day(seconds: float) -> str:
    """The day of a Unix time, UTC."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
