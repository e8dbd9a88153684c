"""Provides the ``infersim sensitivity`` command, on top of ``sim.planning.causes.sensitivity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.commands.answer import deliver
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides, ScaleTrace


@with_records
def sensitivity(
    scenario: Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")],
    ranges: Annotated[
        list[str],
        typer.Option(
            "--range",
            metavar="NAME=LOW:HIGH",
            help="Range of factors for an input; repeat for more.",
        ),
    ] = [],
    overrides: Overrides = [],
    scale: ScaleTrace = "compress",
    *,
    how: Answering,
) -> None:
    """Show how far the verdict depends on uncertain inputs: times, overhead, lengths, ..."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.causes.sensitivity import sensitivity as run
        from sim.planning.causes.sensitivity_document import document
        from sim.planning.causes.uncertain import read_ranges
        from sim.planning.points.executors import local
        from sim.scenario import load_scenario
        from sim.terminal.sensitivity import sensitivity_view

        loaded = load_scenario(scenario, overrides)
        directory = how.directory(f"{loaded.name}-sensitivity")
        wanted = read_ranges(ranges)
        with progress("runs") as tell:
            found = run(loaded, local(how.jobs), ranges=wanted, scale=scale, tell=tell)
        deliver(
            document(found),
            directory,
            sensitivity_view,
            page="sensitivity",
            how=how,
            scenario=loaded,
        )
