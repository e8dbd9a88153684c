"""Reads the files of a run directory that a report needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from sim.errors import UsageError
from sim.results.stored import CHARTS as CHART_SHAPES
from sim.results.stored import check, read_object, read_summary, read_table
from sim.results.trail_files import Trail, read_trail

MANIFEST, CHARTS, PAGE = "manifest.json", "charts.json", "report.html"
SERIES = (
    *("replica", "start_s", "end_s", "iterations", "decode_seqs", "prefill_seqs"),
    *("prefill_tokens", "running", "kv_used_tokens", "kv_reserved_tokens", "preemptions"),
)
"""Columns of the timeseries that every version wrote."""
REQUIRED = ("summary.json", "requests.parquet", "timeseries.parquet", "resolved.yaml")
"""The files of a run that a report is made from; older versions wrote no ``CHARTS``."""


class Frames(NamedTuple):
    """The tables of one run, as in its ``requests.parquet`` and ``timeseries.parquet``."""

    requests: pd.DataFrame
    timeseries: pd.DataFrame


@dataclass(frozen=True, slots=True)
class SavedRun:
    """One finished or interrupted run; columns and keys as the run directory's README has them.

    ``charts`` is empty and ``trail`` None for a directory that an older version wrote. ``made`` has
    the ``date`` and the ``command`` of the run, as far as its manifest says them; ``page`` is where
    its page is, seen from the page that draws it among others.
    """

    summary: Mapping[str, Any]
    requests: pd.DataFrame
    timeseries: pd.DataFrame
    scenario_yaml: str
    status: str = "complete"
    charts: Mapping[str, Any] = field(default_factory=dict)
    trail: Trail | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    page: str = ""


def read(directory: Path) -> SavedRun:
    """The run in ``directory``; UsageError when a file of ``REQUIRED`` is missing, or holds what no
    run writes."""
    found = status(directory)
    missing = [name for name in REQUIRED if not (directory / name).is_file()]
    if missing and found == "incomplete":
        raise UsageError(
            f"{directory} is incomplete: its run is still going, or was killed before it had "
            f"written {', '.join(missing)}"
        )
    if missing:
        raise UsageError(f"{directory} is not a run directory: it has no {', '.join(missing)}")
    charts = directory / CHARTS
    drawn = read_object(charts) if charts.is_file() else {}
    check(str(charts), drawn, CHART_SHAPES)
    try:
        scenario = (directory / "resolved.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{directory / 'resolved.yaml'}: cannot be read ({error})") from None
    requests = read_table(directory / "requests.parquet", ("request_id", "status"))
    timeseries = read_table(directory / "timeseries.parquet", SERIES)
    return SavedRun(
        summary=read_summary(directory / "summary.json"),
        requests=requests,
        timeseries=timeseries,
        scenario_yaml=scenario,
        status=found,
        charts=drawn,
        trail=read_trail(directory, requests, timeseries),
        made=made(directory),
    )


def made(directory: Path) -> dict[str, str]:
    """When and by which command a run was made, as far as its manifest says it."""
    try:
        manifest = read_object(directory / MANIFEST)
    except UsageError:
        return {}
    date = str(manifest.get("created") or "").replace("T", " ")
    told = {"date": date, "command": str(manifest.get("command") or "")}
    return {key: text for key, text in told.items() if text}


def status(directory: Path) -> str:
    """The run's status in its manifest: complete, interrupted (partial results) or incomplete.

    ``unknown`` where there is no manifest, or one that says nothing of it.
    """
    try:
        return str(pick(read_object(directory / MANIFEST), "status"))
    except UsageError:
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
    """``pick``, but None for an entry that older versions did not write.

    >>> known({"infersim": {"memory": None}}, "infersim.operators") is None
    True
    """
    try:
        return pick(summary, path)
    except UsageError:
        return None
