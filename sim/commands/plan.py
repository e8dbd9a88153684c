"""Provides the ``infersim plan`` command, on top of ``sim.planning.fleet.wish``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sim.commands.answer import deliver, telling
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides, PriceFile, Prices, ScaleTrace, check_jobs
from sim.commands.refused import explained
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.planning.fleet.wish import FleetWish

MOST_GPUS = 1024
"""The most GPUs of one replica that are accepted."""


class PlanOptions(NamedTuple):
    """The options of ``infersim plan``."""

    gpus: Annotated[
        str,
        typer.Option(
            help="GPUs to choose from, separated by commas, or all that have a price: all."
        ),
    ]
    tensor_parallel: Annotated[
        str | None, typer.Option(help="GPUs per replica, separated by commas; default: 1,2,4,8.")
    ] = None
    pipeline_parallel: Annotated[
        str | None,
        typer.Option(help="Stages of consecutive layers, such as 1,2,4; default: the scenario's."),
    ] = None
    data_parallel: Annotated[
        str | None,
        typer.Option(help="Ranks that share the experts, such as 1,8; default: the scenario's."),
    ] = None
    expert_parallel: Annotated[
        str | None,
        typer.Option(help="Whole experts on each GPU: true, false or both, which is the default."),
    ] = None
    rate: Annotated[
        str, typer.Option(help="Requests per second, or 10x the scenario's own rate.")
    ] = "1x"
    scale: ScaleTrace = "compress"
    headroom: Annotated[
        float, typer.Option(help="Spare capacity: 0.2 sizes fleets for 20 % more than the rate.")
    ] = 0.2
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precisions to choose from, such as fp8,bf16, or bf16/mxfp4 with that of the "
            "experts; the KV cache keeps the scenario's. Default: the scenario's."
        ),
    ] = None
    top: Annotated[int, typer.Option(help="Number of fleets to rank.")] = 5
    constraint: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="Further limits: 'ttft:p95<500ms;cost<20/h;gpus<=16'."),
    ] = None
    survive: Annotated[
        int,
        typer.Option(
            help="Number of replicas that may fail while the rest still hold the rate (N+1: 1)."
        ),
    ] = 0
    disaggregate: Annotated[
        bool,
        typer.Option(
            "--disaggregate", help="Plan separate prefill and decode replicas: how many of each."
        ),
    ] = False
    overrides: Overrides = []
    price: Prices = []
    prices: PriceFile = None


@with_records
def plan(
    scenario: Annotated[Path, typer.Argument(help="A scenario: model, traffic and SLO.")],
    options: PlanOptions,
    *,
    how: Answering,
) -> None:
    """Find the cheapest fleets that hold a load within the SLO, and say why others are not."""
    with plain_errors():
        from sim.planning.fleet.layouts import cards
        from sim.scenario import load_scenario
        from sim.scenario.given_prices import with_prices

        check_jobs(how.jobs)
        loaded = load_scenario(scenario, options.overrides)
        gpus = cards(loaded, _listed("--gpus", options.gpus))
        loaded = with_prices(loaded, options.price, options.prices, gpus)
        wish = _wish(options)
        question = wish.question(loaded)
        directory = how.directory(f"{loaded.name}-plan")
        try:
            with (
                explained(loaded, directory if how.report else None, own_load=False),
                telling("plan") as told,
            ):
                found = wish.answer(
                    loaded,
                    question,
                    jobs=how.jobs,
                    file=str(scenario),
                    given=options.overrides,
                    tell=told.say,
                    progress=told.count,
                )
        except KeyboardInterrupt as stop:
            _deliver_so_far(stop, wish, directory, how, str(scenario))
            raise
        deliver(found, directory, page="plan", how=how)


def _deliver_so_far(
    stop: KeyboardInterrupt, wish: FleetWish, directory: Path | None, how: Answering, file: str
) -> None:
    """Print and write the fleets that an interrupted plan had sized, if any."""
    from sim.planning.fleet.plan_interrupted import document
    from sim.planning.fleet.so_far import PlanInterrupted

    if isinstance(stop, PlanInterrupted) and stop.found.sized and not wish.disaggregate:
        deliver(document(stop, file=file), directory, page="plan", how=how)


def _wish(options: PlanOptions) -> FleetWish:
    """The fleets to look for; UsageError for options that do not go together."""
    from sim.planning.fleet.wish import FleetWish

    if options.disaggregate:
        if options.constraint is not None or options.survive:
            raise UsageError("--disaggregate: leave out --constraint and --survive")
        for name in ("precision", "data_parallel", "expert_parallel", "pipeline_parallel"):
            if getattr(options, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"--disaggregate: {option} is not tried here; set it in the scenario"
                )
    return FleetWish(
        gpus=_listed("--gpus", options.gpus),
        tensor_parallel=_sizes("--tensor-parallel", options.tensor_parallel),
        pipeline_parallel=_sizes("--pipeline-parallel", options.pipeline_parallel),
        data_parallel=_sizes("--data-parallel", options.data_parallel),
        expert_parallel=_switches(options.expert_parallel),
        precision=[] if options.precision is None else _listed("--precision", options.precision),
        rate=options.rate,
        scale=options.scale,
        headroom=options.headroom,
        top=options.top,
        constraint=options.constraint,
        survive=options.survive,
        disaggregate=options.disaggregate,
    )


def _listed(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(
            f"{option} {text!r}: expected names separated by commas, none of them empty"
        )
    return words


def _switches(text: str | None) -> list[bool]:
    """The ways of spreading experts that are listed; none where the option is not given."""
    words = _listed("--expert-parallel", text) if text else []
    for word in words:
        if word not in ("true", "false"):
            raise UsageError(f"--expert-parallel: expected true, false or both; got {word!r}")
    return [word == "true" for word in words]


def _sizes(option: str, text: str | None) -> list[int]:
    """The numbers that an option lists; none where it is not given."""
    return [] if text is None else [_size(option, word) for word in _listed(option, text)]


def _size(option: str, word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= MOST_GPUS:
        raise UsageError(f"{option}: expected whole numbers from 1 to {MOST_GPUS:,}; got {word!r}")
    return int(word)
