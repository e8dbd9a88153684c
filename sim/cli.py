"""Provides the ``infersim`` command, a thin layer over the Python API.

Results go to stdout, everything else to stderr; ``sim.commands.exits`` has the exit codes. What
takes long to import is imported by the command that needs it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.commands.examples import add_examples
from sim.commands.exits import plain_errors
from sim.commands.options import AsJson, Overrides
from sim.errors import InfersimError, printable

if TYPE_CHECKING:
    from sim.scenario import Scenario

BEGIN, DECIDE = "To begin", "To decide"
REAL, LOOK = "Real engines and devices", "To look up"
FILES = "Other programs, and this one itself"
"""The parts of ``--help``, in the order in which their first commands are added."""


GARBAGE = 200_000
"""Objects that a command makes before Python looks for garbage among them. Starting makes 100,000
that stay, and each look through them takes a fiftieth of its time."""


def main() -> None:
    """Entry point of the console script."""
    gc.set_threshold(GARBAGE)
    # or pydantic looks for plugins in all packages that are installed
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a name that the terminal cannot show
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        (_made(named) if named in COMMANDS else _whole())()
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            _leave(left.code or 0)
        raise
    finally:
        gc.freeze()  # or Python, too, would look through everything before it ends


def _leave(code: int) -> None:
    """End this process at once, unless a thread, a profiler or a debugger is still at work: taking
    every object apart would take a tenth of the time of a short command."""
    if threading.active_count() > 1 or sys.getprofile() or sys.gettrace():
        return
    atexit._run_exitfuncs()
    with suppress(OSError):  # a closed pipe, of which Python tells when it ends by itself
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        from sim.version import core, version

        typer.echo(f"infersim {version()} ({core()})")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Predict the throughput and latency of LLM inference serving."""


def validate(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.")],
    overrides: Overrides = [],
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Load routers, policies and metrics of a file's own: runs their code."
        ),
    ] = False,
) -> None:
    """Check scenario files without running them.

    A scenario may name code of its own (module:Name, file.py:Name). It is checked, and so imported
    and run, with --trust or a yes at the prompt alone; `infersim run` always runs it.
    """
    from sim.pools import make_replica_scheduler
    from sim.scenario import load_scenario
    from sim.setup import prepare

    code = 0
    for file in files:
        try:
            scenario = load_scenario(file, overrides)
            if not trust:
                _agree(file, scenario)
            pools = prepare(scenario).pools
            for pool in pools:
                make_replica_scheduler(pool)
        except InfersimError as error:
            typer.echo(f"error: {printable(str(error))}", err=True)
            code = max(code, error.exit_code)
        else:
            typer.echo(f"{file}: ok")
            if scenario.max_model_len is None:
                for model in {
                    pool.deployment.model for pool in pools if pool.deployment.model.assumed_context
                }:
                    typer.echo(f"note: {file}: requests may have {model.made_for}", err=True)
    raise typer.Exit(code)


def _agree(file: Path, scenario: Scenario) -> None:
    """Ask whether the code that ``scenario`` names may run; UsageError without a yes."""
    from sim.errors import UsageError
    from sim.plugins import located
    from sim.setup import own_code

    named = [
        f"{noun} {text}" + ("" if (at := located(text, scenario.folders)) is None else f" ({at})")
        for text, noun in own_code(scenario).items()
    ]
    if not named:
        return
    told = f"{file} names code of its own, which a check runs: {', '.join(named)}"
    if sys.stdin.isatty() and sys.stderr.isatty():
        typer.echo(printable(told), err=True)
        if typer.confirm("Run it?", err=True):
            return
    raise UsageError(f"{told}; read it, then `infersim validate --trust {file}`")


def init(
    name: Annotated[str, typer.Argument(help="Name of the file; .yaml is added.")],
    like: Annotated[
        str,
        typer.Option(
            help="Which template: chat, batch, trace or code (a policy, order, router and metric "
            "of your own). Or a shipped scenario, such as agent."
        ),
    ] = "chat",
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file.")] = False,
) -> None:
    """Write a scenario to start from, every section of it explained."""
    with plain_errors():
        from sim.scenario import starter

        other = starter.companion(Path(name).parent, like)
        kept = other is not None and other.exists()
        path = starter.write(name, like, force=force)
    typer.echo(f"{path}: written; next: infersim run {shlex.quote(str(path))}")
    if other is not None:
        part = starter.COMPANIONS[like][1]
        told = f"was there, and is its {part} now" if kept else f"written, an example of its {part}"
        typer.echo(f"{other}: {told}")


def schema() -> None:
    """Print the JSON Schema of a scenario, with which editors complete and check one."""
    from sim.scenario.reference.json_schema import to_text

    typer.echo(to_text(), nl=False)


def selftest(
    as_json: AsJson = False,
) -> None:
    """Check the event loop against queueing theory; exit with 1 if a check fails."""
    from sim.selftest import checks, header, row

    done = []
    with plain_errors():
        if not as_json:
            typer.echo(header())
        for check in checks():
            done.append(check)
            if not as_json:
                typer.echo(row(check))
    failed = sum(not check.ok for check in done)
    if as_json:
        listed = [check.document() for check in done]
        typer.echo(json.dumps({"ok": not failed, "checks": listed}, allow_nan=False))
    else:
        told = f"{failed} of {len(done)} checks failed" if failed else f"all {len(done)} checks ok"
        typer.echo(told)
    raise typer.Exit(1 if failed else 0)


COMMANDS: Mapping[str, tuple[str, Callable[..., None] | str]] = {
    "init": (BEGIN, init),
    "import": (BEGIN, "import_server:import_server"),
    "validate": (BEGIN, validate),
    "run": (BEGIN, "run:run"),
    "ui": (BEGIN, "ui:ui"),
    "find": (DECIDE, "find:find"),
    "plan": (DECIDE, "plan:plan"),
    "compare": (DECIDE, "compare:compare"),
    "sweep": (DECIDE, "sweep:sweep"),
    "diagnose": (DECIDE, "studies:diagnose"),
    "ablate": (DECIDE, "studies:ablate"),
    "sensitivity": (DECIDE, "studies:sensitivity"),
    "claims": (DECIDE, "studies:claims"),
    "list": (LOOK, "catalog:list_catalogue"),
    "show": (LOOK, "catalog:show"),
    "fit": (LOOK, "analysis:fit"),
    "roofline": (LOOK, "analysis:roofline"),
    "observe": (REAL, "profiles:observe"),
    "serve": (REAL, "serve:serve"),
    "validate-run": (REAL, "validate:validate_run"),
    "score": (REAL, "score:score"),
    "export": (FILES, "export:export"),
    "schema": (FILES, schema),
    "selftest": (FILES, selftest),
}
"""The part of ``--help`` of each command that is in no group, and its function: of this module, or
``module:name`` below ``sim.commands``, which is imported when the command is made."""

GROUPS = {
    "explain": (LOOK, "profiles:explain"),
    "calibrate": (REAL, "profiles:app"),
    "trace": (FILES, "trace:app"),
}
"""Groups of commands, likewise."""


def _made(only: str | None = None) -> typer.Typer:
    """The whole command, or with ``only`` one of ``COMMANDS``: Typer makes the options of every
    command to run one of them, and importing all of them takes as long again."""
    app = typer.Typer(
        name="infersim",
        help="Predict the throughput and latency of LLM inference serving.",
        callback=_options,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for name in COMMANDS if only is None else (only,):
        panel, home = COMMANDS[name]
        app.command(name, rich_help_panel=panel)(_found(home) if isinstance(home, str) else home)
    for name, (panel, home) in GROUPS.items() if only is None else ():
        app.add_typer(_found(home), name=name, rich_help_panel=panel)
    add_examples(app)
    return app


def _found(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(import_module(f"sim.commands.{module}"), name)


@cache
def _whole() -> typer.Typer:
    return _made()


def __getattr__(name: str) -> typer.Typer:
    """The whole command as ``app``, made when somebody asks for it."""
    if name != "app":
        raise AttributeError(f"module 'sim.cli' has no attribute {name!r}")
    return _whole()


if __name__ == "__main__":
    main()
