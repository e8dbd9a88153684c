"""Provides the ``infersim trace`` commands, on top of ``sim.workload.traces.tools``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.commands.exits import plain_errors
from sim.commands.options import AsJson
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.workload.traces import Trace

app = typer.Typer(
    help="Describe traces, convert them, cut them down, scale them.", no_args_is_help=True
)

TraceFile = Annotated[Path, typer.Argument(help="A trace, in any format that scenarios replay.")]
PlainFile = Annotated[Path, typer.Argument(help="The CSV file to write.")]
Format = Annotated[
    str, typer.Option("--format", help="Format of the trace; auto: recognised by its columns.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=COLUMN,...",
        help="What the columns are called: arrival, prompt_tokens, output_tokens, and perhaps "
        "arrival_unit (s, ms, us, ns), session and priority.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file.")]
Seed = Annotated[int, typer.Option(min=0, help="Selects the random draws.")]


@app.command("describe")
def trace_describe(
    file: TraceFile,
    trace_format: Format = "auto",
    as_json: AsJson = False,
    columns: Columns = None,
) -> None:
    """Describe a trace: number of requests, burstiness, lengths."""
    with plain_errors():
        from sim.workload.traces.tools import columns_of, describe, to_text

        figures = describe(file, trace_format, columns_of(columns))
    typer.echo(json.dumps(figures, allow_nan=False) if as_json else to_text(figures))


@app.command("convert")
def trace_convert(
    file: TraceFile,
    output: PlainFile,
    trace_format: Format = "auto",
    force: Force = False,
    columns: Columns = None,
) -> None:
    """Write a trace as plain CSV: arrival_s, prompt_tokens, output_tokens."""
    with plain_errors():
        from sim.workload.traces import read_trace
        from sim.workload.traces.tools import check_free, columns_of, write_trace

        check_free(output, file, force=force)
        found = read_trace(file, trace_format, columns=columns_of(columns))
        write_trace(found, output)
    _written(output, found)


@app.command("sample")
def trace_sample(
    file: TraceFile,
    output: PlainFile,
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="Number of consecutive requests to keep, from a random place."),
    ] = None,
    thin: Annotated[
        float | None, typer.Option(help="Instead: keep each request with this probability.")
    ] = None,
    seed: Seed = 42,
    trace_format: Format = "auto",
    force: Force = False,
    columns: Columns = None,
) -> None:
    """Write a part of a trace as plain CSV; its first request arrives at 0."""
    with plain_errors():
        from sim.workload.traces import read_trace
        from sim.workload.traces.tools import (
            check_free,
            columns_of,
            sample_thinned,
            sample_window,
            write_trace,
        )

        check_free(output, file, force=force)
        found = read_trace(file, trace_format, columns=columns_of(columns))
        if requests is not None and thin is None:
            part = sample_window(found, requests, seed)
        elif thin is not None and requests is None:
            part = sample_thinned(found, thin, seed)
        else:
            raise UsageError("a sample takes either --requests N or --thin P")
        write_trace(part, output)
    _written(output, part)


@app.command("scale")
def trace_scale(
    file: TraceFile,
    output: PlainFile,
    overlay: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Number of overlaid copies, evenly shifted in time: N times the users.",
        ),
    ] = None,
    time_scale: Annotated[
        str | None,
        typer.Option(metavar="X", help="Multiply all gaps: 1/3 plays it three times as fast."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="R", help="Instead of --time-scale: requests per second, on average."),
    ] = None,
    seed: Seed = 42,
    trace_format: Format = "auto",
    force: Force = False,
    columns: Columns = None,
) -> None:
    """Write a trace with more or fewer users, or faster or slower, as plain CSV.

    Overlaid copies keep bursts as they were and put those of other users next to
    them. Smaller gaps make each burst denser and shorter. With both, the copies
    come first.
    """
    with plain_errors():
        from sim.workload.traces import TracePlay, read_trace
        from sim.workload.traces.tools import check_free, columns_of, write_trace

        chosen = _scaling(overlay, time_scale, rate)
        check_free(output, file, force=force)
        played = TracePlay(**chosen, seed=seed)
        found = read_trace(file, trace_format, played=played, columns=columns_of(columns))
        write_trace(found, output)
    _written(output, found)


def _scaling(overlay: str | None, time_scale: str | None, rate: str | None) -> dict[str, Any]:
    """Arguments of ``read_trace``; UsageError for an invalid, contradictory or missing one."""
    from pydantic import TypeAdapter, ValidationError

    from sim.scenario.values.fields import Rate, Ratio

    given = {"overlay": overlay, "time_scale": time_scale, "rate": rate}
    texts = {name: text for name, text in given.items() if text is not None}
    if not texts:
        raise UsageError("give --overlay N, --time-scale X or --rate R, such as --overlay 3")
    if "time_scale" in texts and "rate" in texts:
        raise UsageError("--rate replaces --time-scale; give one or the other")
    found = {}
    for name, text in texts.items():
        kind = TypeAdapter[float](Rate if name == "rate" else Ratio)
        try:
            found[name] = kind.validate_python(text)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise UsageError(f"--{name.replace('_', '-')}: {reason}") from None
    return found


def _written(path: Path, trace: Trace) -> None:
    """Say what was written, and on stderr what was left out of it."""
    from sim.workload.traces.tools import skipped_text

    requests, told = len(trace), skipped_text(trace.skipped)
    lost = trace.repeated is not None
    if told is not None:
        typer.echo(told, err=True)
    if lost:
        typer.echo("not written: which prompts begin alike (hash_ids)", err=True)
    typer.echo(f"{path}: {requests:,} {'request' if requests == 1 else 'requests'}")
