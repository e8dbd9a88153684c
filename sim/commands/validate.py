"""Provides the ``infersim validate-run`` command, on top of ``calibrate.validation``.

The prediction of an observed run next to the run itself, with an engine file that corrects it; or,
with ``--fit-engine``, an engine preset made of observed runs. An observed directory is never
changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from calibrate.validation import Called
from sim.commands.answering import with_records
from sim.commands.exits import SLO_MISSED, plain_errors
from sim.commands.options import AsJson, Overrides
from sim.commands.output import made
from sim.errors import UsageError

if TYPE_CHECKING:
    from calibrate.validation.document import Validation
    from calibrate.validation.observed import ObservedRun
    from calibrate.validation.prediction import ValidationQuestion

CHECKED = ("mean_ttft_ms", "mean_tpot_ms", "output_throughput")
"""Metrics that ``--check`` compares; medians where no means were observed."""

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN [SCENARIO]",
        help="Directory of an observed run, and the scenario to predict it with; default: its own."
        " With --fit-engine: any number of runs.",
    ),
]


class ValidateOptions(NamedTuple):
    """The options of ``infersim validate-run``."""

    overrides: Overrides = []
    gpu: Annotated[str | None, typer.Option(help="Profile of the device, or a catalogue name.")] = (
        None
    )
    repeat: Annotated[
        list[Path],
        typer.Option(metavar="RUN", help="Another run of the same traffic; repeat for more."),
    ] = []
    fit_engine: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Only fit an engine to the runs, and write it."),
    ] = None
    fit_kernels: Annotated[
        bool,
        typer.Option(
            "--fit-kernels",
            help="With --fit-engine: also multiples of the kernels' predicted times, for an engine "
            "whose own kernels were not calibrated.",
        ),
    ] = False
    check: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0.0,
            help="Exit with 99 if mean TTFT, mean TPOT or output throughput is off by more "
            "than this.",
        ),
    ] = None
    as_json: AsJson = False
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Page to write; default: validation-<time>.html."),
    ] = None
    page: Annotated[
        bool, typer.Option("--page/--no-page", " /--no-report", help="Write a page.")
    ] = True
    corrected: Annotated[
        Path | None,
        typer.Option(
            "--corrected-engine",
            metavar="FILE",
            help="Where to write the engine with the advised changes; default: next to the page.",
        ),
    ] = None


@with_records
def validate_run(
    paths: Paths,
    options: ValidateOptions,
) -> None:
    """Compare an observed run with its prediction: errors, where they come from, what to change."""
    with plain_errors():
        runs, scenario = _told_apart(paths)
        if options.fit_engine is not None and not _told_by_requests(
            runs, options.repeat, options.fit_kernels
        ):
            _fit(
                [*runs, *options.repeat],
                scenario,
                options.overrides,
                options.gpu,
                options.fit_engine,
                options.fit_kernels,
                options.as_json,
            )
            return
        if options.fit_kernels and options.fit_engine is None:
            raise UsageError("--fit-kernels goes with --fit-engine FILE")
        if len(runs) > 1:
            raise UsageError(
                f"{runs[1]}: one run is compared at a time; give repetitions of it with --repeat, "
                "or --fit-engine FILE to fit an engine to several"
            )
        target = (
            _page_target(options.output, runs[0])
            if options.page and options.fit_engine is None
            else None
        )
        validation = _validation(runs[0], scenario, options.overrides, options.gpu, options.repeat)
        code, checked = _checked(validation, options.check)
        called = Called(runs[0], scenario, options.overrides, options.gpu, options.repeat)
        file = _engine_target(options.fit_engine or options.corrected, target)
        given = "--corrected-engine" if options.fit_engine is None else "--fit-engine"
        correction = _correct(validation, called, file, given)
        _show(validation, correction, checked, target, options.as_json)
    raise typer.Exit(code)


def _told_by_requests(runs: Sequence[Path], repeat: Sequence[Path], kernels: bool) -> bool:
    """Whether to fit an engine to the requests of a single run that has no iterations."""
    from calibrate.validation.observed import ITERATIONS

    alone = len(runs) == 1 and not repeat and not kernels
    return alone and runs[0].is_dir() and not (runs[0] / ITERATIONS).exists()


def _engine_target(given: Path | None, page: Path | None) -> Path | None:
    """Where a corrected engine goes: never over a file that is there, since it may be in use."""
    if given is not None or page is None:
        return given
    target, number = page.with_name(f"{page.stem}-engine.yaml"), 2
    while target.exists():
        target, number = page.with_name(f"{page.stem}-engine-{number}.yaml"), number + 1
    return target


def _correct(
    validation: Validation,
    called: Called,
    target: Path | None,
    option: str,
) -> dict[str, Any]:
    """Write the corrected engine, and say what to do with it; UsageError if it cannot be written.

    ``engine`` is the file, ``settings`` are of the scenario, ``commands`` come next; ``unwritten``
    is the option that would write the file, ``text`` what else is to be known.
    """
    from calibrate.validation.correction import commands, correction
    from calibrate.validation.engine_file import write_engine

    today = datetime.now().astimezone().date()
    found = correction(validation.run, validation.asked, validation.advice, today)
    told: dict[str, Any] = {
        **{"engine": None, "settings": [], "commands": []},
        **{"unwritten": None, "text": None, "confirmed": False},
    }
    if found is None:
        if option == "--fit-engine":
            told["text"] = f"No engine was written: {validation.document['advice']['text']}"
        return told
    told["settings"], told["confirmed"] = list(found.settings), found.confirmed
    if found.engine is not None and target is None:
        return told | {"unwritten": "--corrected-engine FILE"}
    if found.engine is not None and target is not None:
        write_engine(target, found.engine, option)
        told["engine"] = str(target)
        told["text"] = (
            "Nothing of the engine changes, but predictions with it (--set engine=FILE, of any "
            "command) are as sure as this comparison makes them."
            if found.confirmed
            else "Fitted to this run: believe its errors on other runs only, as of other load."
        )
    written = target if found.engine is not None else None
    return told | {"commands": list(commands(found, written, called, validation.asked))}


def _told_apart(paths: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """The directories among ``paths``, and the one file, if there is one."""
    files = [path for path in paths if path.is_file()]
    if len(files) > 1:
        raise UsageError(f"{files[1]}: a second scenario; there is one for all")
    runs = [path for path in paths if path not in files]
    if not runs:
        raise UsageError(f"{paths[0]}: is a file; the first argument is a run directory")
    return runs, files[0] if files else None


def _validation(
    directory: Path,
    scenario: Path | None,
    overrides: Sequence[str],
    gpu: str | None,
    repeat: Sequence[Path],
) -> Validation:
    from calibrate.validation.document import Validation
    from calibrate.validation.observed import check_same_traffic, read_observed
    from calibrate.validation.prediction import question

    run = read_observed(directory)
    others = [read_observed(path) for path in repeat]
    for other in others:
        check_same_traffic(run, other)
    return Validation(run, others, question(run, scenario, overrides, gpu))


def _show(
    validation: Validation,
    correction: dict[str, Any],
    checked: dict[str, Any] | None,
    target: Path | None,
    as_json: bool,
) -> None:
    document = {**validation.document, "correction": correction}
    page = None if target is None else _write_page(validation, document, target)
    if as_json:
        shown = {**document, "check": checked, "page": None if page is None else str(page)}
        typer.echo(json.dumps(shown, allow_nan=False))
        return
    from calibrate.validation.answer import next_steps, parts
    from sim.terminal.console import stdout
    from sim.terminal.findings import parts_of, parts_view

    console = stdout()
    console.print(parts_view(parts(document)))
    for line in parts_of(next_steps(correction)):
        console.print(line, soft_wrap=True)
    if checked is not None:
        typer.echo(checked["text"])
    if page is not None:
        console.print(f"Page: {page}", soft_wrap=True)


def _checked(validation: Validation, limit: float | None) -> tuple[int, dict[str, Any] | None]:
    """The exit code, and what ``--check`` has to say."""
    if limit is None:
        return 0, None
    found = {row.key: 100 * row.error for row in validation.rows}
    keys = (key if key in found else key.replace("mean", "p50") for key in CHECKED)
    errors = {key: found[key] for key in keys if key in found}
    off = {key: error for key, error in errors.items() if abs(error) > limit}
    told = ", ".join(f"{key} {error:+.1f} %" for key, error in (off or errors).items())
    if not errors:
        code, text = 1, f"Check: none of {', '.join(CHECKED)} was observed"
    elif off:
        code, text = SLO_MISSED, f"Check failed: off by more than {limit:g} %: {told}"
    else:
        code, text = 0, f"Check passed: within {limit:g} %: {told}"
    return code, {"limit_percent": limit, "ok": code == 0, "errors": errors, "text": text}


def _page_target(output: Path | None, run: Path) -> Path:
    """Where the page goes; UsageError for a place where none can be written."""
    time = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    target = output or Path(f"validation-{time}.html")
    folder = target.absolute().parent
    if not folder.is_dir() or target.is_dir():
        raise UsageError(f"--output {target}: cannot be written there; name a file")
    if folder.resolve() == run.resolve():
        raise UsageError(f"--output {target}: nothing is written to the directory of a run")
    return target


def _write_page(validation: Validation, document: dict[str, Any], target: Path) -> Path | None:
    """Write the page; a failure costs the page only."""
    try:
        from calibrate.validation.series import series
        from reports.frame.run_directory import Frames
        from reports.pages.validation.page import render_validation
        from sim.results.whole_file import write_text

        result = validation.predicted.result
        page = render_validation(
            {**document, "made": made()},
            Frames(validation.run.requests, validation.run.timeseries),
            Frames(result.requests, result.timeseries),
            series(validation),
        )
        write_text(target, page)
    except Exception as error:
        typer.echo(f"warning: no page was written ({type(error).__name__}: {error})", err=True)
        return None
    return target


def _fit(
    directories: Sequence[Path],
    scenario: Path | None,
    overrides: Sequence[str],
    gpu: str | None,
    target: Path,
    kernels: bool,
    as_json: bool,
) -> None:
    """Fit an engine to all runs and write it."""
    from calibrate.validation.answer import fitted
    from calibrate.validation.engine_file import engine_document, write_engine
    from calibrate.validation.engine_fit import fit_engine
    from calibrate.validation.observed import read_observed
    from calibrate.validation.prediction import question
    from sim.metrics.bands.confidence import provenance
    from sim.terminal.console import stdout
    from sim.terminal.findings import parts_view

    pairs: list[tuple[ObservedRun, ValidationQuestion]] = []
    for directory in directories:
        run = read_observed(directory)
        pairs.append((run, question(run, scenario, overrides, gpu)))
    fit = fit_engine(pairs, kernels=kernels)
    prices = provenance(pairs[0][1].setup.only.deployment)
    today = datetime.now().astimezone().date()
    write_engine(target, engine_document(fit, [run for run, _ in pairs], prices, today))
    if as_json:
        typer.echo(json.dumps(fit.document() | {"engine": str(target)}, allow_nan=False))
        return
    console = stdout()
    console.print(parts_view(fitted(fit)))
    console.print(f"Engine: {target}  (use it as `engine: {target}`)", soft_wrap=True)
