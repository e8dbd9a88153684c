"""Provides the commands that answer by many runs of a scenario: ``infersim diagnose``, ``ablate``,
``sensitivity`` and ``claims``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.commands.answer import deliver
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides, ScaleTrace
from sim.errors import UsageError


@with_records
def diagnose(
    asked: Annotated[
        Path, typer.Argument(metavar="SCENARIO|RUN", help="A scenario, or a run directory.")
    ],
    overrides: Overrides = [],
    *,
    how: Answering,
) -> None:
    """Find what limits a run and what to change first, if anything, by runs with each change."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.causes.diagnose import diagnose as run
        from sim.planning.causes.diagnose_document import document
        from sim.planning.points.executors import local
        from sim.scenario import load_scenario

        file = _scenario_of(asked)
        loaded = load_scenario(file, overrides)
        directory = how.directory(f"{loaded.name}-diagnose")
        with progress("runs") as tell:
            found = run(loaded, local(how.jobs), target=str(file), given=overrides, tell=tell)
        deliver(document(found), directory, page="diagnose", how=how, scenario=loaded)


def _scenario_of(asked: Path) -> Path:
    """The scenario itself, or what a run directory has of it."""
    if not asked.is_dir():
        return asked
    resolved = asked / "resolved.yaml"
    if not resolved.is_file():
        raise UsageError(f"{asked}: has no resolved.yaml, so it is no directory of a run")
    return resolved


@with_records
def ablate(
    scenario: Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")],
    order: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="Order in which techniques are added; default: the usual one."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option("--baseline-batch", min=1, max=65_536, help="Batch size of the baseline.")
    ] = 8,
    saturate: Annotated[
        bool,
        typer.Option(
            "--saturate", help="Send all requests at once, so that throughput is capacity."
        ),
    ] = False,
    overrides: Overrides = [],
    *,
    how: Answering,
) -> None:
    """Take a speed-up apart: what each technique brings over static, unpaged 16-bit batches."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.causes.ablate import ablate as run
        from sim.planning.causes.ablate import document
        from sim.planning.points.executors import local
        from sim.scenario import load_scenario

        loaded = load_scenario(scenario, overrides)
        directory = how.directory(f"{loaded.name}-ablate")
        names = None if order is None else [name.strip() for name in order.split(",")]
        with progress("runs") as tell:
            found = run(
                loaded, local(how.jobs), order=names, batch=batch, saturate=saturate, tell=tell
            )
        deliver(document(found), directory, page="ablate", how=how, scenario=loaded)


@with_records
def sensitivity(
    scenario: Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")],
    ranges: Annotated[
        list[str],
        typer.Option(
            "--range",
            metavar="NAME=LOW:HIGH",
            help="Range of factors for an input; repeat for more.",
        ),
    ] = [],
    overrides: Overrides = [],
    scale: ScaleTrace = "compress",
    *,
    how: Answering,
) -> None:
    """Show how far the verdict depends on uncertain inputs: times, overhead, lengths, ..."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.causes.sensitivity import document
        from sim.planning.causes.sensitivity import sensitivity as run
        from sim.planning.causes.uncertain import read_ranges
        from sim.planning.points.executors import local
        from sim.scenario import load_scenario

        loaded = load_scenario(scenario, overrides)
        directory = how.directory(f"{loaded.name}-sensitivity")
        wanted = read_ranges(ranges)
        with progress("runs") as tell:
            found = run(loaded, local(how.jobs), ranges=wanted, scale=scale, tell=tell)
        deliver(document(found), directory, page="sensitivity", how=how, scenario=loaded)


@with_records
def claims(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|FOLDER...",
            help="Claims, or folders of them; shipped ones by their names, such as "
            "kv-long-contexts, all: claims.",
        ),
    ],
    *,
    how: Answering,
) -> None:
    """Test claims about serving by simulation; exit with 1 if one comes out unexpectedly."""
    with plain_errors():
        from sim.commands.output import progress
        from sim.planning.claims.claim import check_claims, read_claims
        from sim.planning.points.executors import local
        from sim.scenario import shipped

        found = read_claims([shipped.found(path, shipped.CLAIMS) for path in paths])
        directory = how.directory("claims")
        with progress("claims") as tell:
            answer = check_claims(found, local(how.jobs), tell)
        deliver(answer, directory, page="claims", how=how)
    raise typer.Exit(1 if answer["unexpected"] else 0)
