"""What does a run directory, simulated or observed, hold that can be exported?

It is only read. Times in seconds since the start of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sim.errors import UsageError
from sim.results import REQUESTS, SUMMARY, TIMESERIES
from sim.run_directory import MANIFEST, RESOLVED
from sim.trails import iterations, seats
from sim.units import parse


class Window(NamedTuple):
    """A stretch of time, ``start`` before ``end``."""

    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Source:
    """One run. ``summary`` and ``scenario`` are of the whole run, whatever the window."""

    path: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]
    scenario: Mapping[str, Any]
    requests: pd.DataFrame
    timeseries: pd.DataFrame

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

    def arriving(self, window: Window | None) -> Source:
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


def read(directory: Path) -> Source:
    """The run in ``directory``; UsageError for one that is none, incomplete or unreadable."""
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise UsageError(f"{directory}: {what}; expected a run directory")
    missing = [
        name
        for name in (MANIFEST, SUMMARY, REQUESTS, TIMESERIES, RESOLVED)
        if not (directory / name).is_file()
    ]
    manifest = {} if MANIFEST in missing else _json(directory / MANIFEST)
    if manifest.get("status") == "incomplete":
        raise UsageError(f"{directory}: is incomplete: its run still goes on, or was killed")
    if missing:
        raise UsageError(f"{directory}: is no run directory: it has no {', '.join(missing)}")
    found = Source(
        path=directory,
        summary=_json(directory / SUMMARY),
        manifest=manifest,
        scenario=_scenario(directory / RESOLVED),
        requests=_table(directory / REQUESTS, seats.REQUESTS),
        timeseries=_table(directory / TIMESERIES, iterations.PLANS),
    )
    if not isinstance(found.summary.get("infersim"), Mapping):
        raise UsageError(f"{directory / SUMMARY}: has no entry 'infersim'")
    return found


def columns(frame: pd.DataFrame) -> dict[str, Any]:
    """The columns of a table as arrays."""
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def window_of(text: str) -> Window:
    """``START:END``, each in seconds or with a unit; UsageError for anything else.

    >>> window_of("90:2min")
    Window(start=90.0, end=120.0)
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
    return Window(start, end)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(found, Mapping):
        raise UsageError(f"{path}: holds no JSON object")
    return found


def _scenario(path: Path) -> Mapping[str, Any]:
    import yaml  # noqa: PLC0415 - only this needs it

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read as YAML ({error})") from None
    if not isinstance(found, Mapping):
        raise UsageError(f"{path}: holds no scenario")
    return found


def _table(path: Path, needed: tuple[str, ...]) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    lacking = [name for name in needed if name not in frame.columns]
    if lacking:
        raise UsageError(f"{path}: has no column {', '.join(lacking)}")
    return frame
