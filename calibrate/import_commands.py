"""``infersim calibrate import``: a profile from what others have measured."""

# ruff: noqa: PLC0415 - heavy imports are deferred so that --help stays fast

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.errors import UsageError

app = typer.Typer(name="import", help="Fit a profile to measurements of others.")


@app.command()
def aiconfigurator(
    system: Annotated[str, typer.Option(help="GPU as the tables name it, such as h100_sxm.")],
    framework: Annotated[str, typer.Option(help="vllm, trtllm or sglang.")] = "vllm",
    version: Annotated[str | None, typer.Option(help="Of the framework; else the newest.")] = None,
    path: Annotated[
        Path | None, typer.Option(help="Folder of the tables; else the installed package's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="GPU file to write; else GPU-FRAMEWORK.yaml here."),
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="The profile alone, as the catalogue keeps it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file.")] = False,
) -> None:
    """Fit the kernel tables of the package aiconfigurator-core."""
    from calibrate.importers.aiconfigurator import locate
    from calibrate.importers.aiconfigurator.tables import GPUS
    from calibrate.importers.systems import errors, from_aiconfigurator
    from calibrate.profile import write_text
    from sim import catalog
    from sim.catalog.profile_file import to_document, to_yaml
    from sim.exits import told_errors

    with told_errors():
        tables = locate(path)
        target = out or Path(f"{GPUS.get(system, system)}-{framework}.yaml")
        if target.exists() and not force:
            raise UsageError(f"{target} exists; --force overwrites it")
        profile = from_aiconfigurator(tables, system, framework, version)
        document = to_document(profile)
        if not bare:
            entry = catalog.raw("gpus", GPUS[system])
            document = {**entry, "profile": document}
        write_text(target, to_yaml(document))
    typer.echo(f"{profile.source}\nhold-out error, median / 90th percentile:")
    for kernel, told in errors(profile).items():
        typer.echo(f"  {kernel:<26} {told}")
    typer.echo(f"Profile: {target}")
