"""Provides the ``infersim sweep`` command, on top of ``sim.planning.sweep.sweep``.

The directory fills point by point; the table, and only then the page, are made of what is in it.
"""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sim.commands.answer import Document, exit_code, page_writer, present
from sim.commands.exits import INTERRUPTED, plain_errors
from sim.commands.options import (
    AnswerOutput,
    AsJson,
    Full,
    Jobs,
    Keep,
    Overrides,
    PriceFile,
    Prices,
    Report,
    check_kept,
)
from sim.commands.output import progress
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.findings import Heading
    from sim.planning.points.executors import Executor
    from sim.planning.points.store import Store
    from sim.planning.sweep.sweep import Sweep

RUNS = Path("runs")

Where = Annotated[
    Literal["local", "dask"],
    typer.Option("--executor", help="Where to simulate: on this machine, or on a Dask cluster."),
]
Address = Annotated[
    str | None, typer.Option(help="Scheduler of the Dask cluster, such as tcp://10.0.0.1:8786.")
]


def sweep(
    scenario: Annotated[
        Path | None, typer.Argument(help="A scenario; optional with --resume.")
    ] = None,
    swept: Annotated[
        list[str],
        typer.Option(
            "--sweep",
            metavar="KEY=VALUES",
            help="Values for a key: 2:40:10 (10 of them, evenly), log:1:64:7, or a list; repeat "
            "for a grid. Any key of a scenario, such as workload.arrivals.rate, "
            "scheduler.max_num_seqs or fleet.0.tensor_parallel; `infersim explain scenario` has "
            "them all.",
        ),
    ] = [],
    varied: Annotated[list[str], typer.Option("--vary", hidden=True)] = [],
    overrides: Overrides = [],
    price: Prices = [],
    prices: PriceFile = None,
    jobs: Jobs = -1,
    where: Where = "local",
    address: Address = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue an interrupted sweep.")
    ] = None,
    output: AnswerOutput = None,
    as_json: AsJson = False,
    full: Full = False,
    report: Report = True,
    keep: Keep = True,
) -> None:
    """Simulate every point of a grid of values, in parallel, and show how the figures change."""
    with plain_errors():
        from dataclasses import replace

        from sim.planning.sweep.sweep import document
        from sim.scenario.given_prices import with_prices
        from sim.terminal.findings import command_view

        _check(varied, resume, price or prices)
        check_kept(resume or output, keep)
        executor = _executor(where, address, jobs)
        asked = _asked(scenario, swept, overrides, resume)
        asked = replace(asked, scenario=with_prices(asked.scenario, price, prices))
        with TemporaryDirectory() as away:
            output = output if keep else Path(away) / "sweep"
            with _store(asked, resume, output) as store:
                _run(asked, store, executor, keep)
                found = document(asked, store.known)
                store.finish(found)
        place = store.path if keep else None
        page = page_writer("sweep", report, partial(_pages, asked))
        view = partial(command_view, "sweep", full=full)
        present(found, place, view=view, write_page=page, as_json=as_json, full=full)
        codes = (row["exit_code"] for row in found["results"])
        code = exit_code(codes, f"{found['points']:,} points")
    raise typer.Exit(code)


def _check(varied: list[str], resume: Path | None, prices: object) -> None:
    """UsageError for options that do not go together, or are of another command."""
    if varied:
        raise UsageError(f"--vary is of `infersim compare`; here: --sweep {shlex.quote(varied[0])}")
    if resume is not None and prices:
        raise UsageError("--price and --prices: what is resumed has the prices it began with")


def _pages(asked: Sweep, document: Document, place: Path) -> Heading:
    """The section that leads to the pages of some points: each is simulated once more, as a run of
    its own under ``runs`` of ``place``, unless it is there from before."""
    from reports.frame.run_directory import PAGE
    from sim.planning.answers.sweep import in_full
    from sim.planning.answers.sweep_points import chosen
    from sim.result import simulate

    found = {}
    for index in chosen(document):
        folder = place / RUNS / str(index + 1)
        if not (folder / PAGE).is_file():
            settings = document["results"][index]["settings"]
            simulate(asked.scenario.override(settings)).save(folder, report=True)
        found[index] = f"{RUNS}/{folder.name}/{PAGE}"
    return in_full(document, found)


def _executor(where: str, address: str | None, jobs: int) -> Executor:
    from sim.planning.points.dask_cluster import dask
    from sim.planning.points.executors import local

    if where == "dask":
        cluster = dask(address, _tell)
        cluster.check()
        return cluster
    if address is not None:
        raise UsageError("--address is of a Dask cluster; say --executor dask")
    return local(jobs)


def _tell(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _asked(
    scenario: Path | None, swept: list[str], overrides: list[str], resume: Path | None
) -> Sweep:
    """The sweep to run: as given, or as stored in the directory to resume."""
    from sim.planning.points.grid import read_axes
    from sim.planning.sweep.sweep import Sweep, begun_in
    from sim.scenario import load_scenario

    if scenario is None:
        if resume is None:
            raise UsageError("give a scenario, or --resume DIR")
        if swept or overrides:
            raise UsageError("--sweep and --set need the scenario too; or --resume DIR alone")
        return begun_in(resume)
    return Sweep(load_scenario(scenario, overrides), tuple(read_axes(swept)))


def _store(asked: Sweep, resume: Path | None, output: Path | None) -> Store:
    from sim.results.run_directory import new_run_directory

    if resume is not None:
        if output is not None:
            raise UsageError("--output: what is resumed stays where it is")
        return asked.resume(resume)
    return asked.create(output or new_run_directory(Path("runs"), f"{asked.scenario.name}-sweep"))


def _run(asked: Sweep, store: Store, executor: Executor, keep: bool) -> None:
    """Evaluate what is missing; if that is interrupted, say how to go on if it is to ``keep``."""
    try:
        with progress("points") as tell:
            asked.run(store, executor, tell)
    except KeyboardInterrupt:
        done = f"{len(store.known):,} points are kept"
        more = f"{done}; infersim sweep --resume {store.path}" if keep else "nothing is kept"
        typer.echo(f"interrupted: {more}", err=True)
        raise typer.Exit(INTERRUPTED) from None
