"""Provides the ``infersim ablate`` command, on top of ``sim.planning.causes.ablate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.commands.answer import deliver
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides


@with_records
def ablate(
    scenario: Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")],
    order: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="Order in which techniques are added; default: the usual one."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option("--baseline-batch", min=1, max=65_536, help="Batch size of the baseline.")
    ] = 8,
    saturate: Annotated[
        bool,
        typer.Option(
            "--saturate", help="Send all requests at once, so that throughput is capacity."
        ),
    ] = False,
    overrides: Overrides = [],
    *,
    how: Answering,
) -> None:
    """Take a speed-up apart: what each technique brings over static, unpaged 16-bit batches."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.causes.ablate import ablate as run
        from sim.planning.causes.ablate_document import document
        from sim.planning.points.executors import local
        from sim.scenario import load_scenario
        from sim.terminal.ablate import ablate_view

        loaded = load_scenario(scenario, overrides)
        directory = how.directory(f"{loaded.name}-ablate")
        names = None if order is None else [name.strip() for name in order.split(",")]
        with progress("runs") as tell:
            found = run(
                loaded, local(how.jobs), order=names, batch=batch, saturate=saturate, tell=tell
            )
        deliver(document(found), directory, ablate_view, page="ablate", how=how, scenario=loaded)
