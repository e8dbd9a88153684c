"""Provides ``infersim observe`` and ``infersim explain``, which show what a real engine does.

Results go to stdout, progress and warnings to stderr, exit codes are ``sim.commands.exits``.
Slow imports are made when they are needed.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from sim.commands.answering import with_records
from sim.commands.exits import SIGNALLED, plain_errors
from sim.commands.options import AsJson, Overrides, Report, RunOutput, Seed
from sim.commands.output import progress, save, show, write_page
from sim.errors import InfersimError, UsageError
from sim.units import parse

if TYPE_CHECKING:
    from calibrate.engine.record import ObservedResult
    from sim.loop.clock import Stop
    from sim.scenario import Scenario

ENGINES = {
    "reference": "calibrate.engine.run:run",
    "vllm": "calibrate.observers.vllm:observe",
    "transformers": "calibrate.observers.transformers:observe",
    "transformers-by-request": "calibrate.observers.transformers:observe_by_request",
}
"""Where each engine is driven: a function ``(scenario, device, *, precision, sampling, stop,
progress) -> Observed``. It is imported when its engine is asked for."""

Engine = Annotated[
    Literal["reference", "vllm", "transformers", "transformers-by-request"],
    typer.Option(help="Engine to run: infersim's own, or one installed here."),
]
PROOFS = "fp64"
"""A precision for comparing arithmetic, which scenarios do not have."""

Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:INDEX.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; default: torch's.")]
Precision = Annotated[
    str | None, typer.Option(help="bf16, fp16, fp32 or fp64; default: the scenario's.")
]


Recorded = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="Import a recorded run: vllm-bench (SGLang's bench_serving, too), guidellm, aiperf, "
        "genai-perf, inference-perf, llmperf, trtllm-bench, inferencex, prometheus (the address "
        "of one that scrapes vLLM or SGLang), or log (a folder with requests.jsonl; "
        "calibrate/recordings/README.md has the keys).",
    ),
]
RecordedEntry = Annotated[
    int | None,
    typer.Option(
        "--entry", help="With --from: which of several results to read, from 1; default: the last."
    ),
]
RecordedModel = Annotated[
    str | None, typer.Option(help="With --from: catalogue name, or path of a config.json.")
]
RecordedGpu = Annotated[
    str | None, typer.Option(help="With --from: catalogue name, or path of a GPU file.")
]


RecordedBlocks = Annotated[
    int | None,
    typer.Option(
        "--num-gpu-blocks",
        min=1,
        help="With --from: KV blocks, as the engine printed at its start.",
    ),
]


RecordedServer = Annotated[
    Path | None,
    typer.Option(
        "--server",
        help="With --from: how the server was started, in a file as `infersim import` reads, or a "
        "scenario of it; it gives all but the traffic.",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(help="With --from prometheus: how long, such as 1h or 24h; default: 1h."),
]
Until = Annotated[
    str | None,
    typer.Option(help="With --from prometheus: end of the window, as 2026-11-28T18:00; now."),
]
Select = Annotated[
    str, typer.Option(help="With --from prometheus: which series, such as 'model_name=\"x\"'.")
]


class ObserveOptions(NamedTuple):
    """The options of ``infersim observe``."""

    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:INDEX; required unless --from is given.")
    ] = None
    engine: Engine = "reference"
    recorded: Recorded = None
    model: RecordedModel = None
    gpu: RecordedGpu = None
    entry: RecordedEntry = None
    blocks: RecordedBlocks = None
    server: RecordedServer = None
    window: Window = None
    until: Until = None
    select: Select = ""
    overrides: Overrides = []
    seed: Seed = None
    precision: Precision = None
    sampling: Annotated[
        Literal["greedy", "random"], typer.Option(help="How the next token is chosen.")
    ] = "greedy"
    threads: Threads = None
    output: RunOutput = None
    as_json: AsJson = False
    report: Report = True


@with_records
def observe(
    scenario: Annotated[
        Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml; with --from, a record.")
    ],
    options: ObserveOptions,
) -> None:
    """Serve a scenario's traffic with a real engine on this device, and record what happened.

    With --from, import what another program recorded of a real run.
    """
    with plain_errors():
        if options.recorded is not None:
            _import(scenario, options)
            return
        stopped = _serve(scenario, options)
    if stopped is not None:
        raise typer.Exit(SIGNALLED + stopped)


def _import(path: Path, options: ObserveOptions) -> None:
    """Save and show the run that ``path`` records; options of runs on a device are refused."""
    from calibrate.recordings.recording import RecordingChoice
    from sim.commands.observe_records import bring_in, check_options

    check_options(
        {
            "--device": options.device,
            "--engine": None if options.engine == "reference" else options.engine,
            "--precision": options.precision,
            "--threads": options.threads,
        }
    )
    overrides = [*options.overrides]
    if options.seed is not None:
        overrides.append(f"seed={options.seed}")
    if options.blocks is not None:
        overrides.append(f"kv_cache.num_gpu_blocks={options.blocks}")
    assert options.recorded is not None
    result, directory = bring_in(
        options.recorded,
        path,
        options.output,
        model=options.model,
        gpu=options.gpu,
        overrides=overrides,
        choice=RecordingChoice(
            options.entry,
            0 if options.seed is None else options.seed,
            None if options.window is None else _seconds(options.window),
            options.until,
            options.select,
        ),
        server=options.server,
    )
    page = write_page(result, directory) if options.report else None
    show(result, directory, page, options.as_json)
    if not options.as_json and result.scenario.workload.trace is not None:
        for line in _next(directory, result.summary):
            typer.echo(line)


def _next(directory: Path, summary: Mapping[str, Any]) -> list[str]:
    """What to ask of traffic that was recorded; of a long record, of its busy hour."""
    scenario = shlex.quote(str(directory / "scenario.yaml"))
    long = summary["duration"] >= 2 * BUSY_HOUR and summary["completed"] >= MANY
    busy = " --set workload.trace.busiest=1h" if long else ""
    twice = "--set workload.trace.overlay=2"
    return [
        f"Does it predict what happened?  infersim validate-run {shlex.quote(str(directory))}",
        f"What does it hold?              infersim find {scenario}{busy} --scale overlay",
        f"Twice the users, what first?    infersim diagnose {scenario}{busy} {twice}",
        "With your SLO, at the end:       --set slo.ttft_p95=1s --set slo.tpot_p95=50ms",
    ]


def _seconds(text: str) -> float:
    """A window as a user writes it; UsageError for what is none."""
    try:
        found = parse(text, "time")
    except ValueError as error:
        raise UsageError(f"--window: {error}") from None
    if found < LEAST_WINDOW:
        raise UsageError(f"--window {text}: expected at least {LEAST_WINDOW:g} s")
    return found


LEAST_WINDOW = 10.0

BUSY_HOUR, MANY = 3600.0, 20_000
"""Seconds of the busy hour, by which one plans; requests that take long to simulate many times."""


def _serve(path: Path, options: ObserveOptions) -> int | None:
    """Observe a run of the scenario at ``path``; the signal that stopped it, if one did."""
    foreign = {
        "--model": options.model,
        "--gpu": options.gpu,
        "--entry": options.entry,
        "--num-gpu-blocks": options.blocks,
        "--server": options.server,
        "--window": options.window,
        "--until": options.until,
        "--select": options.select or None,
    }
    device = _device(options.device, foreign)
    from calibrate.engine.asked import as_driven
    from sim.loop.clock import Stop
    from sim.results.run_directory import new_run_directory
    from sim.scenario import load_scenario

    loaded, precision = load_scenario(path, options.overrides), options.precision
    if options.seed is not None:
        loaded = loaded.override({"seed": options.seed})
    if precision is not None and precision != PROOFS:
        parts = ("weights", "activations", "kv_cache")
        loaded = loaded.override({f"precision.{part}": precision for part in parts})
    loaded = as_driven(loaded)
    directory = options.output or new_run_directory(Path("runs"), f"{loaded.name}-observed")
    with Stop(signal.SIGINT, signal.SIGTERM) as stop:
        asked = {
            "precision": precision if precision == PROOFS else None,
            "sampling": options.sampling,
        }
        opened = (device, options.threads)
        result = _observe(loaded, directory, stop, options.engine, opened, asked)
        page = write_page(result, directory) if options.report else None
    show(result, directory, page, options.as_json)
    return stop.signal


explain = typer.Typer(
    name="explain",
    help="Explain the keys of a scenario, what does not go together, or what a forward pass does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@explain.callback()
def _explain() -> None:
    """Explain the keys of a scenario, what does not go together, and what a forward pass does."""


@explain.command()
def batching(
    model: Annotated[
        str, typer.Argument(help="Catalogue name, or path of a config.json.")
    ] = "llama-3.2-1b",
    requests: Annotated[int, typer.Option(min=2, max=64, help="Requests in the batch.")] = 4,
    context: Annotated[
        int, typer.Option(min=1, max=4096, help="Context of each request, in tokens.")
    ] = 64,
    device: Device = "cpu",
    precision: Annotated[str, typer.Option(help="bf16, fp16, fp32 or fp64.")] = "fp32",
    threads: Threads = None,
) -> None:
    """Show which operators run once for the whole batch, and which once for each request."""
    with plain_errors():
        from calibrate.device import open_device
        from calibrate.engine.explain import trace, view
        from calibrate.lazy_torch import installed
        from sim import catalog
        from sim.terminal.console import stdout

        if not installed():
            raise UsageError(
                "explain batching traces a pass in PyTorch, which is not installed "
                f"(infersim[calibrate]). Without it, `infersim roofline {model} --gpu h100-sxm "
                "--full` shows what a batch shares by operator, in the column 'shared'"
            )
        spec = catalog.model(model)
        opened = open_device(device, threads)
        stdout().print(view(trace(spec, opened, precision, requests, context)))


def _device(device: str | None, foreign: Mapping[str, object]) -> str:
    """The device to run on; UsageError without one, or with options of recorded runs."""
    for option, value in foreign.items():
        if value is not None:
            raise UsageError(f"{option} requires --from; a scenario has its own setting (--set)")
    if device is None:
        raise UsageError("--device is required: cpu, cuda or cuda:INDEX (or --from, for a record)")
    return device


def _observe(
    scenario: Scenario,
    directory: Path,
    stop: Stop,
    engine: str,
    device: tuple[str, int | None],
    options: dict[str, Any],
) -> ObservedResult:
    """The result, which is in ``directory`` by then; a run that cannot start leaves nothing."""
    from calibrate.device import open_device
    from calibrate.engine.record import ObservedDirectory, ObservedResult

    module, _, function = ENGINES[engine].partition(":")
    run = getattr(import_module(module), function)
    opened = open_device(*device, huge_pages=engine == "reference")
    place = ObservedDirectory.create(directory, scenario)
    try:
        with progress() as tell:
            result = ObservedResult(run(scenario, opened, stop=stop, progress=tell, **options))
    except (InfersimError, KeyboardInterrupt):
        place.discard()
        raise
    save(result, place, stop)
    return result
