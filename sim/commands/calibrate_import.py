"""Provides ``infersim calibrate import``: a profile from published measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.commands.exits import check_checkout, plain_errors
from sim.errors import InfersimError, UsageError

if TYPE_CHECKING:
    from sim.specs.profile import Profile

app = typer.Typer(
    name="import", help="Fit a profile to published measurements.", no_args_is_help=True
)

Force = Annotated[bool, typer.Option("--force", help="Overwrite a file.")]


Bare = Annotated[
    bool, typer.Option("--bare", help="Write only the profile, as JSON, as in the catalogue.")
]


@app.command()
def aiconfigurator(
    system: Annotated[str, typer.Option(help="Name of the GPU in the tables, such as h100_sxm.")],
    framework: Annotated[str, typer.Option(help="vllm, trtllm or sglang.")] = "vllm",
    version: Annotated[
        str | None, typer.Option(help="Version of the framework; default: the newest.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option(help="Folder of the tables; default: the installed package's.")
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the unpacked package aiconfigurator 0.2.0: its kernels of TensorRT-LLM "
            "1.0 are fitted as well."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; default: GPU-FRAMEWORK.yaml or .json."),
    ] = None,
    bare: Bare = False,
    force: Force = False,
) -> None:
    """Fit the kernel tables of the package aiconfigurator-core."""
    with plain_errors():
        check_checkout("calibrate import aiconfigurator", "calibrate.importers")

        from calibrate.importers.aiconfigurator import locate
        from calibrate.importers.systems import from_aiconfigurator
        from sim.catalog.gpu_names import names

        tables = locate(path)
        gpus = names("aiconfigurator")
        ending = "json" if bare else "yaml"
        target = _free(out or Path(f"{gpus.get(system, system)}-{framework}.{ending}"), force)
        profile = from_aiconfigurator(tables, system, framework, version, before)
        _write(profile, target, None if bare else gpus[system])


@app.command()
def vidur(
    files: Annotated[list[Path], typer.Argument(help="Its mlp.csv and attention.csv files.")],
    gpu: Annotated[str, typer.Option(help="Catalogue name of the GPU they were measured on.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="GPU file to write; default: GPU-vidur.yaml.")
    ] = None,
    force: Force = False,
) -> None:
    """Fit profiling files of Vidur (data/profiling/compute/GPU/MODEL/*.csv)."""
    with plain_errors():
        check_checkout("calibrate import vidur", "calibrate.importers")

        from calibrate.importers.systems import from_vidur

        target = _free(out or Path(f"{gpu}-vidur.yaml"), force)
        _write(from_vidur(files, gpu), target, gpu)


@app.command("aiter")
def tuned(
    products: Annotated[Path, typer.Argument(help="CSV file of its tuned products.")],
    experts: Annotated[Path, typer.Argument(help="CSV file of its tuned fused experts.")],
    gpu: Annotated[str, typer.Option(help="Catalogue name of the GPU: mi300x or mi355x.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; default: GPU-aiter.yaml or .json."),
    ] = None,
    bare: Bare = False,
    force: Force = False,
) -> None:
    """Fit the kernels that AMD's library aiter was tuned to, a lower bound of what engines take."""
    with plain_errors():
        check_checkout("calibrate import aiter", "calibrate.importers")

        from calibrate.importers.aiter import from_aiter

        target = _free(out or Path(f"{gpu}-aiter.{'json' if bare else 'yaml'}"), force)
        _write(from_aiter(products, experts, gpu), target, None if bare else gpu)


@app.command()
def measurements(
    file: Annotated[Path, typer.Argument(help="A table that infersim calibrate has written.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="GPU file to write.")],
    force: Force = False,
) -> None:
    """Fit measurements made by infersim calibrate, on any machine."""
    from calibrate import session

    with plain_errors():
        profile, _ = session.fit(file, _free(out, force), session.load_fit())
        _tell(profile, out)


def _free(target: Path, force: bool) -> Path:
    """``target``, which is not there yet or may be overwritten."""
    if target.exists() and not force:
        raise UsageError(f"{target} exists; --force overwrites it")
    return target


def _write(profile: Profile, target: Path, gpu: str | None) -> None:
    """Write a GPU file for the catalogue's ``gpu``, or the profile alone; say how good it is."""
    from sim import catalog
    from sim.catalog.profile_file import to_document, to_json, to_yaml
    from sim.results.whole_file import write_text

    document = to_document(profile)
    if gpu is None:
        text = to_json(document)
    else:
        entry = catalog.raw("gpus", gpu)
        del entry["names"]  # those of the catalogue's part
        text = to_yaml({**entry, "profile": document})
    write_text(target, text)
    _tell(profile, target)


def _tell(profile: Profile, target: Path) -> None:
    if not any(profile.kernels.values()):
        raise InfersimError("the profile is empty")
    typer.echo(f"{profile.source}\nhold-out error, median / 90th percentile:")
    for operator, fits in profile.kernels.items():
        for precision, fit in fits.items():
            error = f"{fit.holdout.median:.1%} / {fit.holdout.p90:.1%}"
            typer.echo(f"  {f'{operator} {precision}':<26} {error}")
    typer.echo(f"Profile: {target}")
