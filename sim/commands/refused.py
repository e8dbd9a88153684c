"""Writes the page of a question that has no answer: what does not fit, or which fleets do not hold.

The command still ends with its message and exit code; the page has the reason to pass on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sim.commands.output import made
from sim.errors import InfeasibleError

if TYPE_CHECKING:
    from sim.scenario import Scenario


@contextmanager
def explained(
    scenario: Scenario, directory: Path | None, *, own_load: bool = True
) -> Iterator[None]:
    """Where the block finds that nothing can be served, a page in ``directory`` (None: no page)
    says why, and the error goes on; ``own_load``: it was asked of the scenario's own load."""
    try:
        yield
    except InfeasibleError as error:
        if directory is not None:
            _write(scenario, directory, error, own_load)
        raise


def _write(scenario: Scenario, directory: Path, error: InfeasibleError, own_load: bool) -> None:
    """Write the page; a failure costs the page only, with a warning."""
    try:
        from reports.pages.planning.findings import render
        from sim.metrics.question.question_text import asked, changed
        from sim.results.run_directory import REFUSAL
        from sim.results.whole_file import write_text
        from sim.version import version

        document = {
            "infersim": version(),
            "scenario": scenario.name,
            "asked": asked(scenario) | changed(scenario) | ({} if own_load else {"traffic": ""}),
            "title": error.title,
            "detail": error.detail,
            "layouts": error.layouts,
            "parts": error.parts,
            "made": made(),
        }
        directory.mkdir(parents=True, exist_ok=True)
        page = directory / REFUSAL
        write_text(page, render("refused", document))
    except Exception as failure:
        typer.echo(f"warning: no page was written ({type(failure).__name__}: {failure})", err=True)
        return
    typer.echo(f"Why not: {page}", err=True)
