"""What does ``infersim compare`` accept and print? A thin shell over ``sim.planning``.

Variants of one scenario, which are simulated, or run directories, which are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.errors import InfersimError, UsageError
from sim.exits import told_errors
from sim.run_output import progress


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="SCENARIO | RUN RUN...", help="A scenario, or run directories."),
    ],
    varied: Annotated[
        list[str],
        typer.Option("--vary", metavar="KEY=A,B", help="Values to compare; repeat for a grid."),
    ] = [],
    repetitions: Annotated[
        int | None, typer.Option(help="Runs of each variant under other seeds; else 5.")
    ] = None,
    overrides: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Override a value, as a.b.0.c=value."),
    ] = [],
    jobs: Annotated[
        int, typer.Option(help="Processes that simulate side by side; -1: one for each core.")
    ] = -1,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Directory; else runs/<time>-<name>-compare-<id>."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, no table.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
) -> None:
    """Compare variants on the same traffic: paired differences, how sure they are, the best."""
    with told_errors():
        directory = _free(output)
        if len(paths) == 1 and not paths[0].is_dir():
            found = _of_scenario(paths[0], varied, repetitions, overrides, jobs)
        else:
            if varied or overrides or repetitions is not None:
                raise UsageError(
                    "--vary, --set and --repetitions are of a scenario; run directories are "
                    "compared as they are"
                )
            found = _of_runs(paths)
        place = _save(found, directory)
        page = _write_page(found, place) if report else None
        _show(found, place, page, as_json)
        code = _exit_code(found)
    raise typer.Exit(code)


def _free(output: Path | None) -> Path | None:
    """``output``, checked before anything is simulated."""
    from sim.run_directory import check_free

    if output is not None:
        check_free(output)
    return output


def _of_scenario(
    path: Path, varied: list[str], repetitions: int | None, overrides: list[str], jobs: int
) -> dict[str, Any]:
    from sim.planning.compare import REPETITIONS, Comparison
    from sim.planning.executors import local
    from sim.planning.grid import read_axes
    from sim.scenario import load_scenario

    scenario = load_scenario(path, overrides)
    wanted = repetitions
    if wanted is None:
        wanted = scenario.run.repetitions if scenario.run.repetitions > 1 else REPETITIONS
    asked = Comparison(scenario, tuple(read_axes(varied, "--vary")), wanted)
    with progress("runs") as tell:
        return asked.run(local(jobs), tell)


def _of_runs(paths: Sequence[Path]) -> dict[str, Any]:
    from sim.planning.runs import compare_runs

    for path in paths:
        if not path.is_dir():
            raise UsageError(f"{path}: is no run directory; a scenario is compared alone")
    return compare_runs(paths)


def _save(document: dict[str, Any], output: Path | None) -> Path:
    """Write the result to its directory."""
    from sim.run_directory import new_run_directory, write_json

    directory = output or new_run_directory(Path("runs"), f"{document['name']}-compare")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / "result.json", document)
    except OSError as error:
        raise InfersimError(f"cannot write to {directory}: {error.strerror}") from None
    return directory


def _write_page(document: dict[str, Any], directory: Path) -> Path | None:
    """Write the page; a failure costs the page only, with a warning."""
    try:
        from reports.planning.compare import write_compare_report

        return write_compare_report(directory / "report.html", document)
    except Exception as error:
        typer.echo(f"warning: no report was written ({type(error).__name__}: {error})", err=True)
        return None


def _show(document: dict[str, Any], directory: Path, page: Path | None, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(document | {"directory": str(directory)}, allow_nan=False))
        return
    from sim.console import paths_view, stdout
    from sim.planning.compare_view import compare_view

    console = stdout()
    console.print(compare_view(document))
    console.print(paths_view(directory, page), soft_wrap=True)


def _exit_code(document: dict[str, Any]) -> int:
    """0 if any variant has figures; else what all of them ended with, 1 if they differ."""
    codes = {variant["exit_code"] for variant in document["variants"]}
    if 0 in codes:
        return 0
    typer.echo("all variants failed", err=True)
    return int(codes.pop()) if len(codes) == 1 else 1
