"""Shows a run while it goes on, saves it, and prints its results, simulated or observed."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sim.errors import InfersimError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.loop.clock import Stop
    from sim.results.run_directory import RunDirectory
    from sim.results.run_result import RunResult


INTERVAL, LONGEST = 10.0, 60.0
"""Seconds before the first line of progress where stderr is no terminal, shorter work has none; and
the most between two lines, which are as far apart as the work has lasted until then."""

KNOWN = 0.25
"""The share of the work that is done before the time left is said: less has no pace yet."""

MANY_RUNS, MUCH = 200, 2**30
"""Directories and bytes from which on ``runs/`` is worth a note."""

MOST_WEIGHED = 2_000
"""Directories whose sizes are added up; more take longer than a note is worth."""


class Paced:
    """Prints a few of many lines on stderr, none in the first ``INTERVAL``."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._next = self._begun + INTERVAL
        self._left = math.inf  # seconds, as they were said

    def tell(self, text: str, done: float, total: float) -> None:
        """Print ``text``, with the time left, if it is time for a line."""
        now = time.monotonic()
        if now >= self._next:
            typer.echo(f"{text}{self._time_left(now, done, total)}", err=True)
            self._next = now + min(max(now - self._begun, INTERVAL), LONGEST)

    def count(self, what: str, done: int, total: int) -> None:
        """Shows ``done`` of ``total``, with the time left at this pace."""
        self.tell(f"{what}: {done:,} of {total:,}", done, total)

    def _time_left(self, now: float, done: float, total: float) -> str:
        """The time left at this pace, to end a line with; nothing where there is no pace yet, or
        where less was said before, which cannot be kept."""
        if not KNOWN * total <= done < total or done <= 0:
            return ""
        left = (now - self._begun) * (total - done) / done
        if left > self._left:
            return ""
        self._left = left
        return f", about {_duration(left)} left"


def _duration(seconds: float) -> str:
    """A remaining time, in whole seconds or minutes.

    >>> _duration(42.4), _duration(340)
    ('42 s', '6 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


@contextmanager
def progress(what: str = "requests") -> Iterator[Callable[[int, int], None]]:
    """A bar of ``what`` on stderr, if that is a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        paced = Paced()
        yield lambda done, total: paced.count(what, done, total)
        return
    from sim.terminal.progress import bar

    with bar(what) as drawn:
        yield drawn.count


def note_size(directory: Path) -> None:
    """Say on stderr how much the folder of ``directory`` holds, if that is ``runs`` and large."""
    root = directory.parent
    if root != Path("runs"):
        return
    try:
        folders = [entry.path for entry in os.scandir(root) if entry.is_dir()]
        size = sum(
            entry.stat().st_size for path in folders[:MOST_WEIGHED] for entry in os.scandir(path)
        )
    except OSError:  # a run that is removed meanwhile
        return
    if len(folders) >= MANY_RUNS or size >= MUCH:
        from sim.units import show_bytes

        more = "" if len(folders) <= MOST_WEIGHED else "more than "
        told = f"{len(folders):,} directories, {more}{show_bytes(size)}"
        typer.echo(
            f"note: {root}/ holds {told}; remove what you no longer need, or run with --no-save",
            err=True,
        )


def save(result: RunResult, place: RunDirectory, stop: Stop) -> None:
    """Write ``result``, whatever was signalled before; InfersimError where it cannot be written."""
    stop.renew()
    try:
        result.add_changes()
        result.save(place)
    except OSError as error:
        raise InfersimError(
            f"cannot write to {place.path} ({error.strerror}): the run there is incomplete"
        ) from None


def made() -> dict[str, str]:
    """When and by which command something is made: for its page, and for the manifest of a run, not
    for ``result.json``, which is the same for the same question."""
    date = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z")
    command = shlex.join(["infersim", *sys.argv[1:]])
    # the bytes of an argument that are no text are shown, not kept
    return {"date": date, "command": command.encode("utf-8", "backslashreplace").decode("utf-8")}


def write_page(result: RunResult, directory: Path) -> Path | None:
    """Write the page of a run that is saved; a failure costs the page only, with a warning."""
    try:
        from reports import write_report

        return write_report(directory, **result.page_contents(), made=made())
    except Exception as error:
        typer.echo(f"warning: no report was written ({type(error).__name__}: {error})", err=True)
        return None


def print_view(view: RenderableType, *, full: bool) -> None:
    """Print an answer that is not saved, with a word on the rest where it is not ``full``."""
    from sim.planning.answers.brief import MORE
    from sim.terminal.console import stdout

    console = stdout()
    console.print(view)
    if not full:
        console.print(MORE, style="dim")


def show(
    result: RunResult,
    directory: Path | None,
    page: Path | None,
    as_json: bool,
    *,
    full: bool = True,
) -> None:
    """Print what came of the run: one JSON object, or the tables, or without ``full`` the first
    lines, and where the files are; the ``directory`` is None if nothing was written."""
    summary = result.summary
    try:
        if as_json:
            place = None if directory is None else str(directory)
            shown = summary | {"infersim": summary["infersim"] | {"run_directory": place}}
            typer.echo(json.dumps(shown, allow_nan=False))
            return
        from sim.planning.answers.brief import MORE
        from sim.terminal.console import paths_view, stdout
        from sim.terminal.findings import run_view

        console = stdout()
        console.print(run_view(summary, result.timeline() if full else None, full=full))
        if directory is not None:
            console.print(paths_view(directory, page, full=full), soft_wrap=True)
        if not full:
            console.print(MORE, style="dim")
    except BrokenPipeError:
        raise  # the reader has seen enough
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing left to flush
        kept = "nothing was written" if directory is None else f"the run is in {directory}"
        raise InfersimError(f"cannot print ({error.strerror}); {kept}") from None
