"""Provides the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sim.errors import UsageError

Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value, such as a.b.0.c=value."),
]
Prices = Annotated[
    list[str],
    typer.Option(
        "--price", metavar="GPU=USD", help="Your price for a GPU hour, such as h100-sxm=2.40."
    ),
]
PriceFile = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Your prices: YAML (gpu: usd) or CSV (gpu,usd)."),
]
Seed = Annotated[int | None, typer.Option(help="Random seed; default: the scenario's.")]
Jobs = Annotated[int, typer.Option(help="Processes that simulate in parallel; -1: one per core.")]
RunOutput = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Run directory; default: runs/<time>-<name>-<id>."),
]
AnswerOutput = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Directory; default: runs/<time>-<name>-<command>-<id>."),
]
ScaleTrace = Annotated[
    Literal["compress", "overlay"],
    typer.Option(
        "--scale",
        help="How the load of a trace is changed: compress its time (denser, shorter bursts), or "
        "overlay copies of it (more users).",
    ),
]
Keep = Annotated[
    bool, typer.Option("--save/--no-save", help="Write a directory under runs/, or write nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Full = Annotated[
    bool,
    typer.Option(
        "--full", envvar="INFERSIM_FULL", help="Print every table and note, not the first lines."
    ),
]
Report = Annotated[bool, typer.Option(help="Write report.html.")]


def check_kept(output: Path | None, keep: bool) -> None:
    """UsageError for a directory in which nothing is to be written."""
    if output is not None and not keep:
        raise UsageError("--no-save writes nothing, so there is no --output")


def check_jobs(jobs: int) -> None:
    """UsageError for a number of processes that there cannot be."""
    if jobs == 0 or jobs < -1:
        raise UsageError(f"--jobs {jobs}: expected a number of processes, or -1 for all cores")
