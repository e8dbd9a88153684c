"""What do studies of one scenario share at the command line? Directory, result, page, answer.

The directory appears when everything is simulated; ``result.json`` is in it before a page is tried.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.scenario import Scenario

RESULT, PAGE = "result.json", "report.html"

Document = dict[str, Any]

Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value, as a.b.0.c=value."),
]
Jobs = Annotated[
    int, typer.Option(help="Processes that simulate side by side; -1: one for each core.")
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Directory; else runs/<time>-<name>-<command>-<id>."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, no table.")]
Report = Annotated[bool, typer.Option(help="Write report.html.")]


def free_directory(output: Path | None, scenario: Scenario, command: str) -> Path:
    """Where the study goes; UsageError, before anything is simulated, if that is taken."""
    from sim.run_directory import check_free, new_run_directory

    directory = output or new_run_directory(Path("runs"), f"{scenario.name}-{command}")
    check_free(directory)
    return directory


def finish(
    scenario: Scenario,
    document: Document,
    directory: Path,
    *,
    view: Callable[[Document], RenderableType],
    write_page: Callable[[Path, Document], Path] | None,
    as_json: bool,
    advice: Callable[[Document], RenderableType] | None = None,
) -> None:
    """Write the result, then try the page, then print: ``view`` in 88 columns, ``advice`` in lines
    of any length."""
    from sim.run_directory import RunDirectory, write_json

    place = RunDirectory.create(directory, scenario)
    write_json(place.path / RESULT, document)
    place.finish("complete")
    page = None if write_page is None else _page(write_page, place.path / PAGE, document)
    if as_json:
        shown = document | {
            "directory": str(directory),
            "page": None if page is None else str(page),
        }
        typer.echo(json.dumps(shown, allow_nan=False))
        return
    from sim.console import paths_view, stdout

    console = stdout()
    console.print(view(document))
    if advice is not None:
        console.print(advice(document), soft_wrap=True)
    console.print(paths_view(directory, page), soft_wrap=True)


def _page(write: Callable[[Path, Document], Path], target: Path, document: Document) -> Path | None:
    """Write the page; a failure costs the page only, with a warning."""
    try:
        return write(target, document)
    except Exception as error:
        typer.echo(f"warning: no page was written ({type(error).__name__}: {error})", err=True)
        return None
