"""``python -m reports RUN_DIR``: make report.html of a run again, from the run's own files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports import write_report
from reports.frame.run_directory import SavedRun, read
from sim.errors import InfersimError, printable, shorten


def main(arguments: list[str] | None = None) -> int:
    """Re-render one run directory; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m reports", description="Make report.html again."
    )
    parser.add_argument("run_dir", type=Path, help="a run directory, as infersim run wrote it")
    directory: Path = parser.parse_args(arguments).run_dir
    try:
        run = read(directory)
        path = _written(directory, run)
    except InfersimError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    if run.status != "complete":
        print(f"{directory}: status of the run: {run.status}", file=sys.stderr)
    print(path)
    return 0


def _written(directory: Path, run: SavedRun) -> Path:
    """The report of ``run``; InfersimError where its files, each good in itself, do not agree."""
    try:
        return write_report(
            directory,
            summary=run.summary,
            requests=run.requests,
            timeseries=run.timeseries,
            scenario_yaml=run.scenario_yaml,
            charts=run.charts,
            trail=run.trail,
            made=run.made,
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        told = shorten(" ".join(str(error).split()))
        raise InfersimError(
            f"{directory}: no page can be made of these files: they are not as a run left them "
            f"({type(error).__name__}: {told}); an earlier report.html is still there"
        ) from error


if __name__ == "__main__":
    raise SystemExit(main())
