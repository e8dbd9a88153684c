"""The ``infersim score`` command: published measurements beside predictions.

Results go to stdout, progress and complaints to stderr, exit codes as everywhere (``sim.exits``).
What takes long to import is imported when it is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sim.exits import told_errors


def score(
    measured: Annotated[
        list[Path],
        typer.Argument(help="Tables of measurements (CSV), or folders with a log of requests."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, no table.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(help="Processes that simulate side by side; -1: one for each core.")
    ] = -1,
) -> None:
    """Predict every row of tables of measurements, and say how far off the predictions are."""
    with told_errors():
        from sim.console import stdout
        from sim.run_output import progress
        from sim.scoring import score_all
        from sim.scoring.document import to_document, view

        with progress() as tell:
            rows = score_all(measured, jobs=jobs, progress=tell)
        if as_json:
            typer.echo(json.dumps(to_document(rows), allow_nan=False))
        else:
            stdout().print(view(rows))
