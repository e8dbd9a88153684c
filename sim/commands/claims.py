"""Provides the ``infersim claims`` command, on top of ``sim.planning.claims``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.commands.answer import deliver, free_directory
from sim.commands.exits import plain_errors
from sim.commands.options import AnswerOutput, AsJson, Jobs, Report


def claims(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER...", help="Claims, or folders of them."),
    ],
    jobs: Jobs = -1,
    output: AnswerOutput = None,
    as_json: AsJson = False,
    report: Report = True,
) -> None:
    """Test claims about serving by simulation; exit with 1 if one comes out unexpectedly."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.claims.check import check_claims
        from sim.planning.claims.claim import read_claims
        from sim.planning.points.executors import local
        from sim.terminal.claims import claims_view

        found = read_claims(paths)
        directory = free_directory(output, "claims")
        with progress("claims") as tell:
            answer = check_claims(found, local(jobs), tell)
        deliver(answer, directory, claims_view, page="claims", report=report, as_json=as_json)
    raise typer.Exit(1 if answer["unexpected"] else 0)
