"""Reads the other limits of a fleet: ``ttft:p95<500ms;cost<20/h;gpus<=16``.

Latencies in seconds, cost in US dollars per hour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sim import units
from sim.errors import UsageError, did_you_mean
from sim.metrics.slo.objectives import Objective
from sim.scenario.sections.slo import METRICS, read_limit

EXAMPLE = "ttft:p95<500ms;cost<20/h;gpus<=16"
COUNTS = ("gpus", "replicas")
KNOWN = (*METRICS, "cost", *COUNTS)

_CLAUSE = re.compile(r"([a-z0-9_]+)(?::(\w+))?\s*(<=|<|>=|>|=)\s*(.+)")
_PER_HOUR = re.compile(r"\$?\s*([\d.]+(?:[eE][-+]?\d+)?)\s*(?:USD)?\s*(?:/\s*(?:h|hour))?")


@dataclass(frozen=True)
class Constraints:
    """Limits of a fleet in addition to the SLO; None: not limited. ``survive`` replicas may fail:
    those that are left hold the wanted rate, without headroom, within the SLO."""

    objectives: tuple[Objective, ...] = ()
    cost: float | None = None
    gpus: int | None = None
    replicas: int | None = None
    survive: int = 0


MOST_FAILURES = 100
"""The most replicas that may fail."""

UNCONSTRAINED = Constraints()


def read_constraints(text: str | None, survive: int = 0) -> Constraints:
    """The constraints in ``text``, separated by semicolons; none for None. ``survive`` as in
    ``Constraints``.

    Raises UsageError for what cannot be read, cannot be met by any fleet, or is given twice.

    >>> read_constraints("ttft:p95<500ms; cost<20/h").cost
    20.0
    """
    if not 0 <= survive <= MOST_FAILURES:
        raise UsageError(f"--survive {survive}: expected 0 to {MOST_FAILURES} replicas")
    if text is None:
        return Constraints(survive=survive)
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts:
        raise UsageError(f"--constraint: nothing is in it; write it like {EXAMPLE!r}")
    objectives: list[Objective] = []
    numbers: dict[str, float] = {}
    said: set[str] = set()
    for part in parts:
        name, rank, value = _split(part)
        key = f"{name}:{rank}" if rank else name
        if key in said:
            raise UsageError(f"--constraint: {key} is limited twice; say it once")
        said.add(key)
        if name in METRICS:
            limit = _seconds(part, name, value)
            objectives.append(Objective({name: limit}, _share(part, rank or "p99")))
        elif rank is not None:
            raise UsageError(f"--constraint {part!r}: {name} has no percentiles")
        else:
            numbers[name] = _dollars(part, value) if name == "cost" else _count(part, value)
    gpus, replicas = (int(numbers[name]) if name in numbers else None for name in COUNTS)
    return Constraints(tuple(objectives), numbers.get("cost"), gpus, replicas, survive)


def _split(part: str) -> tuple[str, str | None, str]:
    match = _CLAUSE.fullmatch(part)
    if match is None:
        raise UsageError(f"--constraint {part!r}: cannot be read; write it like {EXAMPLE!r}")
    name, rank, sign, value = match.groups()
    if name not in KNOWN:
        raise UsageError(
            f"--constraint {part!r}: {name!r} is none of {', '.join(KNOWN)}"
            f"{did_you_mean(name, KNOWN)}"
        )
    if sign not in ("<", "<="):
        raise UsageError(f"--constraint {part!r}: only upper limits (< or <=) are understood")
    return name, rank, value.strip()


def _seconds(part: str, metric: str, value: str) -> float:
    try:
        read_limit(metric, value)
        seconds = units.parse(value, "time")
    except ValueError as error:
        raise UsageError(f"--constraint {part!r}: {error}") from None
    if seconds <= 0:
        raise UsageError(f"--constraint {part!r}: no latency is {value} or less")
    return seconds


def _share(part: str, rank: str) -> float:
    match = re.fullmatch(r"p(\d{1,2}(?:_\d+)?)", rank)
    share = float(match[1].replace("_", ".")) / 100 if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--constraint {part!r}: {rank!r} is no percentile, such as p50 or p99")
    return share


def _dollars(part: str, value: str) -> float:
    match = _PER_HOUR.fullmatch(value)
    if match is None or match[1].count(".") > 1:
        raise UsageError(f"--constraint {part!r}: {value!r} is no price per hour, such as 20/h")
    dollars = float(match[1])
    if dollars <= 0:
        raise UsageError(f"--constraint {part!r}: nothing costs {value} or less")
    return dollars


def _count(part: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--constraint {part!r}: expected a whole number from 1; got {value!r}")
    return int(value)
