"""Reads the parts of a run directory, simulated or observed, that can be exported.

The directory is not changed. Times in seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sim.catalog.files import read_yaml
from sim.errors import UsageError
from sim.results.run_directory import MANIFEST, RESOLVED
from sim.results.run_result import REQUESTS, SUMMARY, TIMESERIES
from sim.results.stored import NUMBER, TEXT, check, read_object, read_summary, read_table
from sim.results.trail_files import Trail, read_trail
from sim.trails import iterations, slots
from sim.trails.courses import Courses
from sim.units import parse

COUNTED = ("running", "kv_used_tokens", "kv_reserved_tokens")
"""Columns of the timeseries that exports show in addition to those that trails read."""

SETTINGS = {
    "workload": {
        "arrivals": {**dict.fromkeys(("rate", "cv", "concurrency"), NUMBER), "kind": TEXT}
    },
    "fleet": [{"tensor_parallel": NUMBER, "pipeline_parallel": NUMBER}],
}
"""Settings that exports read of a resolved scenario."""


class ExportWindow(NamedTuple):
    """A stretch of time, ``start`` before ``end``."""

    start: float
    end: float


@dataclass(frozen=True, eq=False)
class ExportSource:
    """One run. ``summary``, ``scenario`` and ``trail`` are of the whole run, whatever the window;
    ``trail`` is None where the run did not save it."""

    path: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]
    scenario: Mapping[str, Any]
    requests: pd.DataFrame
    timeseries: pd.DataFrame
    trail: Trail | None = None

    @property
    def courses(self) -> Courses | None:
        """The course of each request, where the run saved it."""
        if "handover" in self.summary.get("infersim", {}):
            raise UsageError(
                f"{self.path}: what each slot did is not exported yet of pools that prefill and "
                "decode apart"
            )
        if self.trail is None:
            return None
        chunks, absences = self.trail
        return Courses(columns(chunks), columns(absences), columns(self.timeseries))

    @property
    def name(self) -> str:
        """The directory's own name."""
        return self.path.resolve().name

    @property
    def observed(self) -> bool:
        """Whether a real engine was watched, rather than one simulated."""
        return self.manifest.get("kind") == "observed"

    @property
    def end(self) -> float:
        """When the last thing happened."""
        latest = [self.timeseries["end_s"].max(), self.requests["finish_s"].max()]
        latest.append(self.requests["arrival_s"].max())
        return max([0.0, *(float(time) for time in latest if np.isfinite(time))])

    def arriving(self, window: ExportWindow | None) -> ExportSource:
        """Only the requests that arrive in ``window``; the timeseries stays whole."""
        if window is None:
            return self
        arrival = self.requests["arrival_s"]
        chosen = self.requests[(arrival >= window.start) & (arrival < window.end)]
        if not len(chosen):
            raise UsageError(
                f"--window: no request of {self.path} arrives from {window.start:g} to "
                f"{window.end:g} s; they do so from {arrival.min():g} to {arrival.max():g} s"
            )
        return replace(self, requests=chosen.reset_index(drop=True))


def read(directory: Path) -> ExportSource:
    """The run in ``directory``; UsageError for one that is none, incomplete or unreadable."""
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise UsageError(f"{directory}: {what}; expected a run directory")
    missing = [
        name
        for name in (MANIFEST, SUMMARY, REQUESTS, TIMESERIES, RESOLVED)
        if not (directory / name).is_file()
    ]
    manifest = {} if MANIFEST in missing else read_object(directory / MANIFEST)
    if manifest.get("status") == "incomplete":
        raise UsageError(f"{directory}: is incomplete: its run still goes on, or was killed")
    if missing:
        raise UsageError(f"{directory}: is no run directory: it has no {', '.join(missing)}")
    found = ExportSource(
        path=directory,
        summary=read_summary(directory / SUMMARY),
        manifest=manifest,
        scenario=read_yaml(directory / RESOLVED),
        requests=read_table(directory / REQUESTS, (*slots.REQUESTS, "status", "reason")),
        timeseries=read_table(directory / TIMESERIES, (*iterations.PLANS, *COUNTED)),
    )
    check(str(directory / RESOLVED), found.scenario, SETTINGS)
    _check_order(directory / REQUESTS, found.requests, ("arrival_s", "first_token_s", "finish_s"))
    _check_order(directory / TIMESERIES, found.timeseries, ("start_s", "end_s"))
    return replace(found, trail=read_trail(directory, found.requests, found.timeseries))


def _check_order(path: Path, frame: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Raise UsageError where something ends before it begins."""
    for one, other in pairwise(names):
        wrong = (frame[other] < frame[one]).to_numpy()
        if wrong.any():
            row = int(np.argmax(wrong))
            raise UsageError(
                f"{path}: {other}: expected a time after {one} ({frame[one].iloc[row]:g} s), found "
                f"{frame[other].iloc[row]:g} s in row {row + 1}"
            )


def columns(frame: pd.DataFrame) -> dict[str, Any]:
    """The columns of a table as arrays."""
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def window_of(text: str) -> ExportWindow:
    """``START:END``, each in seconds or with a unit; UsageError for anything else.

    >>> window_of("90:2min")
    ExportWindow(start=90.0, end=120.0)
    """
    parts = text.split(":")
    try:
        start, end = (parse(part, "time") for part in parts)
    except ValueError as error:
        why = f" ({error})" if len(parts) == 2 else ""
        raise UsageError(
            f"--window {text}: expected START:END in seconds or with units, as in 30:45 or "
            f"1min:90s{why}"
        ) from None
    if not 0 <= start < end:
        raise UsageError(f"--window {text}: START must not be negative, and less than END")
    return ExportWindow(start, end)
