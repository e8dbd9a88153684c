"""Provides the ``infersim score`` command: published measurements next to predictions.

Results go to stdout, progress and complaints to stderr, exit codes are ``sim.commands.exits``.
What takes long to import is imported when it is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from sim.commands.answering import with_records
from sim.commands.exits import check_checkout, plain_errors
from sim.commands.options import AsJson, Jobs, check_jobs
from sim.commands.output import made
from sim.errors import InfersimError
from sim.results.whole_file import write_text


class ScoreOptions(NamedTuple):
    """The options of ``infersim score``."""

    as_json: AsJson = False
    page: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Also write a page in Markdown, or the evidence of all pages as JSON where the "
            "name ends in .json.",
        ),
    ] = None
    learn_bands: Annotated[
        Path | None,
        typer.Option(
            help="Learn the spreads behind bands from these rows, and write them to this file."
        ),
    ] = None
    trust: Annotated[
        list[Path],
        typer.Option(
            help="Write a page on how far to trust predictions: in Markdown, or with figures where "
            "the name ends in .html; may be repeated."
        ),
    ] = []
    dense: Annotated[bool, typer.Option("--dense", help="Leave out models with experts.")] = False
    jobs: Jobs = -1
    model: Annotated[
        str | None,
        typer.Option(
            help="Model of a log that does not name one: catalogue name, or a config.json."
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(help="GPU of a log that does not name one: catalogue name, or a file."),
    ] = None
    blocks: Annotated[
        int | None,
        typer.Option(
            "--num-gpu-blocks", min=1, help="KV blocks of a log that does not give their number."
        ),
    ] = None


@with_records
def score(
    measured: Annotated[
        list[Path],
        typer.Argument(help="Tables of measurements (CSV), or folders with a log of requests."),
    ],
    options: ScoreOptions,
) -> None:
    """Predict every row of tables of measurements, and say how far off the predictions are."""
    with plain_errors():
        check_checkout("score", "calibrate.scoring")

        from calibrate.scoring import Given, score_all
        from calibrate.scoring.console import view
        from calibrate.scoring.document import to_document
        from calibrate.scoring.evidence import evidence, summary, text_of, trust
        from calibrate.scoring.report import markdown
        from calibrate.scoring.spreads_file import spreads_yaml
        from calibrate.scoring.trust_page import trust_page
        from sim.catalog.spreads import learnt
        from sim.commands.output import progress
        from sim.terminal.console import stdout

        check_jobs(options.jobs)
        with progress() as tell:
            given = Given(options.model, options.gpu, options.blocks)
            rows = score_all(
                measured, jobs=options.jobs, progress=tell, given=given, dense=options.dense
            )
        if options.learn_bands is not None:
            _write(options.learn_bands, spreads_yaml(rows))
            learnt.cache_clear()
        if options.page is not None:
            if options.page.suffix == ".json":
                _write(options.page, text_of(evidence(rows)))
            else:
                _write(options.page, markdown(summary(rows), dense=options.dense))
        for path in options.trust:
            if path.suffix != ".html":
                _write(path, trust_page(trust(rows)))
        if options.as_json:
            typer.echo(json.dumps(to_document(rows), allow_nan=False))
        else:
            stdout().print(view(rows))
        for path in options.trust:
            if path.suffix == ".html":
                _write_figures(path, to_document(rows))
        if not rows:
            raise InfersimError(
                f"the tables have no rows{' of dense models' if options.dense else ''}"
            )
        if all(row.error is None for row in rows):
            raise InfersimError("no row was predicted: the reasons are above")


def _write_figures(path: Path, document: dict[str, Any]) -> None:
    from reports.pages.trust import render_trust
    from sim.results.whole_file import write_text

    page = render_trust({**document, "made": made()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page)
    except OSError as error:
        raise InfersimError(f"{path}: cannot be written ({error.strerror})") from None


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise InfersimError(f"{path}: cannot be written ({error.strerror})") from None
