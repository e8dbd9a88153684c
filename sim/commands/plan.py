"""Provides the ``infersim plan`` command, on top of ``sim.planning.fleet.wish``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.commands.answer import deliver, telling
from sim.commands.answering import Answering, answering
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides, PriceFile, Prices, ScaleTrace, check_jobs
from sim.commands.refused import explained
from sim.errors import UsageError

MOST_GPUS = 1024
"""The most GPUs of one replica that are accepted."""

Words = str | None
"""Words separated by commas."""

Gpus = Annotated[str, typer.Option(help="GPUs to choose from, separated by commas.")]
TensorParallel = Annotated[
    Words, typer.Option(help="GPUs per replica, separated by commas; default: 1,2,4,8.")
]
PipelineParallel = Annotated[
    Words,
    typer.Option(help="Stages of consecutive layers, such as 1,2,4; default: the scenario's."),
]
DataParallel = Annotated[
    Words,
    typer.Option(help="Ranks that share the experts, such as 1,8; default: the scenario's."),
]
ExpertParallel = Annotated[
    Words,
    typer.Option(help="Whole experts on each GPU: true, false or both, which is the default."),
]
Rate = Annotated[str, typer.Option(help="Requests per second, or 10x the scenario's own rate.")]
Headroom = Annotated[
    float, typer.Option(help="Spare capacity: 0.2 sizes fleets for 20 % more than the rate.")
]
Precision = Annotated[
    Words,
    typer.Option(
        help="Precisions to choose from, such as fp8,bf16, or bf16/mxfp4 with that of the "
        "experts; the KV cache keeps the scenario's. Default: the scenario's."
    ),
]
Top = Annotated[int, typer.Option(help="Number of fleets to rank.")]
Constraint = Annotated[
    str | None,
    typer.Option(metavar="LIMITS", help="Further limits: 'ttft:p95<500ms;cost<20/h;gpus<=16'."),
]
Survive = Annotated[
    int,
    typer.Option(
        help="Number of replicas that may fail while the rest still hold the rate (N+1: 1)."
    ),
]
Disaggregate = Annotated[
    bool,
    typer.Option(
        "--disaggregate", help="Plan separate prefill and decode replicas: how many of each."
    ),
]


@answering
def plan(
    scenario: Annotated[Path, typer.Argument(help="A scenario: model, traffic and SLO.")],
    gpus: Gpus,
    tensor_parallel: TensorParallel = None,
    pipeline_parallel: PipelineParallel = None,
    data_parallel: DataParallel = None,
    expert_parallel: ExpertParallel = None,
    rate: Rate = "1x",
    scale: ScaleTrace = "compress",
    headroom: Headroom = 0.2,
    precision: Precision = None,
    top: Top = 5,
    constraint: Constraint = None,
    survive: Survive = 0,
    disaggregate: Disaggregate = False,
    overrides: Overrides = [],
    price: Prices = [],
    prices: PriceFile = None,
    *,
    how: Answering,
) -> None:
    """Find the cheapest fleets that hold a load within the SLO, and say why others are not."""
    with plain_errors():
        from sim.planning.fleet.wish import FleetWish
        from sim.scenario import load_scenario
        from sim.scenario.given_prices import with_prices
        from sim.terminal.plan import plan_view
        from sim.terminal.split import split_view

        check_jobs(how.jobs)
        loaded = load_scenario(scenario, overrides)
        loaded = with_prices(loaded, price, prices, _listed("--gpus", gpus))
        if disaggregate:
            if constraint is not None or survive:
                raise UsageError("--disaggregate: leave out --constraint and --survive")
            _refuse(precision, data_parallel, expert_parallel, pipeline_parallel)
        wish = FleetWish(
            gpus=_listed("--gpus", gpus),
            tensor_parallel=_sizes("--tensor-parallel", tensor_parallel),
            pipeline_parallel=_sizes("--pipeline-parallel", pipeline_parallel),
            data_parallel=_sizes("--data-parallel", data_parallel),
            expert_parallel=_switches(expert_parallel),
            precision=[] if precision is None else _listed("--precision", precision),
            rate=rate,
            scale=scale,
            headroom=headroom,
            top=top,
            constraint=constraint,
            survive=survive,
            disaggregate=disaggregate,
        )
        question = wish.question(loaded)
        directory = how.directory(f"{loaded.name}-plan")
        with (
            explained(loaded, directory if how.report else None, own_load=False),
            telling("plan") as told,
        ):
            found = wish.answer(
                loaded,
                question,
                jobs=how.jobs,
                file=str(scenario),
                given=overrides,
                tell=told.say,
                progress=told.count,
            )
        view, page = (split_view, "split") if disaggregate else (plan_view, "plan")
        deliver(found, directory, view, page=page, how=how)


def _refuse(precision: Words, data: Words, experts: Words, stages: Words) -> None:
    """Raise UsageError for an option that fleets apart do not have."""
    others = {
        "--precision": precision,
        "--data-parallel": data,
        "--expert-parallel": experts,
        "--pipeline-parallel": stages,
    }
    for option, given in others.items():
        if given is not None:
            raise UsageError(f"--disaggregate: {option} is not tried here; set it in the scenario")


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
