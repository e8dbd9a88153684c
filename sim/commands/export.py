"""Provides the ``infersim export`` command, on top of ``sim.export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from sim.commands.answering import with_records
from sim.commands.exits import plain_errors
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.export.files import Written
    from sim.export.source import ExportSource, ExportWindow

Format = Literal["perfetto", "vllm-bench", "vllm-sweep", "csv", "png", "compose", "kubernetes"]

DEFAULTS: dict[Format, str] = {
    "perfetto": "perfetto.json",
    "vllm-bench": "vllm-bench.json",
    "vllm-sweep": "vllm-sweep",
    "csv": "csv",
    "png": "png",
    "compose": "compose.yaml",
    "kubernetes": "kubernetes.yaml",
}
"""The default files: in the run's directory, those of a sweep or a scenario in the working
directory."""

FOLDERS = ("vllm-sweep", "csv", "png")
"""Formats of several files."""


class ExportOptions(NamedTuple):
    """The options of ``infersim export``."""

    to: Annotated[
        Format,
        typer.Option(
            "--to",
            help="perfetto: a trace for ui.perfetto.dev. vllm-bench: what `vllm bench serve "
            "--save-detailed` saves. vllm-sweep: what `vllm bench sweep plot` reads. csv: tables."
            " png: a picture of each figure on the page, drawn by an installed Chromium. compose, "
            "kubernetes: files that start the fleet of a plan, a run or a scenario.",
        ),
    ]
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File or folder to write; default: in the run directory."
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            metavar="START:END", help="Export only this part of the run, in seconds or with units."
        ),
    ] = None
    fleet: Annotated[
        int | None,
        typer.Option(
            help="compose and kubernetes, of a plan: the fleet by its rank; default: the cheapest "
            "that is sure to hold the load, else the cheapest."
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False


@with_records
def export(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run directories; vllm-sweep takes several. For png, also the directory of "
            "any other result, or a page; for compose and kubernetes a plan's, or a scenario.",
        ),
    ],
    options: ExportOptions,
) -> None:
    """Write a run or a plan in a format that other programs read, or as files that start it."""
    with plain_errors():
        from sim.export import files, pictures, source

        if options.to != "vllm-sweep" and len(runs) > 1:
            raise UsageError(
                f"--to {options.to} takes one run, not {len(runs)}; only vllm-sweep takes more"
            )
        stretch = None if options.window is None else source.window_of(options.window)
        target = options.output or _inside(runs[0], options.to) / DEFAULTS[options.to]
        if options.to in ("compose", "kubernetes"):
            from sim.export import deployed, manifests

            if options.window is not None:
                raise UsageError("--window: a deployment has no part of a run")
            write = manifests.compose if options.to == "compose" else manifests.kubernetes
            text = write(deployed.read_fleet(runs[0], options.fleet))
            files.check_target(target, folder=False, force=options.force)
            written, notes = files.write_deployment(text, target)
        elif options.fleet is not None:
            raise UsageError(f"--fleet: --to {options.to} writes no fleet")
        elif options.to == "png":
            if options.window is not None:
                raise UsageError("--window: a picture shows what its page shows")
            page = pictures.page_of(runs[0])
            files.check_target(target, folder=True, force=options.force)
            written, notes = files.write_pictures(page, target)
        else:
            found = [source.read(run) for run in runs]
            files.check_target(target, folder=options.to in FOLDERS, force=options.force)
            written, notes = _write(options.to, found, target, stretch)
        for note in notes:
            typer.echo(note, err=True)
    if options.as_json:
        typer.echo(json.dumps({"format": options.to, "files": [str(path) for path in written]}))
    else:
        for path in written:
            typer.echo(str(path))


def _inside(run: Path, to: Format) -> Path:
    """Where a file without a given name goes: a sweep and pictures of a page next to it, not
    inside; the deployment of a scenario here.
    """
    if to == "vllm-sweep" or (to in ("compose", "kubernetes") and not run.is_dir()):
        return Path()
    return run.parent if run.is_file() else run


def _write(
    to: Format, found: list[ExportSource], target: Path, window: ExportWindow | None
) -> Written:
    from sim.export import files

    if to == "vllm-sweep":
        return files.write_sweep(found, target, window)
    writers = {
        "perfetto": files.write_perfetto,
        "vllm-bench": files.write_bench,
        "csv": files.write_csv,
    }
    return writers[to](found[0], target, window)
