"""Provides ``infersim list``, ``show``, ``explain scenario`` and ``explain limits``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from textwrap import indent, shorten, wrap
from typing import TYPE_CHECKING, Annotated

import typer

from sim.commands.exits import plain_errors
from sim.commands.options import AsJson, Full
from sim.commands.output import print_view
from sim.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from sim.catalog import Kind
    from sim.specs.model import ModelSpec

YAML_WIDTH = 72
"""Columns after which a line is broken at the next blank, so that 88 are enough."""


def list_catalogue(
    kind: Annotated[
        str, typer.Argument(metavar="gpus|models|engines|scenarios|all", help="What to list.")
    ] = "all",
    full: Full = False,
) -> None:
    """List what the catalogue knows, the profiles of its GPUs, and the shipped scenarios."""
    from calibrate.inspection.find import profile_lines
    from sim import catalog
    from sim.planning.answers.brief import MORE
    from sim.scenario import shipped
    from sim.terminal.console import WIDTH

    titles: dict[str, tuple[Sequence[str], Callable[[str], str]]] = {
        "gpus": (catalog.names("gpus"), _speeds),
        "models": (catalog.names("models"), lambda name: _size(catalog.model(name))),
        "engines": (catalog.names("engines"), lambda name: catalog.engine(name).title),
        "scenarios": (shipped.names(), _question),
    }
    with plain_errors():
        if kind not in (known := [*titles, "all"]):
            raise UsageError(f"{kind!r} is none of {', '.join(known)}{did_you_mean(kind, known)}")
    for section, (names, title) in titles.items():
        if kind == "all" and not full:
            told = wrap(", ".join(names), WIDTH - 2, break_on_hyphens=False)
            typer.echo(f"{section} ({len(names)})")
            typer.echo(indent("\n".join(told), "  "))
        elif kind in (section, "all"):
            typer.echo(section)
            width = max(16, *map(len, names))
            if section == "gpus":
                typer.echo(f"  {'':<{width}} {GPU_COLUMNS}")
            for name in names:
                typer.echo(f"  {name:<{width}} {title(name)}")
                for line in profile_lines(name) if full and section == "gpus" else ():
                    typer.echo(f"    {line}")
            if section == "gpus":
                typer.echo(GPU_LEGEND)
    if not full and kind in ("all", "gpus"):
        typer.echo(MORE)


def _question(name: str) -> str:
    """The beginning of the description of a shipped scenario."""
    from sim.scenario import shipped

    return shorten(shipped.description(name), 65, placeholder=" ...")


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A name from `infersim list`, a model's id on Hugging Face, or the file of a "
            "model, a GPU or an engine."
        ),
    ],
    full: Full = False,
) -> None:
    """Show a catalogue entry, or a file with what it takes over and what is taken where it is
    silent; in full with the source of every value, and the kernels of a GPU."""
    import yaml

    from calibrate.inspection.find import profile_details
    from sim import catalog
    from sim.catalog.releases import spelled
    from sim.catalog.shown import shown
    from sim.planning.answers.brief import MORE
    from sim.terminal.console import WIDTH

    with plain_errors():
        for kind in _kinds(name):
            entry = shown(kind, name)
            text = yaml.safe_dump(
                entry if full else _without_sources(entry),
                sort_keys=False,
                width=YAML_WIDTH,
                allow_unicode=True,
            )
            listed = spelled(name).name in catalog.names(kind)
            place = f"{kind}/{name}" if listed else f"{kind}: {name}"
            typer.echo(f"# {place}\n{text}", nl=False)
            assumed = [] if listed or full else _assumed(entry)
            if assumed:
                told = f"# Defaults, which the file does not state: {', '.join(assumed)}"
                typer.echo("\n".join(wrap(told, WIDTH, subsequent_indent="#     ")))
            details = profile_details(name) if full and kind == "gpus" else []
            if details:
                keep = f"A file with `extends: {name}` keeps these kernels:"
                details = [keep, *details]
            for line in details:
                typer.echo("\n".join(wrap(f"# {line}", WIDTH, subsequent_indent="#     ")))
    if not full:
        typer.echo(f"# {MORE}")


def _assumed(entry: Mapping[str, object]) -> list[str]:
    """The keys of an entry whose values are defaults, as their sources begin by saying."""
    return [
        key
        for key, value in entry.items()
        if isinstance(value, Mapping) and str(value.get("source", "")).startswith("default")
    ]


def _without_sources(entry: object) -> object:
    """A part of a catalogue file without the sources of its values."""
    if isinstance(entry, Mapping):
        if "value" in entry and "source" in entry:
            return _without_sources(entry["value"])
        return {key: _without_sources(value) for key, value in entry.items() if key != "source"}
    return [_without_sources(each) for each in entry] if isinstance(entry, list) else entry


GPU_COLUMNS = "  GiB  TB/s TFLOP/s at fp8  USD/h  kernels"
"""What ``list gpus`` says of each: memory, bandwidth, dense rates at 16 bits and at fp8, price, and
whose timings predict it."""

GPU_LEGEND = """\
  TFLOP/s are dense, at 16 bits and at fp8. Kernels are timed on the GPU itself (in
  part: without attention), scaled from those of a timed relative, or guessed from the
  data sheet. `infersim show NAME --full` gives the sources."""


def _speeds(name: str) -> str:
    """The line of a GPU under ``GPU_COLUMNS``."""
    from sim import catalog

    gpu, timed = catalog.gpu(name), catalog.timed_part(name)
    kernels = f"relative of {timed}" if timed else "data sheet"
    if timed == name:
        kernels = "timed" if "vllm" in catalog.frameworks(name) else "timed in part"
    fp8 = f"{gpu.flops('fp8') / 1e12:.0f}" if gpu.computes("fp8") else "-"
    price = "-" if gpu.price_per_hour is None else f"{gpu.price_per_hour:.2f}"
    rates = f"{gpu.flops('bf16') / 1e12:>7.0f} {fp8:>6}"
    return f"{gpu.memory / 2**30:>5.0f} {gpu.bandwidth / 1e12:>5.2f} {rates} {price:>6}  {kernels}"


def _size(model: ModelSpec) -> str:
    active = f", {model.active_parameters / 1e9:.1f} B active" if model.has_experts else ""
    return f"{model.parameters / 1e9:.1f} B parameters{active}"


def _kinds(name: str) -> list[Kind]:
    """The parts of the catalogue that have this name, or the one that a file belongs to."""
    from pathlib import Path

    from sim import catalog
    from sim.catalog.ids import named
    from sim.catalog.releases import spelled
    from sim.catalog.shown import kind_of_file

    kinds: tuple[Kind, ...] = ("gpus", "models", "engines")
    found = [kind for kind in kinds if name in catalog.names(kind)]
    if not found and spelled(name).name in catalog.names("engines"):
        return ["engines"]
    if not found and Path(name).exists():
        return [kind_of_file(Path(name))]
    if not found and named(name):
        return ["models"]
    if not found:
        known = [entry for kind in kinds for entry in catalog.names(kind)]
        raise UsageError(
            f"nothing is called {name!r}{did_you_mean(name, known)}; see `infersim list`"
        )
    return found


def explain_scenario(
    key: Annotated[
        str | None,
        typer.Argument(
            help="Key to explain, such as workload.arrivals or max_num_seqs; default: all."
        ),
    ] = None,
    as_json: AsJson = False,
    full: Full = False,
) -> None:
    """Explain every key of a scenario: meaning, unit, default, allowed values, example."""
    with plain_errors():
        from sim.scenario.reference.keys import asked
        from sim.terminal.reference import FEW, first_view, reference_view

        try:
            found = asked(key)
        except UsageError as error:
            raise _measured(str(key)) or error from None
        if as_json:
            listed = [entry.document() for entry in found]
            typer.echo(json.dumps({"command": "explain scenario", "keys": listed}))
            return
        full = full or len(found) <= FEW
        print_view((reference_view if full else first_view)(found, key is None), full=full)


def _measured(name: str) -> UsageError | None:
    """The error on a name which is no key of a scenario and stands for metrics of a run."""
    from sim.metrics.terms.definitions import METRICS

    found = [each.key for each in METRICS if f"_{name.lower()}_" in f"_{each.key}_"]
    told = f"{name}: no key of a scenario; in the result of a run (--json) are {', '.join(found)}"
    return UsageError(told) if found else None


def explain_limits(
    key: Annotated[
        str | None,
        typer.Argument(help="Key that they are about, such as fleet.replicas; default: all."),
    ] = None,
    as_json: AsJson = False,
    full: Full = False,
) -> None:
    """Explain what does not go together in a scenario: what, with what, why, and what works."""
    with plain_errors():
        from sim.scenario.checks.table import documents
        from sim.terminal.reference import first_limits, limits_view

        listed = list(documents())
        if key is not None:
            known = dict.fromkeys(each for row in listed for each in row["keys"])
            listed = [row for row in listed if any(f".{key}." in f".{k}." for k in row["keys"])]
            if not listed:
                raise UsageError(
                    f"no limit is about {key!r}{did_you_mean(key, known)}; "
                    "`infersim explain limits` shows all"
                )
        if as_json:
            typer.echo(json.dumps({"command": "explain limits", "limits": listed}))
            return
        full = full or key is not None
        print_view((limits_view if full else first_limits)(listed), full=full)
