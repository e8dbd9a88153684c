"""Adds the commands of ``calibrate``, with ``calibrate report`` and ``diff`` among them.

These two join what other packages know of a profile to the commands that measure and fit: a
profile can be examined where nothing can be measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.commands.calibrate import app
from sim.commands.catalog import explain_limits, explain_scenario
from sim.commands.exits import plain_errors
from sim.commands.observe import explain, observe
from sim.commands.options import AsJson
from sim.commands.output import made
from sim.errors import InfersimError

if TYPE_CHECKING:
    from calibrate.inspection.find import FoundProfile

__all__ = ["app", "diff", "explain", "observe", "report"]

explain.command("scenario")(explain_scenario)
explain.command("limits")(explain_limits)

Profiled = Annotated[str, typer.Argument(help="A GPU file with a profile, or a catalogue name.")]
Framework = Annotated[
    str,
    typer.Option(
        help="Framework whose kernels to use, unless the name includes it (h100-sxm.sglang)."
    ),
]


@app.command()
def report(
    profile: Profiled,
    framework: Framework = "vllm",
    measurements: Annotated[
        Path | None,
        typer.Option(
            help="Measurements the profile was fitted to; default: the CSV file next to it."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Page to write; default: NAME.html.")
    ] = None,
    page: Annotated[
        bool, typer.Option("--page/--no-page", " /--no-report", help="Write a page.")
    ] = True,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Print the parameters too.")
    ] = False,
) -> None:
    """Show a profile: errors, measured against predicted, ceilings, parameters."""
    with plain_errors():
        from calibrate.inspection.console import profile_view
        from calibrate.inspection.document import document, points
        from calibrate.inspection.find import find
        from calibrate.inspection.measured import read
        from sim.terminal.console import stdout

        found = find(profile, framework)
        path = measurements or found.measurements
        measured = None if path is None else read(path)
        described = document(found, measured)
        console = stdout()
        console.print(profile_view(described, parameters=parameters))
        if not page:
            return
        from reports.pages.profile.page import render_profile
        from sim.results.whole_file import write_text

        target = output or _next_to(found, profile)
        rendered = render_profile({**described, "made": made()}, points(found, measured))
        try:
            write_text(target, rendered)
        except OSError as error:
            raise InfersimError(f"{target}: cannot be written ({error.strerror})") from None
        console.print(f"Page: {target}", soft_wrap=True)


def _next_to(found: FoundProfile, given: str) -> Path:
    """Where the page goes by default: next to a file, else into the working directory."""
    path = Path(given)
    return path.with_suffix(".html") if path.is_file() else Path(f"{found.name}.html")


@app.command()
def diff(
    first: Profiled,
    second: Profiled,
    framework: Framework = "vllm",
    as_json: AsJson = False,
) -> None:
    """Compare two profiles: times over shapes that both have measured, parameters, errors."""
    with plain_errors():
        from calibrate.inspection.compare import compare, to_document
        from calibrate.inspection.console import comparison_view
        from calibrate.inspection.find import find
        from sim.terminal.console import stdout

        comparison = compare(find(first, framework), find(second, framework))
        if as_json:
            typer.echo(json.dumps(to_document(comparison), allow_nan=False))
        else:
            stdout().print(comparison_view(comparison))
