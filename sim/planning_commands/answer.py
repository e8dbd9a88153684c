"""How does the answer to one question get onto the disk, into a page and onto the screen?

``result.json`` first, then the page, then the terminal: what fails later costs nothing that was
found before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sim.errors import InfersimError

if TYPE_CHECKING:
    from rich.console import RenderableType

RESULT, PAGE = "result.json", "report.html"

Document = Mapping[str, Any]


def free_directory(output: Path | None, name: str) -> Path:
    """Where the answer goes; UsageError, before anything is simulated, if it cannot."""
    from sim.run_directory import check_free, new_run_directory

    directory = output or new_run_directory(Path("runs"), name)
    check_free(directory)
    return directory


def finish(
    document: Document,
    directory: Path,
    *,
    view: Callable[[Document], RenderableType],
    write_page: Callable[[Path, Document], object] | None,
    as_json: bool,
) -> None:
    """Save the answer, make its page, and print it."""
    from sim.run_directory import write_json

    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / RESULT, dict(document))
    except OSError as error:
        raise InfersimError(f"cannot write to {directory}: {error.strerror}") from None
    page = None if write_page is None else _page(document, directory / PAGE, write_page)
    if as_json:
        places = {"directory": str(directory), "page": None if page is None else str(page)}
        typer.echo(json.dumps({**document, **places}, allow_nan=False))
        return
    from sim.console import paths_view, stdout

    console = stdout()
    console.print(view(document))
    console.print(paths_view(directory, page), soft_wrap=True)


def _page(
    document: Document, target: Path, write_page: Callable[[Path, Document], object]
) -> Path | None:
    try:
        write_page(target, document)
    except Exception as error:
        typer.echo(f"warning: no report was written ({type(error).__name__}: {error})", err=True)
        return None
    return target


def tell(text: str) -> None:
    """A line of progress on stderr, if that is a terminal."""
    if sys.stderr.isatty():
        typer.echo(text, err=True)
