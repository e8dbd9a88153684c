"""The ``infersim`` command: a thin shell over the Python API.

Results go to stdout, everything else to stderr; ``sim.exits`` has the exit codes. Whatever takes
long to import is imported by the command that needs it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sim import (
    calibrate_commands,
    export_command,
    run_command,
    score_command,
    trace_commands,
    validate_command,
)
from sim.errors import InfersimError, UsageError
from sim.exits import INFEASIBLE, told_errors
from sim.planning_commands.ablate import ablate
from sim.planning_commands.compare import compare
from sim.planning_commands.diagnose import diagnose
from sim.planning_commands.find import find
from sim.planning_commands.plan import plan
from sim.planning_commands.sensitivity import sensitivity
from sim.planning_commands.sweep import sweep
from sim.run_command import Overrides

if TYPE_CHECKING:
    from sim.cost import Deployment

app = typer.Typer(
    name="infersim",
    help="Predict the throughput and latency of LLM inference serving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(run_command.run)
app.add_typer(trace_commands.app, name="trace")
app.add_typer(calibrate_commands.app, name="calibrate")
app.command()(calibrate_commands.observe)
app.command()(score_command.score)
app.command()(export_command.export)
app.command()(validate_command.validate_run)
app.add_typer(calibrate_commands.explain, name="explain")
app.command()(sweep)
app.command()(compare)
app.command()(ablate)
app.command()(diagnose)
app.command()(sensitivity)
app.command()(find)
app.command()(plan)


def main() -> None:
    """Entry point of the console script."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a name that the terminal cannot show
    app()


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
    with told_errors():
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
    """List what the catalogue knows, and the profiles of its GPUs."""
    from sim import catalog
    from sim.calibration.find import profile_lines

    titles: dict[Literal["gpus", "models", "engines"], Callable[[str], str]] = {
        "gpus": lambda name: str(catalog.raw("gpus", name)["title"]),
        "models": lambda name: f"{catalog.model(name).parameters / 1e9:.1f} B parameters",
        "engines": lambda name: catalog.engine(name).title,
    }
    for section, title in titles.items():
        if kind in (section, "all"):
            typer.echo(section)
            for name in catalog.names(section):
                typer.echo(f"  {name:<16} {title(name)}")
                for line in profile_lines(name) if section == "gpus" else ():
                    typer.echo(f"    {line}")


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name from `infersim list`.")]) -> None:
    """Show a catalogue entry with the source of every value."""
    import yaml

    from sim import catalog
    from sim.calibration.find import profile_details
    from sim.errors import did_you_mean

    with told_errors():
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
            for line in profile_details(name) if kind == "gpus" else ():
                typer.echo(f"# {line}")


LARGEST = 2**31 - 1
"""No count of anything is more."""

Model = Annotated[str, typer.Argument(help="Catalogue name, or path of a config.json.")]
Gpu = Annotated[str, typer.Option(help="Catalogue name, or path of a GPU file.")]
Engine = Annotated[str, typer.Option(help="Overhead preset.")]
Weights = Annotated[str, typer.Option(help="Precision of the weights.")]
Activations = Annotated[str, typer.Option(help="Precision of the activations.")]
KvCache = Annotated[str, typer.Option(help="Precision of the KV cache.")]
Tp = Annotated[
    int, typer.Option("--tensor-parallel", min=1, max=LARGEST, help="GPUs that share each layer.")
]


def _deployment(
    model: str, gpu: str, engine: str, weights: str, activations: str, kv_cache: str, tp: int
) -> Deployment:
    from sim import catalog
    from sim.cost import Deployment

    preset = catalog.engine(engine)
    try:
        return Deployment(
            model=catalog.model(model),
            gpu=catalog.gpu(gpu, kernels=preset.kernels),
            engine=preset,
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
    batch: Annotated[
        list[int], typer.Option(min=1, max=LARGEST, help="Batch size; may be repeated.")
    ] = [
        1,
        32,
        256,
    ],
    context: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="Tokens each sequence holds.")
    ] = 1024,
    prompt: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="Tokens of the prompt prefilled.")
    ] = 1024,
    weights: Weights = "bf16",
    activations: Activations = "bf16",
    kv_cache: KvCache = "bf16",
    tensor_parallel: Tp = 1,
) -> None:
    """Which operations can be batched? FLOPs, bytes, time and bound of every operator."""
    with told_errors():
        from sim.analysis import roofline_view
        from sim.console import stdout

        d = _deployment(model, gpu, "ideal", weights, activations, kv_cache, tensor_parallel)
        stdout().print(roofline_view(d, batch, context, prompt))


@app.command()
def fit(
    model: Model,
    gpu: Gpu,
    context: Annotated[int, typer.Option(min=1, max=LARGEST, help="Tokens of one request.")] = 8192,
    engine: Engine = "vllm",
    weights: Weights = "bf16",
    activations: Activations = "bf16",
    kv_cache: KvCache = "bf16",
    tensor_parallel: Tp = 1,
    block_size: Annotated[int, typer.Option(min=1, max=LARGEST)] = 16,
    gpu_memory_utilization: Annotated[float, typer.Option(min=0.01, max=1.0)] = 0.9,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, max=LARGEST)] = 8192,
    max_num_seqs: Annotated[int, typer.Option(min=1, max=LARGEST)] = 256,
) -> None:
    """How many requests fit? The memory arithmetic, line by line."""
    with told_errors():
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
    with told_errors():
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


if __name__ == "__main__":
    main()
