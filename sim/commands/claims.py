"""Provides the ``infersim claims`` command, on top of ``sim.planning.claims``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.commands.answer import deliver
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors


@with_records
def claims(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER...", help="Claims, or folders of them."),
    ],
    *,
    how: Answering,
) -> None:
    """Test claims about serving by simulation; exit with 1 if one comes out unexpectedly."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.claims.check import check_claims
        from sim.planning.claims.claim import read_claims
        from sim.planning.points.executors import local
        from sim.scenario import shipped
        from sim.terminal.claims import claims_view

        found = read_claims([shipped.found(path) for path in paths])
        directory = how.directory("claims")
        with progress("claims") as tell:
            answer = check_claims(found, local(how.jobs), tell)
        deliver(answer, directory, claims_view, page="claims", how=how)
    raise typer.Exit(1 if answer["unexpected"] else 0)
