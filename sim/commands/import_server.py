"""Provides ``infersim import``: the scenario of a server, by its command, manifest or log."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.commands.exits import plain_errors
from sim.commands.options import AsJson, Overrides
from sim.errors import UsageError, printable

if TYPE_CHECKING:
    from sim.servers import Imported
    from sim.servers.started import Started


def import_server(
    source: Annotated[
        str,
        typer.Argument(
            help="A command in quotes (vllm serve ..., python -m sglang.launch_server ..., "
            "trtllm-serve ..., llama-server ..., docker run ...), or a file: a script, Docker "
            "Compose, Kubernetes, KServe, Helm values, the log of a start; - reads stdin."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Catalogue name, id or config.json of the model.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="Catalogue name or file of the GPU.")] = None,
    service: Annotated[
        str | None,
        typer.Option(help="Which server, by a part of its name, where a file starts several."),
    ] = None,
    overrides: Overrides = [],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; default: NAME.yaml here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the scenario of a server from how it was started; every key names its origin."""
    with plain_errors():
        from sim.servers import imported, servers_of, sources_of

        if source == "-":
            found = servers_of(sys.stdin.read(), Path("stdin"))
        else:
            found = sources_of(source)
        started = one_of(found, source, service)
        is_file = source != "-" and not started.where.startswith("the command")
        name = Path(source).stem if is_file else "server"
        if is_file and service is not None:
            name = f"{name}-{re.sub(r'[^A-Za-z0-9.-]+', '-', service).strip('-')}"
        path = out or Path(f"{name}-scenario.yaml" if name != "server" else "server.yaml")
        if path.exists() and not force:
            raise UsageError(f"{path}: exists; give another name (-o) or --force")
        made = imported(started, path.parent.absolute(), model=model, gpu=gpu, overrides=overrides)
        path.write_text(made.text, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({**made.document(), "path": str(path)}, allow_nan=False))
        return
    for line in _told(made, path):
        typer.echo(printable(line))


def one_of(found: list[Started], source: str, service: str | None) -> Started:
    """The one of ``found`` whose place holds ``service``; UsageError where that is not one."""
    chosen = [each for each in found if service is None or service in each.where]
    if len(chosen) == 1:
        return chosen[0]
    listed = "; ".join(f"{each.where}: {shlex.join(each.words)[:60]}" for each in found)
    if not chosen:
        raise UsageError(f"--service {service}: no server is called so; there are {listed}")
    raise UsageError(
        f"{source}: starts {len(chosen)} servers; name one by --service, a part of its place: "
        f"{listed}"
    )


def _told(made: Imported, path: Path) -> list[str]:
    """The lines for a terminal: what was read, assumed and left out, and what to do next."""
    from sim.planning.fleet.launch import TITLES
    from sim.servers.draft import plain
    from sim.servers.written import shown

    values, draft = made.draft.values, made.draft
    stated = [f"{plain(key)} = {shown(each.value)}" for key, each in values.items() if each.origin]
    lines = [f"{path}: written, {TITLES[made.started.engine]} as started by {made.started.where}."]
    lines += [f"  {line}" for line in stated]
    if made.chosen:
        listed = ", ".join(f"{key} {shown(value)}" for key, value in made.chosen.items())
        lines.append(f"Chosen by the engine: {listed}.")
    lines += remarks(made)
    if draft.without_effect:
        lines.append(f"Without effect on a prediction: {', '.join(draft.without_effect)}.")
    lines.append(
        "Traffic is assumed: 1 request/s of a chat. Put your own under workload, or --set it."
    )
    target = shlex.quote(str(path))
    lines.append(f"Next: infersim run {target}; infersim find {target}; infersim diagnose {target}")
    return lines


def remarks(made: Imported) -> list[str]:
    """The lines on what was assumed of a server, and on what of it is not simulated."""
    return [*(f"Note: {note}" for note in made.draft.notes), *made.draft.shortcomings()]
