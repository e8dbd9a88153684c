"""Provides the report of a run: one HTML page that opens offline.

``write_report`` puts ``report.html`` into a run directory, ``render`` makes the same page as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.results.whole_file import write_text

if TYPE_CHECKING:
    import pandas as pd

    from sim.results.trail_files import Trail

__all__ = ["render", "write_report"]


def render(
    *,
    summary: Mapping[str, Any],
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    scenario_yaml: str,
    charts: Mapping[str, Any] | None = None,
    trail: Trail | None = None,
    made: Mapping[str, str] | None = None,
) -> str:
    """The report of one run as HTML; a function of its arguments alone.

    The arguments are the contents of ``summary.json``, ``requests.parquet``,
    ``timeseries.parquet``, ``resolved.yaml`` and ``charts.json``, and as ``trail`` of
    ``chunks.parquet`` and ``absences.parquet``; without the last three, as in old run directories,
    the page says what it lacks. ``made`` is the ``date`` and the ``command`` of the run, as far as
    known. Raises UsageError when the summary lacks an entry that the page shows and that was always
    there.
    """
    # Here and not above, so that a figure can be run alone without being imported twice.
    from reports.pages.run import page  # noqa: PLC0415

    return page.render(summary, requests, timeseries, scenario_yaml, charts or {}, trail, made)


def write_report(
    directory: Path,
    *,
    summary: Mapping[str, Any],
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    scenario_yaml: str,
    charts: Mapping[str, Any] | None = None,
    trail: Trail | None = None,
    made: Mapping[str, str] | None = None,
) -> Path:
    """Write ``report.html`` into ``directory``, which exists, and return its path.

    The arguments and errors are those of ``render``. The file appears whole or not at all: an
    older report stays until the new one is complete.
    """
    page = render(
        summary=summary,
        requests=requests,
        timeseries=timeseries,
        scenario_yaml=scenario_yaml,
        charts=charts,
        trail=trail,
        made=made,
    )
    target = directory / "report.html"
    write_text(target, page)
    return target
