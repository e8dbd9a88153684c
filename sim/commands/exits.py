"""Defines the exit codes of the commands, and the messages before them.

0 ok, 1 failure, 2 usage or invalid scenario, 3 infeasible, 99 SLO missed under ``--check``, 130
interrupted (Ctrl-C), 143 terminated (SIGTERM); after both, partial results are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import typer

from sim.errors import TRACEBACK, InfersimError, UsageError, printable

INFEASIBLE = 3
SLO_MISSED = 99
SIGNALLED = 128
"""Plus the number of the signal, as shells count: 130 for SIGINT, 143 for SIGTERM."""
INTERRUPTED = SIGNALLED + 2


def check_checkout(command: str, package: str) -> None:
    """UsageError where ``package`` is not there, which only a checkout has: it makes the evidence
    and the profiles of the catalogue."""
    if find_spec(package) is None:
        raise UsageError(
            f"`infersim {command}` needs a checkout of the repository: {package} is not in the "
            "installed package"
        )


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn a user's mistake into its message and exit code, never into a traceback."""
    try:
        yield
    except InfersimError as error:
        if os.environ.get(TRACEBACK):
            import traceback

            traceback.print_exception(error)
        typer.echo(f"error: {printable(str(error))}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None
