"""Pages to look at: one offline HTML file per run.

``write_report`` puts ``report.html`` into a run directory, ``render`` makes the same page as text.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.page import render

__all__ = ["render", "write_report"]


def write_report(
    directory: Path,
    *,
    summary: Mapping[str, Any],
    requests: pd.DataFrame,
    timeseries: pd.DataFrame,
    scenario_yaml: str,
) -> Path:
    """Write ``report.html`` into ``directory``, which exists, and return its path.

    The arguments are those of ``render``. The file appears whole or not at all: an older report
    stays until the new one is complete.
    """
    page = render(
        summary=summary, requests=requests, timeseries=timeseries, scenario_yaml=scenario_yaml
    )
    target = directory / "report.html"
    handle, name = tempfile.mkstemp(dir=directory, prefix=".report-", suffix=".html")
    partial = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
        partial.chmod(0o644)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return target
