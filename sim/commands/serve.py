"""Provides ``infersim serve``: an OpenAI-compatible server with the timing of a simulated fleet.

It serves until it is stopped (Ctrl-C or SIGTERM); then the run directory is completed as that of
any other run, and its results are printed. A second signal cuts off who is still being served.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sim.commands.answering import with_records
from sim.commands.exits import plain_errors
from sim.commands.options import AsJson, Overrides, Report, RunOutput, Seed
from sim.commands.output import save, show, write_page
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.serve.service import Service

Port = Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 picks a free one.")]


class ServeOptions(NamedTuple):
    """The options of ``infersim serve``."""

    port: Port = 8000
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 also accepts other machines.")
    ] = "127.0.0.1"
    speed: Annotated[
        float,
        typer.Option(min=0.001, max=1000.0, help="Simulated seconds per second of real time."),
    ] = 1.0
    served_model_name: Annotated[
        str | None, typer.Option(help="Model name that clients use; default: the model's own.")
    ] = None
    max_waiting: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Most requests that may wait; further ones get status 429. Default: no limit.",
        ),
    ] = None
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Let clients scale, drain, fail and start replicas: GET /control/replicas, POST "
            '/control/scale {"replicas": 2}, POST /control/replicas/0/drain, /fail, /start.',
        ),
    ] = False
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Counts prompts: a tokenizer.json of Hugging Face's, or module:function, from a "
            "text to its tokens."
        ),
    ] = None
    overrides: Overrides = []
    seed: Seed = None
    output: RunOutput = None
    as_json: AsJson = False
    report: Report = True


@with_records
def serve(
    scenario: Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")],
    options: ServeOptions,
) -> None:
    """Serve clients with the timing of a scenario's fleet, until stopped; then write the run."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with plain_errors():
        if find_spec("aiohttp") is None or find_spec("prometheus_client") is None:
            raise UsageError(
                "the server needs more packages; in the checkout: pip install '.[serve]'"
            )
        import asyncio

        from sim.results.run_directory import check_free, new_run_directory
        from sim.scenario import load_scenario
        from sim.serve.tokens import encode, tokenizer_of

        loaded = load_scenario(scenario, options.overrides)
        if options.seed is not None:
            loaded = loaded.override({"seed": options.seed})
        directory = options.output or new_run_directory(Path("runs"), f"{loaded.name}-served")
        check_free(directory)
        count = (
            encode if options.tokenizer is None else tokenizer_of(options.tokenizer, loaded.folders)
        )
        from sim.serve.app import Server
        from sim.serve.running import serve as served

        name = options.served_model_name or loaded.model.path
        server = Server(name, count, controlled=options.control, host=options.host)
        found = asyncio.run(
            served(
                loaded,
                directory,
                server,
                (options.host, options.port),
                speed=options.speed,
                most_waiting=options.max_waiting,
                ready=_tell,
            )
        )
        if found is None:
            typer.echo("no request came, and nothing was written", err=True)
            return
        service, place, record = found
        from sim.loop.clock import Stop
        from sim.result import Result

        result = Result(record)

        with Stop(signal.SIGINT, signal.SIGTERM) as stop:
            own = result.summary["infersim"]
            own["served"] = service.document()
            own["notes"] += service.notes()
            save(result, place, stop)
            page = write_page(result, place.path) if options.report else None
        show(result, place.path, page, options.as_json)


def _tell(where: str, service: Service) -> None:
    """Say on stderr that the server is there."""
    from sim.metrics.question.question_text import hardware

    scenario = service.setup.scenario
    typer.echo(
        f"Listening at {where} as {scenario.model.path} on {hardware(scenario)}, simulated. "
        "Ctrl-C stops and writes the run.",
        err=True,
    )
