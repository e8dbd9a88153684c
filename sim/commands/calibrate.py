"""Provides the ``infersim calibrate`` command: measure this device, fit it, write a profile.

Results go to stdout, progress and warnings to stderr. Exit codes are the usual ones: 0 ok,
1 failure, 2 usage, 130 interrupted (all measurements so far are saved, ``--resume`` continues).
Slow imports are made when something is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from typer.core import TyperGroup

from sim.commands import calibrate_import as import_commands
from sim.commands.answering import with_records
from sim.commands.exits import INTERRUPTED, plain_errors
from sim.errors import UsageError
from sim.units import parse

if TYPE_CHECKING:
    from calibrate.session import Session
    from sim.specs.profile import Profile


class _RunByDefault(TyperGroup):
    """A group whose ``run`` may be left out, so that ``calibrate --device cpu`` measures."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named or not args else ["run", *args])


app = typer.Typer(
    name="calibrate",
    cls=_RunByDefault,
    help="Measure a device and fit a profile to it. Without a subcommand: run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(import_commands.app)

Out = Annotated[Path, typer.Option("--out", "-o", help="Profile to write, such as my-gpu.yaml.")]


AcceptDrift = Annotated[
    bool,
    typer.Option(
        "--accept-drift", help="Write a profile even if the machine was busy or unsteady."
    ),
]


class CalibrateOptions(NamedTuple):
    """The options of ``infersim calibrate run``."""

    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:INDEX.")]
    out: Out = Path("my-gpu.yaml")
    models: Annotated[
        list[str] | None,
        typer.Option(help="Models whose layers are measured; repeat, or separate by commas."),
    ] = None
    precision: Annotated[
        list[str] | None,
        typer.Option(help="bf16, fp16, fp32, fp8, int8, int8-weights, int4-weights; repeat."),
    ] = None
    time_budget: Annotated[
        str | None,
        typer.Option(help="Time to spend, such as 3min; default: 5min on CUDA, 230s on a CPU."),
    ] = None
    measurements: Annotated[
        Path | None, typer.Option(help="Table to write; default: the profile's name, with .csv.")
    ] = None
    resume: Annotated[bool, typer.Option(help="Continue an existing table.")] = False
    threads: Annotated[int | None, typer.Option(help="CPU threads; default: torch's.")] = None
    kernels: Annotated[
        Literal["torch", "vllm"],
        typer.Option(help="Kernels to measure: PyTorch's, or an engine's (CPU, --models only)."),
    ] = "torch"
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure only these operators, such as gemm; experts, latent or windows stand for "
            "theirs. Repeat, or separate by commas. With --resume they are added to a table."
        ),
    ] = None
    fitted: Annotated[
        bool, typer.Option("--fit/--no-fit", help="Fit a profile after measuring.")
    ] = True
    accept_drift: AcceptDrift = False


@app.command()
@with_records
def run(
    options: CalibrateOptions,
) -> None:
    """Measure a device for some minutes, then fit and write its profile."""
    with plain_errors():
        from calibrate import session

        if options.out.exists() and options.fitted and not options.resume:
            raise UsageError(f"--out {options.out}: exists; give another name, or remove it")
        table_path = options.measurements or options.out.with_suffix(".csv")
        for path in (options.out, table_path):
            if not path.absolute().parent.is_dir():
                raise UsageError(f"{path}: there is no directory {path.parent}")
        request = session.CalibrationRequest(
            device=options.device,
            measurements=table_path,
            models=_split(options.models),
            precisions=_split(options.precision),
            budget=None if options.time_budget is None else _seconds(options.time_budget),
            threads=options.threads,
            resume=options.resume,
            scratch=table_path.absolute().parent,
            kernels=options.kernels,
            only=_split(options.only),
            fitted=options.fitted,
        )
        if options.fitted:
            session.load_fit()  # so that a missing package shows before measuring, not after
        _measure(session.prepare(request))
        if not options.fitted:
            _show(table_path, None)
            return
        _fit(table_path, options.out, options.accept_drift)


@app.command()
def fit(
    measurements: Annotated[
        Path, typer.Argument(help="Table written by `infersim calibrate run`.")
    ],
    out: Out = Path("my-gpu.yaml"),
    accept_drift: AcceptDrift = False,
) -> None:
    """Fit a profile to measurements made earlier, on any machine."""
    with plain_errors():
        if out.exists():
            raise UsageError(f"--out {out}: exists; give another name, or remove it")
        _fit(measurements, out, accept_drift)


def _fit(table_path: Path, out: Path, accept_drift: bool) -> None:
    """Write a profile and show its errors; if the machine was not steady, show only that."""
    from calibrate import session

    try:
        profile, _ = session.fit(table_path, out, session.load_fit(), accept_drift=accept_drift)
    except session.UnsteadyError:
        _show(table_path, None)
        raise
    _show(table_path, profile, out)
    for doubt in session.doubts(profile, table_path):
        typer.echo(f"warning: {doubt}", err=True)


def _measure(session: Session) -> None:
    """Measure with progress on stderr; if interrupted, say where the measurements are."""
    from calibrate.console import facts_view, progress
    from calibrate.session import measure
    from sim.terminal.console import stderr

    store = session.store
    stderr().print(facts_view(session.device.facts))
    if store.earlier.rows:
        stderr().print(f"continuing {store.path}, which has {len(store.earlier.rows)} lines")
    try:
        with progress() as tell:
            measure(session, tell)
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted: {len(store.table.rows)} lines are saved in {store.path}; --resume "
            f"continues there, `infersim calibrate fit {store.path}` fits what is there",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None


def _show(table_path: Path, profile: Profile | None, out: Path | None = None) -> None:
    """The table of errors, and where everything was written."""
    from calibrate.console import result_view
    from calibrate.measurements import read
    from calibrate.session import models_of
    from calibrate.stability import drift, noise, sums
    from sim.terminal.console import stdout

    table = read(table_path)
    layers = sums(table, models_of(table_path))
    console = stdout()
    console.print(result_view(profile, table, noise(table), drift(table), layers))
    console.print(f"Measurements: {table_path}", soft_wrap=True)
    if out is not None:
        console.print(f"Profile: {out}  (use it as `gpu: {out}`)", soft_wrap=True)


def _split(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]


def _seconds(text: str) -> float:
    try:
        return parse(text, "time")
    except ValueError as error:
        raise UsageError(f"--time-budget {text}: {error}") from None
