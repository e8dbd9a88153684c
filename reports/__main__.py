"""``python -m reports RUN_DIR``: make report.html of a run again, from the run's own files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports import write_report
from reports.run_directory import read
from sim.errors import InfersimError


def main(arguments: list[str] | None = None) -> int:
    """Re-render one run directory; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m reports", description="Make report.html again."
    )
    parser.add_argument("run_dir", type=Path, help="a run directory, as infersim run wrote it")
    directory: Path = parser.parse_args(arguments).run_dir
    try:
        run = read(directory)
        path = write_report(
            directory,
            summary=run.summary,
            requests=run.requests,
            timeseries=run.timeseries,
            scenario_yaml=run.scenario_yaml,
            charts=run.charts,
        )
    except InfersimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if run.status != "complete":
        print(f"{directory}: status of the run: {run.status}", file=sys.stderr)
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
