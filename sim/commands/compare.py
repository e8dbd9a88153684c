"""Provides the ``infersim compare`` command, on top of ``sim.planning``.

Variants of one scenario, which are simulated, or run directories, which are read.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.commands.answer import Document, exit_code, page_writer, present, save
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides, PriceFile, Prices
from sim.commands.output import progress
from sim.errors import InfersimError, UsageError

if TYPE_CHECKING:
    from reports.frame.run_directory import SavedRun
    from sim.findings import Heading
    from sim.planning.contrast.compare import Comparison
    from sim.scenario import Scenario

RUNS = Path("runs")

EXAMPLE = '--vary "fleet={gpu: h100-sxm, replicas: 4},{gpu: b200-sxm, replicas: 2}"'
"""How whole fleets are compared."""


@with_records
def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="SCENARIO | RUN RUN...", help="A scenario, or run directories."),
    ],
    varied: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="KEY=A,B",
            help="Values to compare; repeat for a grid. Any key of a scenario, such as "
            "scheduler.max_num_batched_tokens, fleet.0.gpu, precision.weights, router or "
            "workload.arrivals.rate; `infersim explain scenario` has them all.",
        ),
    ] = [],
    swept: Annotated[list[str], typer.Option("--sweep", hidden=True)] = [],
    repetitions: Annotated[
        int | None, typer.Option(help="Runs of each variant, each with its own seed; default: 5.")
    ] = None,
    overrides: Overrides = [],
    price: Prices = [],
    prices: PriceFile = None,
    *,
    how: Answering,
) -> None:
    """Compare variants on the same traffic: paired differences, how sure they are, the best."""
    with plain_errors():
        from sim.terminal.findings import command_view

        if swept:
            raise UsageError(
                f"--sweep is of `infersim sweep`; here: --vary {shlex.quote(swept[0])}"
            )
        how.directory("compare")
        if len(paths) == 1 and not paths[0].is_dir():
            scenario = _scenario(paths[0], overrides, price, prices)
            place = how.directory(f"{scenario.name}-compare")
            found = _of_scenario(
                scenario, varied, repetitions, how.jobs, place if how.report else None
            )
            runs = partial(_simulated, scenario)
        else:
            if varied or overrides or price or prices or repetitions is not None:
                raise UsageError(
                    "--vary, --set, --price, --prices and --repetitions are of a scenario; run "
                    "directories are compared as they are"
                )
            found = _of_runs(paths)
            place = how.directory(f"{found['name']}-compare")
            runs = partial(_read, paths)
        if place is not None:
            save(found, place)
        page = page_writer("compare", how.report, partial(_drawn, runs))
        view = partial(command_view, "compare", full=how.full)
        present(found, place, view=view, write_page=page, as_json=how.as_json, full=how.full)
        code = exit_code((variant["exit_code"] for variant in found["variants"]), "variants")
    raise typer.Exit(code)


def _scenario(path: Path, overrides: list[str], price: list[str], prices: Path | None) -> Scenario:
    from sim.scenario import load_scenario
    from sim.scenario.given_prices import with_prices

    return with_prices(load_scenario(path, overrides), price, prices)


def _of_scenario(
    scenario: Scenario,
    varied: list[str],
    repetitions: int | None,
    jobs: int,
    drawn_in: Path | None,
) -> dict[str, Any]:
    """The comparison; where a page in ``drawn_in`` will draw a run of every variant, with these."""
    from sim.planning.contrast.compare import REPETITIONS, Comparison
    from sim.planning.points.executors import local
    from sim.planning.points.grid import read_axes
    from sim.result import keeper

    wanted = repetitions
    if wanted is None:
        wanted = scenario.run.repetitions if scenario.run.repetitions > 1 else REPETITIONS
    asked = Comparison(scenario, tuple(read_axes(varied, "--vary")), wanted)
    below = drawn_in.absolute() / RUNS if drawn_in and _draws_all(asked) else None
    keep = None if below is None else lambda number: keeper(below / str(number))
    with progress("runs") as tell:
        return asked.run(local(jobs), tell, keep)


def _draws_all(asked: Comparison) -> bool:
    """Whether a page draws a run of every variant."""
    from sim.planning.answers.compare import MOST_DRAWN

    return len(asked.variants) <= MOST_DRAWN


def _drawn(
    runs: Callable[[Document, Path], dict[int, SavedRun]], document: Document, place: Path
) -> Heading:
    """The section that draws ``runs``; an empty one without any."""
    from reports.pages.planning.compare_runs import section

    return section(document, runs(document, place))


def _of_runs(paths: Sequence[Path]) -> dict[str, Any]:
    from sim.planning.contrast.runs import compare_runs

    for path in paths:
        if not path.is_dir():
            raise UsageError(
                f"{path}: is no run directory. Of scenarios, vary one: infersim compare "
                f"{shlex.quote(str(path))} {EXAMPLE}. Or run each, and compare the directories."
            )
    return compare_runs(paths)


def _simulated(scenario: Scenario, document: Document, place: Path) -> dict[int, SavedRun]:
    """The first repetition of the variants that a page draws, each a run of its own under ``runs``
    of ``place``: kept there, or simulated once more where there are many variants, of which only
    the figures are."""
    from reports.frame.run_directory import PAGE, read
    from sim.planning.answers.compare import chosen
    from sim.result import simulate

    found = {}
    for index in chosen(document):
        settings = document["variants"][index]["settings"]
        once = {**settings, "seed": document["seeds"][0], "run.repetitions": 1}
        folder = place / RUNS / str(index + 1)
        if not folder.exists():
            simulate(scenario.override(once)).save(folder, report=True)
        found[index] = replace(read(folder), page=f"{RUNS}/{folder.name}/{PAGE}")
    return found


def _read(paths: Sequence[Path], document: Document, place: Path) -> dict[int, SavedRun]:
    """The runs that a page in ``place`` draws."""
    from reports.frame.run_directory import PAGE, read
    from sim.planning.answers.compare import chosen

    found = {}
    for index in chosen(document):
        try:
            run, page = read(paths[index]), paths[index] / PAGE
            there = os.path.relpath(page, place) if page.is_file() else ""
            found[index] = replace(run, page=Path(there).as_posix() if there else "")
        except InfersimError as error:  # an older version wrote fewer files: its figures are enough
            typer.echo(f"warning: {paths[index]} is not drawn: {error}", err=True)
    return found
