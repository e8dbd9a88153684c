"""Defines a record of a real run, and a format in which files have one.

Times are seconds since the first served request, lengths tokens; NaN is a time that the file does
not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrate.recordings.clients import TTFT
from calibrate.recordings.server import RecordedServer
from calibrate.recordings.stated import Floats, Integers, Requests, Samples, Stated
from calibrate.recordings.summaries import Summary, no_requests
from calibrate.validation.front_end import FrontEnd


@dataclass(frozen=True, eq=False)
class Recording:
    """One run. ``files`` were read, the one with the requests first.

    ``front_end`` says what stood in front of the engine, within the times of the requests.
    ``ttft`` says between which two moments the time to the first token lies in this format.
    ``gaps`` are all times between consecutive deliveries to a request; None if they are unknown.
    ``date`` is the day of the run (ISO 8601), as far as the file says. ``simulated`` says which
    program and scenario made up a file that no engine produced; None for a measured one.
    ``summary`` is there where the file has no single requests; ``requests`` are then none.
    ``totals`` are metrics of the file itself that go before those of the requests, since the times
    at which these were sent are approximated; all that is per second is then over their
    ``duration``. ``server`` says with which preset the engine is
    simulated and how that is known, ``assumed`` which settings are not in the file and what was
    taken for them (by dotted key); both are known once a scenario was made of the record.
    """

    files: tuple[Path, ...]
    requests: Requests
    gaps: Floats | None
    samples: Samples | None
    stated: Stated
    ttft: str
    front_end: FrontEnd
    notes: tuple[str, ...] = ()
    date: str | None = None
    simulated: Mapping[str, str] | None = None
    summary: Summary | None = None
    totals: Mapping[str, float] = field(default_factory=dict)
    server: RecordedServer | None = None
    assumed: Mapping[str, Any] = field(default_factory=dict)


def summed(
    path: Path,
    summary: Summary,
    stated: Stated,
    *,
    notes: Sequence[str] = (),
    date: str | None = None,
    ttft: str = TTFT,
    front_end: FrontEnd = "server",
    simulated: Mapping[str, str] | None = None,
    beside: Sequence[Path] = (),
) -> Recording:
    """The record of a result at ``path`` that has no single requests; ``notes`` go before those on
    what its scenario assumes."""
    return Recording(
        files=(path, *beside),
        requests=no_requests(),
        gaps=None,
        samples=None,
        stated=stated,
        ttft=ttft,
        front_end=front_end,
        notes=(*notes, *summary.assumptions()),
        date=date,
        simulated=simulated,
        summary=summary,
    )


class RecordingChoice(NamedTuple):
    """A user's choices for a file: which of several results it holds (from 1; None: the last), and
    the seed for what has to be drawn; of a server of metrics the ``window`` (s) before ``until``
    (a date with time; None: now), and a selector of series."""

    entry: int | None = None
    seed: int = 0
    window: float | None = None
    until: str | None = None
    select: str = ""


@dataclass(frozen=True, slots=True)
class RecordingFormat:
    """One format; ``read`` raises TraceError, with file and place, for what breaks it. ``several``
    says whether one file may hold several results. ``marks`` are sets of names, separated by
    spaces: a file is taken for this format's if all names of a set are in its first object or
    row."""

    name: str
    layout: str
    read: Callable[[Path, RecordingChoice], Recording]
    marks: tuple[str, ...] = ()
    several: bool = False


def in_order(requests: Requests) -> tuple[Requests, Integers]:
    """The requests in order of arrival, counted from the first served one, and where each stood.

    Of equal arrivals the order stays.
    """
    order = np.argsort(requests.arrivals, kind="stable")
    zero = float(requests.arrivals[requests.served].min())
    ranked = Requests(
        np.maximum(requests.arrivals[order] - zero, 0.0),
        requests.scheduled[order] - zero,
        requests.first_token[order] - zero,
        requests.finish[order] - zero,
        requests.prompt_tokens[order],
        requests.output_tokens[order],
        tuple(requests.failures[place] for place in order.tolist()),
    )
    return ranked, order
