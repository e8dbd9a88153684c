"""Provides the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a value, as a.b.0.c=value."),
]
Prices = Annotated[
    list[str],
    typer.Option("--price", metavar="GPU=USD", help="Your price of a GPU hour, as h100-sxm=2.40."),
]
PriceFile = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Your prices: YAML (gpu: usd) or CSV (gpu,usd)."),
]
Seed = Annotated[int | None, typer.Option(help="Random seed; else the scenario's.")]
Jobs = Annotated[
    int, typer.Option(help="Processes that simulate side by side; -1: one for each core.")
]
RunOutput = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Run directory; else runs/<time>-<name>-<id>."),
]
AnswerOutput = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Directory; else runs/<time>-<name>-<command>-<id>."),
]
ScaleTrace = Annotated[
    Literal["compress", "overlay"],
    typer.Option(
        "--scale",
        help="How a trace gets another load: compress its time (denser, shorter bursts), or "
        "overlay copies of it (more users).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, no table.")]
Report = Annotated[bool, typer.Option(help="Write report.html.")]
