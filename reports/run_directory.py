"""What does a run directory hold that a report needs?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from sim.errors import UsageError

MANIFEST, CHARTS = "manifest.json", "charts.json"
REQUIRED = ("summary.json", "requests.parquet", "timeseries.parquet", "resolved.yaml")
"""The files of a run that a report is made from; older versions wrote no ``CHARTS``."""


@dataclass(frozen=True, slots=True)
class Run:
    """One finished or interrupted run; columns and keys as the run directory's README has them.

    ``charts`` is empty for a directory that an older version wrote.
    """

    summary: Mapping[str, Any]
    requests: pd.DataFrame
    timeseries: pd.DataFrame
    scenario_yaml: str
    status: str = "complete"
    charts: Mapping[str, Any] = field(default_factory=dict)


def read(directory: Path) -> Run:
    """The run in ``directory``; UsageError when a file of ``REQUIRED`` is missing or unreadable."""
    found = status(directory)
    missing = [name for name in REQUIRED if not (directory / name).is_file()]
    if missing and found == "incomplete":
        raise UsageError(
            f"{directory} is incomplete: its run is still going, or was killed before it had "
            f"written {', '.join(missing)}"
        )
    if missing:
        raise UsageError(f"{directory} is not a run directory: it has no {', '.join(missing)}")
    return Run(
        summary=_document(directory / "summary.json"),
        requests=pd.read_parquet(directory / "requests.parquet"),
        timeseries=pd.read_parquet(directory / "timeseries.parquet"),
        scenario_yaml=(directory / "resolved.yaml").read_text(encoding="utf-8"),
        status=found,
        charts=_document(directory / CHARTS) if (directory / CHARTS).is_file() else {},
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no JSON object")
    return found


def status(directory: Path) -> str:
    """What the manifest says of the run: complete, interrupted (partial results) or incomplete.

    ``unknown`` where there is no manifest, or one that says nothing of it.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        return str(pick(manifest, "status"))
    except (OSError, ValueError, UsageError):
        return "unknown"


def pick(summary: Mapping[str, Any], path: str) -> Any:
    """The entry of ``summary`` at a dotted path; UsageError names the path that does not exist.

    >>> pick({"infersim": {"batch": {"iterations": 7}}}, "infersim.batch.iterations")
    7
    """
    value: Any = summary
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise UsageError(f"the summary of this run has no entry {path!r}")
        value = value[key]
    return value


def known(summary: Mapping[str, Any], path: str) -> Any:
    """As ``pick``, but None for an entry that older versions did not write.

    >>> known({"infersim": {"memory": None}}, "infersim.operators") is None
    True
    """
    try:
        return pick(summary, path)
    except UsageError:
        return None
