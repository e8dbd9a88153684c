"""Reads the directory of a run that a real engine served.

Nothing in it is changed. Times in seconds, lengths in tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibrate.validation.front_end import FrontEnd, front_end_of
from calibrate.validation.iterations import ObservedIterations, read_iterations
from sim.errors import UsageError
from sim.results.run_directory import MANIFEST, RESOLVED, SCENARIO
from sim.results.run_result import REQUESTS, SUMMARY, TIMESERIES
from sim.scenario import Scenario, load_scenario

ITERATIONS = "iterations.csv"
NEEDED = ("request_id", "arrival_s", "prompt_tokens", "output_tokens", "status")
"""Columns of requests without which they cannot be sent again."""

SETTINGS = ("model", "precision", "scheduler", "kv_cache", "max_model_len")
"""The settings that two runs share if one repeats the other."""

SLACK = 0.02
"""Share of a run by which half of its requests may come earlier or later when it is repeated."""

OBSERVED_ON = "observed_on"
"""The key of the manifest with the day of a run that was taken in from a file; null if unknown."""

RECORDED = "recorded"
"""The key of the manifest that says what a file had: the single ``requests``, or a ``summary``."""

NOT_SERVED = ("rejected", "failed")
"""States of requests that got no answer; a failed one is not sent again either."""

REFERENCE = "infersim reference engine"
"""How the manifest of a run of our own engine calls it; the catalogue has it as ``reference``."""


@dataclass(frozen=True, eq=False)
class ObservedRun:
    """One observed run.

    ``requests`` are those that were served, by arrival, ``failed`` counts the others;
    ``iterations`` is None where they were not recorded, ``hashes`` are SHA-256 of files by their
    names.
    """

    path: Path
    manifest: Mapping[str, Any]
    summary: Mapping[str, Any]
    requests: pd.DataFrame
    failed: int
    timeseries: pd.DataFrame
    iterations: ObservedIterations | None
    scenario: Scenario
    hashes: Mapping[str, str]

    @property
    def name(self) -> str:
        """The directory's own name."""
        return self.path.resolve().name

    @property
    def summary_only(self) -> bool:
        """Whether the single requests are unknown, so that predicted ones are drawn."""
        return self.manifest.get(RECORDED) == "summary"

    @property
    def own(self) -> Mapping[str, Any]:
        """The part of the summary that vLLM has no names for."""
        found = self.summary.get("infersim")
        return found if isinstance(found, Mapping) else {}

    @property
    def engine(self) -> str:
        """The engine that served the requests."""
        return str(self._entry("engine", "name") or "an engine that is not named")

    @property
    def device(self) -> str:
        """On what."""
        return str(self._entry("device", "name") or self.own.get("gpu") or "a device not named")

    @property
    def precision(self) -> str | None:
        """In what it computed, where the manifest says so."""
        found = self._entry("engine", "precision")
        return None if found is None else str(found)

    @property
    def front_end(self) -> FrontEnd | None:
        """The front end of the engine; None where the manifest does not say."""
        return front_end_of(self.manifest)

    @property
    def date(self) -> str:
        """The day on which it ran; "not recorded" where only that of its import is known."""
        if OBSERVED_ON in self.manifest or "source" in self.manifest:
            return str(self.manifest.get(OBSERVED_ON) or "not recorded")
        return str(self.manifest.get("created", "unknown"))[:10]

    @property
    def simulated_by(self) -> str | None:
        """Which program and scenario made up the record; None for a measured run."""
        found = self.own.get("simulated_by")
        if not isinstance(found, Mapping):
            return None
        return f"{found.get('name')} {found.get('version')}, scenario {found.get('scenario')}"

    def figure(self, *path: str) -> float | None:
        """A number of the summary's own part; None where it was not observed."""
        value: Any = self.own
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return float(value) if isinstance(value, int | float) else None

    def _entry(self, *path: str) -> object:
        value: Any = self.manifest
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def read_observed(directory: Path) -> ObservedRun:
    """The observed run in ``directory``; UsageError for one that is none, or incomplete."""
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise UsageError(f"{directory}: {what}; expected the directory of an observed run")
    manifest = _json(directory, MANIFEST)
    if manifest.get("kind") != "observed":
        raise UsageError(
            f"{directory}: is the directory of a simulated run; one of an observed run is made by "
            "`infersim observe`"
        )
    if manifest.get("status") == "incomplete":
        raise UsageError(f"{directory}: is incomplete: its run still goes on, or was killed")
    requests = _requests(directory)
    accepted = requests[~requests["status"].isin(NOT_SERVED)]
    if not len(accepted) and manifest.get(RECORDED) != "summary":
        raise UsageError(f"{directory}: no request was served")
    files = [name for name in (ITERATIONS, REQUESTS) if (directory / name).is_file()]
    hashes = {name: sha256((directory / name).read_bytes()).hexdigest() for name in files}
    if manifest.get(RECORDED) == "summary":  # its table of requests is empty, as that of any other
        hashes[REQUESTS] = sha256((directory / SUMMARY).read_bytes()).hexdigest()
    return ObservedRun(
        path=directory,
        manifest=manifest,
        summary=_json(directory, SUMMARY),
        requests=accepted.sort_values(
            ["arrival_s", "request_id"], kind="stable", ignore_index=True
        ),
        failed=len(requests) - len(accepted),
        timeseries=_parquet(directory / TIMESERIES),
        iterations=read_iterations(directory / ITERATIONS),
        scenario=_scenario(directory, assumed="assumed" in manifest),
        hashes=hashes,
    )


def check_same_traffic(run: ObservedRun, other: ObservedRun) -> None:
    """Raise UsageError unless ``other`` served the same requests, so that it is a repetition."""
    columns = ["prompt_tokens", "output_tokens"]
    ours, theirs = run.requests[columns].to_numpy(), other.requests[columns].to_numpy()
    why = ""
    if ours.shape != theirs.shape or (ours != theirs).any():
        why = "its requests are others"
    elif _times_differ(run, other):
        why = "its requests came at other times"
    else:
        settings = [r.scenario.resolved() for r in (run, other)]
        different = [key for key in SETTINGS if settings[0][key] != settings[1][key]]
        if different:
            why = f"it ran with another {' and another '.join(different)}"
    if why:
        raise UsageError(f"--repeat {other.path}: is no repetition of {run.path}: {why}")


def _times_differ(run: ObservedRun, other: ObservedRun) -> bool:
    """Whether requests came at other times; in a closed loop the answers decide, so never."""
    kinds = [r.scenario.workload.arrivals for r in (run, other)]
    closed = [kind is not None and kind.kind == "closed" for kind in kinds]
    if any(closed):
        return not all(closed)
    ours, theirs = (r.requests["arrival_s"].to_numpy(np.float64) for r in (run, other))
    apart = np.abs((ours - ours[0]) - (theirs - theirs[0]))
    return bool(np.median(apart) > SLACK * (1.0 + ours[-1] - ours[0]))


def _requests(directory: Path) -> pd.DataFrame:
    path = directory / REQUESTS
    found = _parquet(path)
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise UsageError(f"{path}: has no column {', '.join(missing)}")
    arrivals = found["arrival_s"].to_numpy(np.float64)
    if not np.isfinite(arrivals).all() or (arrivals < 0).any():
        raise UsageError(f"{path}: arrival_s must be known, and 0 or more, for every request")
    return found


def _parquet(path: Path) -> pd.DataFrame:
    try:
        with path.open("rb") as file:
            return pd.read_parquet(file)
    except OSError as error:
        reason = error.strerror or "not a Parquet file"
        raise UsageError(f"{path}: cannot be read ({reason})") from None
    except ValueError as error:
        raise UsageError(f"{path}: cannot be read ({str(error).partition('.')[0]})") from None


def _json(directory: Path, name: str) -> dict[str, Any]:
    path = directory / name
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{directory}: is no run directory: {name} cannot be read ({error.strerror})"
        ) from None
    except ValueError:
        raise UsageError(f"{path}: is not JSON") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path}: is not a JSON object")
    return document


def _scenario(directory: Path, *, assumed: bool) -> Scenario:
    """The scenario of the run; where some of its settings are ``assumed``, the file that leaves
    those out, so that it is known what was stated."""
    for name in (SCENARIO, RESOLVED) if assumed else (RESOLVED, SCENARIO):
        if (directory / name).is_file():
            return load_scenario(directory / name)
    raise UsageError(f"{directory}: has neither {RESOLVED} nor {SCENARIO}")
