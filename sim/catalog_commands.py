"""The commands that look something up: ``infersim list``, ``show`` and ``explain scenario``."""

from __future__ import annotations

import json
from collections.abc import Callable
from textwrap import wrap
from typing import Annotated, Literal

import typer

from sim.errors import UsageError
from sim.exits import told_errors
from sim.options import AsJson

YAML_WIDTH = 72
"""Columns after which a line is broken at the next blank, so that 88 are enough."""


def list_catalogue(
    kind: Annotated[
        Literal["gpus", "models", "engines", "all"], typer.Argument(help="What to list.")
    ] = "all",
) -> None:
    """List what the catalogue knows, and the profiles of its GPUs."""
    from sim import catalog
    from sim.calibration.find import profile_lines

    titles: dict[Literal["gpus", "models", "engines"], Callable[[str], str]] = {
        "gpus": lambda name: str(catalog.raw("gpus", name)["title"]),
        "models": lambda name: f"{catalog.model(name).parameters / 1e9:.1f} B parameters",
        "engines": lambda name: catalog.engine(name).title,
    }
    for section, title in titles.items():
        if kind in (section, "all"):
            typer.echo(section)
            for name in catalog.names(section):
                typer.echo(f"  {name:<16} {title(name)}")
                for line in profile_lines(name) if section == "gpus" else ():
                    typer.echo(f"    {line}")


def show(name: Annotated[str, typer.Argument(help="A name from `infersim list`.")]) -> None:
    """Show a catalogue entry with the source of every value."""
    import yaml

    from sim import catalog
    from sim.calibration.find import profile_details
    from sim.console import WIDTH
    from sim.errors import did_you_mean

    with told_errors():
        kinds: tuple[Literal["gpus", "models", "engines"], ...] = ("gpus", "models", "engines")
        found = [kind for kind in kinds if name in catalog.names(kind)]
        if not found:
            known = [entry for kind in kinds for entry in catalog.names(kind)]
            raise UsageError(
                f"nothing is called {name!r}{did_you_mean(name, known)}; see `infersim list`"
            )
        for kind in found:
            text = yaml.safe_dump(
                catalog.raw(kind, name), sort_keys=False, width=YAML_WIDTH, allow_unicode=True
            )
            typer.echo(f"# {kind}/{name}\n{text}", nl=False)
            for line in profile_details(name) if kind == "gpus" else ():
                typer.echo("\n".join(wrap(f"# {line}", WIDTH, subsequent_indent="#     ")))


def explain_scenario(
    key: Annotated[
        str | None, typer.Argument(help="Such as workload.arrivals or max_num_seqs; else all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every key of a scenario: meaning, unit, default, allowed values, example."""
    with told_errors():
        from sim.console import stdout
        from sim.reference_view import reference_view
        from sim.scenario.reference import asked

        found = asked(key)
        if as_json:
            listed = [entry.document() for entry in found]
            typer.echo(json.dumps({"command": "explain scenario", "keys": listed}))
            return
        stdout().print(reference_view(found, whole=key is None))
