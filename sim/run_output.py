"""How is a run shown while it goes on, saved, and told in the end, simulated or observed?"""

# ruff: noqa: PLC0415 - heavy imports are deferred so that --help stays fast

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sim.errors import InfersimError

if TYPE_CHECKING:
    from sim.clock import Stop
    from sim.results import Result
    from sim.run_directory import RunDirectory


@contextmanager
def progress(what: str = "requests") -> Iterator[Callable[[int, int], None] | None]:
    """A bar of ``what`` on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from sim.console import stderr

    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr(), transient=True) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def save(result: Result, place: RunDirectory, stop: Stop) -> None:
    """Write ``result``, whatever was signalled before; InfersimError where it cannot be written."""
    stop.renew()
    try:
        result.save(place)
    except OSError as error:
        raise InfersimError(
            f"cannot write to {place.path} ({error.strerror}): the run there is incomplete"
        ) from None


def write_page(result: Result, directory: Path) -> Path | None:
    """Write the page of a run that is saved; a failure costs the page only, with a warning."""
    try:
        from reports import write_report

        return write_report(directory, **result.page_contents())
    except Exception as error:
        typer.echo(f"warning: no report was written ({type(error).__name__}: {error})", err=True)
        return None


def show(result: Result, directory: Path, page: Path | None, as_json: bool) -> None:
    """Print what came of the run: one JSON object, or the tables and where the files are."""
    summary = result.summary
    try:
        if as_json:
            shown = summary | {"infersim": summary["infersim"] | {"run_directory": str(directory)}}
            typer.echo(json.dumps(shown, allow_nan=False))
            return
        from sim.console import paths_view, stdout
        from sim.run_view import run_view

        console = stdout()
        console.print(run_view(summary, result.timeline()))
        console.print(paths_view(directory, page), soft_wrap=True)
    except BrokenPipeError:
        raise  # the reader has seen enough
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing left to flush
        raise InfersimError(f"cannot print ({error.strerror}); the run is in {directory}") from None
