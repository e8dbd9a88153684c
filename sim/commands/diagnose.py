"""Provides the ``infersim diagnose`` command, on top of ``sim.planning.causes.diagnose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.commands.answer import deliver
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides
from sim.errors import UsageError


@with_records
def diagnose(
    asked: Annotated[
        Path, typer.Argument(metavar="SCENARIO|RUN", help="A scenario, or a run directory.")
    ],
    overrides: Overrides = [],
    *,
    how: Answering,
) -> None:
    """Find what limits a run and what to change first, if anything, by runs with each change."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.causes.diagnose import diagnose as run
        from sim.planning.causes.diagnose_document import document
        from sim.planning.points.executors import local
        from sim.scenario import load_scenario
        from sim.terminal.diagnose import advice_view, diagnose_view

        file = _scenario_of(asked)
        loaded = load_scenario(file, overrides)
        directory = how.directory(f"{loaded.name}-diagnose")
        with progress("runs") as tell:
            found = run(loaded, local(how.jobs), target=str(file), given=overrides, tell=tell)
        deliver(
            document(found),
            directory,
            diagnose_view,
            page="diagnose",
            how=how,
            scenario=loaded,
            advice=advice_view,
        )


def _scenario_of(asked: Path) -> Path:
    """The scenario itself, or what a run directory has of it."""
    if not asked.is_dir():
        return asked
    resolved = asked / "resolved.yaml"
    if not resolved.is_file():
        raise UsageError(f"{asked}: has no resolved.yaml, so it is no directory of a run")
    return resolved
