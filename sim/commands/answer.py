"""Brings the answer to a question to the disk, into a page and onto the screen.

``result.json`` first, then the page, then the terminal: what fails later costs nothing that was
found before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sim.commands.answering import Answering
from sim.commands.output import Paced, made, note_size
from sim.errors import InfersimError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.findings import Heading
    from sim.scenario import Scenario

RESULT, PAGE = "result.json", "report.html"

Document = Mapping[str, Any]
View = Callable[[Document], "RenderableType"]
WritePage = Callable[[Path, Document], object]


def save(document: Document, directory: Path, scenario: Scenario | None = None) -> None:
    """Write the answer, and the ``scenario`` that it is about, if it is a single one."""
    from sim.results.run_directory import RunDirectory, write_json

    place = None if scenario is None else RunDirectory.create(directory, scenario)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / RESULT, dict(document))
        if place is not None:
            place.finish("complete")
    except OSError as error:
        raise InfersimError(f"cannot write to {directory}: {error.strerror}") from None


def deliver(
    document: Document,
    directory: Path | None,
    *,
    page: str,
    how: Answering,
    scenario: Scenario | None = None,
) -> None:
    """``save`` an answer in ``directory``, if there is one, and ``present`` the findings of the
    command ``page``, with their page if a report is wanted."""
    from sim.terminal.findings import command_actions, command_view

    if directory is not None:
        save(document, directory, scenario)
    present(
        document,
        directory,
        view=partial(command_view, page, full=how.full),
        write_page=page_writer(page, how.report),
        as_json=how.as_json,
        advice=partial(command_actions, page, full=how.full),
        full=how.full,
    )


def present(
    document: Document,
    directory: Path | None,
    *,
    view: View,
    write_page: WritePage | None,
    as_json: bool,
    advice: View | None = None,
    full: bool = True,
) -> None:
    """Write the page of an answer that is saved, if possible, then print: one JSON object, or
    ``view`` in 88 columns and ``advice`` in lines of any length, with a word on the rest where
    these are not ``full``. Nothing is written without a ``directory``.
    """
    shown, page = {**document, "made": made()}, None
    if write_page is not None and directory is not None:
        page = _page(write_page, directory / PAGE, shown)
    if as_json:
        written = {"directory": directory, "page": page}
        places = {what: None if path is None else str(path) for what, path in written.items()}
        typer.echo(json.dumps({**document, **places}, allow_nan=False))
        return
    from sim.planning.answers.brief import MORE
    from sim.terminal.console import paths_view, stdout

    console = stdout()
    console.print(view(document))
    if advice is not None:
        console.print(advice(document), soft_wrap=True, end="")
    if directory is not None:
        console.print(paths_view(directory, page, full=full), soft_wrap=True)
    if not full:
        console.print(MORE, style="dim")
    if directory is not None:
        note_size(directory)


def page_writer(
    command: str, wanted: bool, draws: Callable[[Document, Path], Heading] | None = None
) -> WritePage | None:
    """A function that writes the page of ``command``'s answer; None if no page is ``wanted``.

    ``draws`` gives the section beyond the answer, which is saved in that folder.
    """

    def write(target: Path, document: Document) -> None:
        from reports.pages.planning.findings import render
        from sim.results.whole_file import write_text

        more = None if draws is None else draws(document, target.parent)
        write_text(target, render(command, document, more))

    return write if wanted else None


def _page(write_page: WritePage, target: Path, document: Document) -> Path | None:
    """Write the page; a failure costs the page only, with a warning."""
    try:
        write_page(target, document)
    except Exception as error:
        typer.echo(f"warning: no report was written ({type(error).__name__}: {error})", err=True)
        return None
    return target


def exit_code(codes: Iterable[int], which: str) -> int:
    """0 if any of many variants has figures; else what all of them ended with, 1 if they differ;
    ``which`` names them for a message."""
    found = set(codes)
    if 0 in found:
        return 0
    typer.echo(f"all {which} failed", err=True)
    return found.pop() if len(found) == 1 else 1


@dataclass(frozen=True)
class Reporting:
    """How a search reports progress: a line for each step, and the share that is done."""

    say: Callable[[str], None]
    count: Callable[[float, float], None]


@contextmanager
def telling(command: str) -> Iterator[Reporting]:
    """Lines above a bar with the time left on stderr, if that is a terminal; else a line now and
    then."""
    if not sys.stderr.isatty():
        paced, far, at = Paced(), [0.0, 0.0], ["simulating"]

        def say(text: str) -> None:
            at[0] = text
            paced.tell(f"{command}: {text}", *far)

        def count(done: float, total: float) -> None:
            far[:] = done, total
            paced.tell(f"{command}: {at[0]}", *far)

        yield Reporting(say, count)
        return
    from sim.terminal.progress import bar

    with bar(command, counted=False) as drawn:
        yield Reporting(drawn.say, drawn.count)
