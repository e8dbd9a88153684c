"""Provides the ``infersim sensitivity`` command, on top of ``sim.planning.sensitivity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.exits import told_errors
from sim.options import AnswerOutput, AsJson, Jobs, Overrides, Report
from sim.planning_commands.answer import Document, free_directory, present, save


def sensitivity(
    scenario: Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")],
    ranges: Annotated[
        list[str],
        typer.Option("--range", metavar="NAME=LOW:HIGH", help="Factors of an input; repeat."),
    ] = [],
    overrides: Overrides = [],
    jobs: Jobs = -1,
    output: AnswerOutput = None,
    as_json: AsJson = False,
    report: Report = True,
) -> None:
    """Show how far the verdict depends on uncertain inputs: times, overhead, lengths, ..."""
    with told_errors():
        from sim.planning.executors import local
        from sim.planning.sensitivity import sensitivity as run
        from sim.planning.sensitivity_document import document
        from sim.planning.sensitivity_view import sensitivity_view
        from sim.planning.uncertain import read_ranges
        from sim.run_output import progress
        from sim.scenario import load_scenario

        loaded = load_scenario(scenario, overrides)
        directory = free_directory(output, f"{loaded.name}-sensitivity")
        wanted = read_ranges(ranges)
        with progress("runs") as tell:
            found = run(loaded, local(jobs), ranges=wanted, tell=tell)
        answer = document(found)
        save(answer, directory, loaded)
        page = _write_page if report else None
        present(answer, directory, view=sensitivity_view, write_page=page, as_json=as_json)


def _write_page(target: Path, document: Document) -> Path:
    from reports.planning.sensitivity import write_sensitivity_report

    return write_sensitivity_report(target, document)
