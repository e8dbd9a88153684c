"""Defines a point and its outcome: the words that all planning shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.metrics.engine.decode_pace import DecodePace
from sim.results.run_result import RunResult

Settings = Mapping[str, object]
"""Overrides by dotted key, as ``Scenario.override`` takes them; plain data that YAML and JSON
hold."""

Keeper = Callable[[RunResult], None]
"""Writes a run to disk, in any process."""


@dataclass(frozen=True)
class Point:
    """One variant of a scenario: its number among those of the question, what it changes, and how
    people would name it. ``at_ends``: it is judged as ``infersim run`` judges it, at both ends of
    the error band too; else at the predicted times alone. ``banded``: its figures get their bands
    (``infersim.bands``). ``keep`` writes the run to disk; None where it is not kept.
    """

    index: int
    settings: Settings
    label: str
    at_ends: bool = False
    banded: bool = False
    keep: Keeper | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a point: its ``summary`` (as in ``summary.json``), or the ``error`` that
    prevented one, with the exit code that ``infersim run`` would have ended with (3: infeasible).
    Exactly one of the two is set; ``exit_code`` is 0 with a summary. ``pace`` says how a ``banded``
    point decodes.
    """

    point: Point
    summary: dict[str, Any] | None
    error: str | None
    exit_code: int
    pace: DecodePace | None = None

    def __post_init__(self) -> None:
        if (self.summary is None) == (self.error is None):
            raise ValueError("an outcome has either a summary or an error")
        if (self.error is None) != (self.exit_code == 0):
            raise ValueError("an outcome has an exit code other than 0 if it is an error")

    @property
    def infeasible(self) -> bool:
        """Whether the point is well put, but nothing could be served."""
        return self.exit_code == 3


def numbered(all_settings: Iterable[Settings]) -> Iterator[Point]:
    """A point for each of the settings, counted from 0.

    >>> [point.label for point in numbered([{"fleet.0.gpu": "l40s"}, {}])]
    ['fleet.0.gpu=l40s', 'as it is']
    """
    for index, settings in enumerate(all_settings):
        yield Point(index, settings, label(settings))


def label(settings: Settings) -> str:
    """The usual name of a variant: its keys and values.

    >>> label({"workload.arrivals.rate": 2.0, "scheduler.chunked_prefill": False})
    'workload.arrivals.rate=2, scheduler.chunked_prefill=false'
    """
    return ", ".join(f"{key}={show(value)}" for key, value in settings.items()) or "as it is"


def show(value: object) -> str:
    """A value as YAML has it, short.

    >>> show(2.0), show(0.1234567), show(None), show(True), show({"kind": "fixed", "value": 3})
    ('2', '0.123457', 'null', 'true', '{kind: fixed, value: 3}')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    return str(value)
