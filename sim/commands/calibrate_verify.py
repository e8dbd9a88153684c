"""Provides ``infersim calibrate verify``: predictions against the engine, on this device.

Results go to stdout and into a folder, progress to stderr. Slow imports are made when something is
measured.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sim.commands.answering import with_records
from sim.commands.exits import plain_errors
from sim.commands.options import AsJson
from sim.errors import UsageError, did_you_mean
from sim.schedulers import POLICIES
from sim.units import parse

if TYPE_CHECKING:
    from calibrate.verify.budget import Wish
    from calibrate.verify.traffic import TrafficSetting

TRACES = ("burst", "closed", "poisson")
BATCHINGS = tuple(POLICIES)
ALL_BATCHINGS = ",".join(BATCHINGS)
TOTAL = 600.0
"""Seconds in all when nothing else is said."""

SUMMARY, ERRORS = "summary.json", "errors.csv"

Names = Annotated[str, typer.Option(help="Separated by commas.")]


class VerifyOptions(NamedTuple):
    """The options of ``infersim calibrate verify``."""

    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:INDEX.")]
    model: Annotated[
        str | None,
        typer.Option(
            help="Catalogue name, or path of a config.json; it must fit. Default: llama-3.2-1b on "
            "a GPU, a made-up model of 31 million parameters on a CPU."
        ),
    ] = None
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder for all results; continued if it already has some."
        ),
    ] = Path("verification")
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, bf16 or fp16; default: bf16 on a GPU, fp32 on a CPU."),
    ] = None
    traces: Names = "burst,closed,poisson"
    batching: Names = ALL_BATCHINGS
    batch: Annotated[int, typer.Option(min=1, help="max_num_seqs.")] = 8
    chunk: Annotated[int, typer.Option(min=1, help="max_num_batched_tokens.")] = 256
    prompt: Annotated[str, typer.Option(help="Tokens, LOW:HIGH, drawn evenly.")] = "32:224"
    answer: Annotated[str, typer.Option(help="Tokens, LOW:HIGH, drawn evenly.")] = "8:56"
    total_time: Annotated[
        str | None,
        typer.Option(
            help="Time that all of it may take. Where it is short, runs and calibrations become "
            "shorter, then repeats, then traces, then batchings are left out. Default: 10min, or "
            "no limit where both options below are given."
        ),
    ] = None
    run_time: Annotated[
        str | None, typer.Option(help="Approximate length of one run; default: at most 20s.")
    ] = None
    time_budget: Annotated[
        str | None, typer.Option(help="Time for one calibration; default: at most 45s.")
    ] = None
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 3
    threads: Annotated[int | None, typer.Option(help="CPU threads; default: torch's.")] = None
    cpu_time: Annotated[
        bool,
        typer.Option(
            "--cpu-time",
            help="Time the engine by the CPU time of its single thread (--threads 1), for machines "
            "that are also busy with other work.",
        ),
    ] = False
    as_json: AsJson = False


@with_records
def verify(
    options: VerifyOptions,
) -> None:
    """Compare predictions with the reference engine: calibrate, run, calibrate, compare."""
    started = time.monotonic()
    with plain_errors():
        from calibrate.device import open_device
        from calibrate.verify.budget import Wish
        from calibrate.verify.console import view, write_csv
        from calibrate.verify.course import check
        from calibrate.verify.harness import Plans, verify
        from sim.results.whole_file import write_text
        from sim.terminal.console import stdout

        kinds, ways = (
            _chosen("--traces", options.traces, TRACES),
            _chosen("--batching", options.batching, BATCHINGS),
        )
        run = None if options.run_time is None else _seconds("--run-time", options.run_time)
        calibration = (
            None if options.time_budget is None else _seconds("--time-budget", options.time_budget)
        )
        total = _total(options.total_time, free=None not in (run, calibration))
        wish = Wish(total, kinds, ways, options.repeats, calibration, run)
        check(wish)
        setting = _setting(options, wish)
        device = open_device(options.device, 1 if options.cpu_time else options.threads)
        plans = Plans(device, setting, options.output, wish, started)
        document = verify(plans, lambda line: typer.echo(line, err=True))
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
        write_text(options.output / SUMMARY, text)
        write_csv(options.output / ERRORS, document)
        if options.as_json:
            typer.echo(text, nl=False)
        else:
            stdout().print(view(document))


def _setting(options: VerifyOptions, wish: Wish) -> TrafficSetting:
    """The traffic and the engine of all runs; UsageError for what contradicts itself."""
    from calibrate.verify import traffic
    from calibrate.verify.budget import RUN

    cpu = options.device.strip().lower() == "cpu"
    setting = traffic.TrafficSetting(
        model=traffic.absolute(
            options.model or traffic.default_model(options.device, options.output)
        ),
        precision=options.precision or ("fp32" if cpu else "bf16"),
        batch=options.batch,
        chunk=max(options.chunk, options.batch),
        prompt=_bounds("--prompt", options.prompt),
        output=_bounds("--answer", options.answer),
        seconds=RUN if wish.run is None else wish.run,
        repeats=options.repeats,
        total=wish.total,
        cpu_time=options.cpu_time,
    )
    _check(setting)
    if options.cpu_time and (not cpu or options.threads not in (None, 1)):
        raise UsageError("--cpu-time: times one thread; give --device cpu --threads 1")
    return setting


def _total(text: str | None, *, free: bool) -> float:
    """Seconds in all; ``free`` where the lengths of all parts are given."""
    if text is None:
        return math.inf if free else TOTAL
    return _seconds("--total-time", text)


def _check(setting: TrafficSetting) -> None:
    from sim import catalog

    longest = catalog.model(setting.model).max_position_embeddings
    if setting.longest > longest:
        raise UsageError(
            f"--prompt and --answer: {setting.longest:,} tokens in all are more than the "
            f"{longest:,} that the model supports"
        )


def _chosen(option: str, text: str, known: tuple[str, ...]) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in known:
            raise UsageError(
                f"{option} {name}: not known{did_you_mean(name, known)}; known: {', '.join(known)}"
            )
    if not names:
        raise UsageError(f"{option}: is empty; known: {', '.join(known)}")
    return [name for name in known if name in names]


def _bounds(option: str, text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not (low.isdigit() and (high or low).isdigit()) or not 1 <= int(low) <= int(high or low):
        raise UsageError(f"{option} {text}: expected LOW:HIGH, whole numbers from 1 on")
    return int(low), int(high or low)


def _seconds(option: str, text: str) -> float:
    try:
        return parse(text, "time")
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None
