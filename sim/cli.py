"""The ``infersim`` command: a thin shell over the Python API.

Results go to stdout, everything else to stderr. Exit codes: 0 ok, 1 failure, 2 usage or invalid
scenario, 3 infeasible, 99 SLO missed under ``--check``, 130 interrupted (partial results kept).
Whatever takes long to import is imported by the command that needs it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sim.errors import InfersimError, UsageError

if TYPE_CHECKING:
    from sim.cost import Deployment
    from sim.results import Result

SLO_MISSED = 99
INTERRUPTED = 130
INFEASIBLE = 3

app = typer.Typer(
    name="infersim",
    help="Predict the throughput and latency of LLM inference serving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ScenarioFile = Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")]
Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value, as a.b.0.c=value."),
]


def main() -> None:
    """Entry point of the console script."""
    app()


@contextmanager
def _errors() -> Iterator[None]:
    """Turn a user's mistake into its message and exit code, never into a traceback."""
    try:
        yield
    except InfersimError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"infersim {version('infersim')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Predict the throughput and latency of LLM inference serving."""


@app.command()
def run(
    scenario: ScenarioFile,
    overrides: Overrides = [],
    seed: Annotated[int | None, typer.Option(help="Random seed; else the scenario's.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Run directory; else runs/<time>-<name>-<id>."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, no table.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 99 if the SLO is missed.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
) -> None:
    """Simulate a scenario, write a run directory and print what came of it."""
    with _errors():
        from sim.results import check_free, new_run_directory
        from sim.scenario import load_scenario

        loaded = load_scenario(scenario, overrides)
        if seed is not None:
            loaded = loaded.override({"seed": seed})
        if check and loaded.slo.ttft is None and loaded.slo.tpot is None:
            raise UsageError(
                "--check needs a limit to check: the scenario has no slo.ttft or slo.tpot"
            )
        directory = output or new_run_directory(Path("runs"), loaded.name)
        check_free(directory)
        result = _simulate(loaded)
        result.save(directory)
        page = _report(result, directory) if report else None
    try:
        _show_run(result.summary, directory, page, as_json)
    except BrokenPipeError:
        raise  # the reader has seen enough
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing left to flush
        typer.echo(f"error: cannot print ({error.strerror}); the run is in {directory}", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(_exit_code(result, check))


def _show_run(summary: dict[str, Any], directory: Path, page: Path | None, as_json: bool) -> None:
    """Print what ``run`` found: one JSON object, or the tables and where the files are."""
    if as_json:
        shown = summary | {"infersim": summary["infersim"] | {"run_directory": str(directory)}}
        typer.echo(json.dumps(shown, allow_nan=False))
        return
    from sim.console import paths_view, run_view, stdout

    console = stdout()
    console.print(run_view(summary))
    console.print(paths_view(directory, page), soft_wrap=True)


def _exit_code(result: Result, check: bool) -> int:
    if result.interrupted:
        typer.echo("interrupted: what had finished by then is kept", err=True)
        return INTERRUPTED
    summary = result.summary
    if not summary["completed"]:
        reasons = summary["infersim"]["requests"]["rejected_reasons"]
        told = "; ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        typer.echo(f"nothing could be served{': ' + told if told else ''}", err=True)
        return INFEASIBLE
    met = summary["infersim"]["verdict"]["slo_met"]
    if check and met is None:
        typer.echo("the SLO could not be judged: no request counts beside the warm-up", err=True)
        return 1
    return SLO_MISSED if check and not met else 0


def _simulate(scenario: Any) -> Result:
    """Run the simulation with a progress bar on stderr, if that is a terminal."""
    from sim.simulation import simulate

    if not sys.stderr.isatty():
        return simulate(scenario)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from sim.console import stderr

    columns = ("requests", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr(), transient=True) as bar:
        task = bar.add_task("requests")
        return simulate(
            scenario, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )


def _report(result: Result, directory: Path) -> Path | None:
    """Write the page; a failure costs the page only, the figures are on disk by now."""
    try:
        from reports import write_report

        return write_report(
            directory,
            summary=result.summary,
            requests=result.requests,
            timeseries=result.timeseries,
            scenario_yaml=result.scenario.to_yaml(),
        )
    except Exception as error:
        typer.echo(f"warning: no report was written ({type(error).__name__}: {error})", err=True)
        return None


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.")],
    overrides: Overrides = [],
) -> None:
    """Check scenario files without running them."""
    from sim.scenario import load_scenario
    from sim.simulation import make_replica_scheduler, prepare

    code = 0
    for file in files:
        try:
            make_replica_scheduler(prepare(load_scenario(file, overrides)))
        except InfersimError as error:
            typer.echo(f"error: {error}", err=True)
            code = max(code, error.exit_code)
        else:
            typer.echo(f"{file}: ok")
    raise typer.Exit(code)


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the file; .yaml is added.")],
    like: Annotated[str, typer.Option(help="Which template: chat or batch.")] = "chat",
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file.")] = False,
) -> None:
    """Write a scenario to start from, every section of it explained."""
    with _errors():
        from sim.scenario import starter

        path = starter.write(name, like, force=force)
    typer.echo(f"{path}: written; next: infersim run {shlex.quote(str(path))}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, with which editors complete and check one."""
    from sim.scenario.json_schema import to_text

    typer.echo(to_text(), nl=False)


@app.command("list")
def list_catalogue(
    kind: Annotated[
        Literal["gpus", "models", "engines", "all"], typer.Argument(help="What to list.")
    ] = "all",
) -> None:
    """List what the catalogue knows."""
    from sim import catalog

    titles: dict[Literal["gpus", "models", "engines"], Callable[[str], str]] = {
        "gpus": lambda name: catalog.gpu(name).title,
        "models": lambda name: f"{catalog.model(name).parameters / 1e9:.1f} B parameters",
        "engines": lambda name: catalog.engine(name).title,
    }
    for section, title in titles.items():
        if kind in (section, "all"):
            typer.echo(section)
            for name in catalog.names(section):
                typer.echo(f"  {name:<16} {title(name)}")


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name from `infersim list`.")]) -> None:
    """Show a catalogue entry with the source of every value."""
    import yaml

    from sim import catalog
    from sim.errors import did_you_mean

    with _errors():
        kinds: tuple[Literal["gpus", "models", "engines"], ...] = ("gpus", "models", "engines")
        found = [kind for kind in kinds if name in catalog.names(kind)]
        if not found:
            known = [entry for kind in kinds for entry in catalog.names(kind)]
            raise UsageError(
                f"nothing is called {name!r}{did_you_mean(name, known)}; see `infersim list`"
            )
        for kind in found:
            text = yaml.safe_dump(
                catalog.raw(kind, name), sort_keys=False, width=88, allow_unicode=True
            )
            typer.echo(f"# {kind}/{name}\n{text}", nl=False)


Model = Annotated[str, typer.Argument(help="Catalogue name, or path of a config.json.")]
Gpu = Annotated[str, typer.Option(help="Catalogue name, or path of a GPU file.")]
Engine = Annotated[str, typer.Option(help="Overhead preset.")]
Weights = Annotated[str, typer.Option(help="Precision of the weights.")]
Activations = Annotated[str, typer.Option(help="Precision of the activations.")]
KvCache = Annotated[str, typer.Option(help="Precision of the KV cache.")]
Tp = Annotated[int, typer.Option("--tensor-parallel", min=1, help="GPUs that share each layer.")]


def _deployment(
    model: str, gpu: str, engine: str, weights: str, activations: str, kv_cache: str, tp: int
) -> Deployment:
    from sim import catalog
    from sim.cost import Deployment

    try:
        return Deployment(
            model=catalog.model(model),
            gpu=catalog.gpu(gpu),
            engine=catalog.engine(engine),
            weights=weights,
            activations=activations,
            kv_cache=kv_cache,
            tensor_parallel=tp,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


@app.command()
def roofline(
    model: Model,
    gpu: Gpu,
    batch: Annotated[list[int], typer.Option(min=1, help="Batch size; may be repeated.")] = [
        1,
        32,
        256,
    ],
    context: Annotated[int, typer.Option(min=1, help="Tokens each sequence holds.")] = 1024,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt prefilled.")] = 1024,
    weights: Weights = "bf16",
    activations: Activations = "bf16",
    kv_cache: KvCache = "bf16",
    tensor_parallel: Tp = 1,
) -> None:
    """Which operations can be batched? FLOPs, bytes, time and bound of every operator."""
    with _errors():
        from sim.analysis import roofline_view
        from sim.console import stdout

        d = _deployment(model, gpu, "ideal", weights, activations, kv_cache, tensor_parallel)
        stdout().print(roofline_view(d, batch, context, prompt))


@app.command()
def fit(
    model: Model,
    gpu: Gpu,
    context: Annotated[int, typer.Option(min=1, help="Tokens of one request.")] = 8192,
    engine: Engine = "vllm",
    weights: Weights = "bf16",
    activations: Activations = "bf16",
    kv_cache: KvCache = "bf16",
    tensor_parallel: Tp = 1,
    block_size: Annotated[int, typer.Option(min=1)] = 16,
    gpu_memory_utilization: Annotated[float, typer.Option(min=0.01, max=1.0)] = 0.9,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1)] = 8192,
    max_num_seqs: Annotated[int, typer.Option(min=1)] = 256,
) -> None:
    """How many requests fit? The memory arithmetic, line by line."""
    with _errors():
        from sim.analysis import fit_view
        from sim.capacity import capacity
        from sim.console import stdout

        d = _deployment(model, gpu, engine, weights, activations, kv_cache, tensor_parallel)
        memory = capacity(
            d,
            block_size=block_size,
            gpu_memory_utilization=gpu_memory_utilization,
            num_gpu_blocks=None,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
        )
        stdout().print(fit_view(d, memory, context))
        if memory.usable_blocks == 0:
            raise typer.Exit(INFEASIBLE)


@app.command()
def selftest(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, no table.")
    ] = False,
) -> None:
    """Check the event loop against queueing theory; exit with 1 if a check fails."""
    from sim.selftest import checks, header, row

    done = []
    with _errors():
        if not as_json:
            typer.echo(header())
        for check in checks():
            done.append(check)
            if not as_json:
                typer.echo(row(check))
    failed = sum(not check.ok for check in done)
    if as_json:
        listed = [check.document() for check in done]
        typer.echo(json.dumps({"ok": not failed, "checks": listed}, allow_nan=False))
    else:
        told = f"{failed} of {len(done)} checks failed" if failed else f"all {len(done)} checks ok"
        typer.echo(told)
    raise typer.Exit(1 if failed else 0)


trace = typer.Typer(help="Look at traces, convert them, cut them down.", no_args_is_help=True)
app.add_typer(trace, name="trace")

TraceFile = Annotated[Path, typer.Argument(help="A trace, in any format that scenarios replay.")]
PlainFile = Annotated[Path, typer.Argument(help="The CSV file to write.")]
Format = Annotated[str, typer.Option("--format", help="How to read it; auto: by its columns.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file.")]


@trace.command("describe")
def trace_describe(
    file: TraceFile,
    trace_format: Format = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, no table.")
    ] = False,
) -> None:
    """How many requests, how bursty, how long?"""
    with _errors():
        from sim.trace_tools import describe, to_text

        figures = describe(file, trace_format)
    typer.echo(json.dumps(figures, allow_nan=False) if as_json else to_text(figures))


@trace.command("convert")
def trace_convert(
    file: TraceFile, output: PlainFile, trace_format: Format = "auto", force: Force = False
) -> None:
    """Write a trace as plain CSV: arrival_s, prompt_tokens, output_tokens."""
    with _errors():
        from sim.trace_tools import check_free, write_trace
        from sim.workload.traces import read_trace

        check_free(output, file, force=force)
        found = read_trace(file, trace_format)
        write_trace(found, output)
    _written(output, len(found), found.skipped)


@trace.command("sample")
def trace_sample(
    file: TraceFile,
    output: PlainFile,
    requests: Annotated[
        int | None, typer.Option(min=1, help="So many consecutive requests, from a random place.")
    ] = None,
    thin: Annotated[
        float | None, typer.Option(help="Instead: keep each request with this probability.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Selects the random draws.")] = 42,
    trace_format: Format = "auto",
    force: Force = False,
) -> None:
    """Write a part of a trace as plain CSV; its first request arrives at 0."""
    with _errors():
        from sim.trace_tools import check_free, sample_thinned, sample_window, write_trace
        from sim.workload.traces import read_trace

        check_free(output, file, force=force)
        found = read_trace(file, trace_format)
        if requests is not None and thin is None:
            part = sample_window(found, requests, seed)
        elif thin is not None and requests is None:
            part = sample_thinned(found, thin, seed)
        else:
            raise UsageError("a sample takes either --requests N or --thin P")
        write_trace(part, output)
    _written(output, len(part), part.skipped)


def _written(path: Path, requests: int, skipped: dict[str, int]) -> None:
    """Say what was written, and on stderr what was left out of it."""
    from sim.trace_tools import skipped_text

    told = skipped_text(skipped)
    if told is not None:
        typer.echo(told, err=True)
    typer.echo(f"{path}: {requests:,} {'request' if requests == 1 else 'requests'}")


if __name__ == "__main__":
    main()
