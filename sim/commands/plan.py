"""Provides the ``infersim plan`` command, on top of ``sim.planning.fleet.choose``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sim.commands.answer import deliver, telling
from sim.commands.answering import Answering, answering
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides, PriceFile, Prices, ScaleTrace, check_jobs
from sim.commands.refused import explained
from sim.errors import UsageError

if TYPE_CHECKING:
    from sim.planning.fleet.layouts import FleetQuestion
    from sim.planning.fleet.split_pairs import SplitQuestion
    from sim.planning.load.loads import Scale
    from sim.scenario import Scenario

MOST_GPUS = 1024
"""The most GPUs of one replica that are accepted."""


@answering
def plan(
    scenario: Annotated[Path, typer.Argument(help="A scenario: model, traffic and SLO.")],
    gpus: Annotated[str, typer.Option(help="GPUs to choose from, separated by commas.")],
    tensor_parallel: Annotated[
        str | None,
        typer.Option(help="GPUs per replica, separated by commas; default: 1,2,4,8."),
    ] = None,
    pipeline_parallel: Annotated[
        str | None,
        typer.Option(help="Stages of consecutive layers, such as 1,2,4; default: the scenario's."),
    ] = None,
    data_parallel: Annotated[
        str | None,
        typer.Option(help="Ranks that share the experts, such as 1,8; default: the scenario's."),
    ] = None,
    expert_parallel: Annotated[
        str | None,
        typer.Option(help="Whole experts on each GPU: true, false or both, which is the default."),
    ] = None,
    rate: Annotated[
        str, typer.Option(help="Requests per second, or 10x the scenario's own rate.")
    ] = "1x",
    scale: ScaleTrace = "compress",
    headroom: Annotated[
        float, typer.Option(help="Spare capacity: 0.2 sizes fleets for 20 % more than the rate.")
    ] = 0.2,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precisions to choose from, such as fp8,bf16, or bf16/mxfp4 with that of the "
            "experts; the KV cache keeps the scenario's. Default: the scenario's."
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of fleets to rank.")] = 5,
    constraint: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="Further limits: 'ttft:p95<500ms;cost<20/h;gpus<=16'."),
    ] = None,
    survive: Annotated[
        int,
        typer.Option(
            help="Number of replicas that may fail while the rest still hold the rate (N+1: 1)."
        ),
    ] = 0,
    disaggregate: Annotated[
        bool,
        typer.Option(
            "--disaggregate", help="Plan separate prefill and decode replicas: how many of each."
        ),
    ] = False,
    overrides: Overrides = [],
    price: Prices = [],
    prices: PriceFile = None,
    *,
    how: Answering,
) -> None:
    """Find the cheapest fleets that hold a load within the SLO, and say why others are not."""
    with plain_errors():
        from sim.planning.fleet.choose import choose
        from sim.planning.fleet.plan_document import document
        from sim.planning.fleet.split import choose_split
        from sim.planning.fleet.split_document import document as split_document
        from sim.scenario import load_scenario
        from sim.scenario.given_prices import with_prices
        from sim.terminal.plan import plan_view
        from sim.terminal.split import split_view

        check_jobs(how.jobs)
        loaded = load_scenario(scenario, overrides)
        choices = Choices(
            gpus, tensor_parallel, precision, data_parallel, expert_parallel, pipeline_parallel
        )
        loaded = with_prices(loaded, price, prices, _listed("--gpus", gpus))
        if disaggregate:
            if constraint is not None or survive:
                raise UsageError("--disaggregate: leave out --constraint and --survive")
            asked = _apart(loaded, choices, rate, headroom, top, scale)
            directory = how.directory(f"{loaded.name}-plan")
            with (
                explained(loaded, directory if how.report else None, own_load=False),
                telling("plan") as told,
            ):
                split = choose_split(
                    loaded, asked, jobs=how.jobs, tell=told.say, progress=told.count
                )
            answer = split_document(split, file=str(scenario), given=overrides)
            deliver(answer, directory, split_view, page="split", how=how)
            return
        question = _question(
            loaded,
            choices,
            rate,
            headroom,
            top,
            constraint,
            scale,
            survive,
        )
        directory = how.directory(f"{loaded.name}-plan")
        with (
            explained(loaded, directory if how.report else None, own_load=False),
            telling("plan") as told,
        ):
            plan = choose(loaded, question, jobs=how.jobs, tell=told.say, progress=told.count)
        found = document(plan, file=str(scenario), given=overrides)
        deliver(found, directory, plan_view, page="plan", how=how)


class Choices(NamedTuple):
    """What layouts are made of, each as written: words separated by commas."""

    gpus: str
    tensor_parallel: str | None
    precision: str | None
    data_parallel: str | None
    expert_parallel: str | None
    pipeline_parallel: str | None


def _question(
    scenario: Scenario,
    choices: Choices,
    rate: str,
    headroom: float,
    top: int,
    constraint: str | None,
    scale: Scale,
    survive: int,
) -> FleetQuestion:
    """What is asked; UsageError for what is empty or contradicts itself."""
    from sim.planning.fleet.choose import read_rate
    from sim.planning.fleet.constraints import read_constraints
    from sim.planning.fleet.layouts import FleetQuestion, layouts
    from sim.planning.load.loads import axis_of, traffic_of

    gpus, sizes, precision, ranks, experts, stages = choices
    if not 0 <= headroom <= 10:
        raise UsageError(f"--headroom {headroom:g}: expected a share from 0 to 10, such as 0.2")
    if top < 1:
        raise UsageError(f"--top {top}: expected 1 or more")
    kinds = [] if precision is None else _listed("--precision", precision)
    made = layouts(
        scenario,
        _listed("--gpus", gpus),
        _sizes("--tensor-parallel", sizes),
        kinds,
        _sizes("--data-parallel", ranks),
        [_switch(word) for word in _listed("--expert-parallel", experts)] if experts else (),
        _sizes("--pipeline-parallel", stages),
    )
    limits = read_constraints(constraint, survive)
    own = axis_of(scenario, "rate", traffic_of(scenario), scale).own
    assert own is not None
    return FleetQuestion(tuple(made), read_rate(rate, own), headroom, top, limits, scale)


def _apart(
    scenario: Scenario, choices: Choices, rate: str, headroom: float, top: int, scale: Scale
) -> SplitQuestion:
    """What is asked of fleets apart; UsageError for what cannot be asked of them."""
    from sim.planning.fleet.split_pairs import SplitQuestion, together

    others = {
        "--precision": choices.precision,
        "--data-parallel": choices.data_parallel,
        "--expert-parallel": choices.expert_parallel,
        "--pipeline-parallel": choices.pipeline_parallel,
    }
    for option, given in others.items():
        if given is not None:
            raise UsageError(f"--disaggregate: {option} is not tried here; set it in the scenario")
    asked = _question(together(scenario), choices, rate, headroom, top, None, scale, 0)
    whole = {layout.whole_experts for layout in asked.layouts}
    if len(whole) > 1:
        asked_for = tuple(each for each in asked.layouts if not each.whole_experts)
        return SplitQuestion(asked_for, asked.rate, headroom, top, scale)
    return SplitQuestion(asked.layouts, asked.rate, headroom, top, scale)


def _listed(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(
            f"{option} {text!r}: expected names separated by commas, none of them empty"
        )
    return words


def _switch(word: str) -> bool:
    if word not in ("true", "false"):
        raise UsageError(f"--expert-parallel: expected true, false or both; got {word!r}")
    return word == "true"


def _sizes(option: str, text: str | None) -> list[int]:
    """The numbers that an option lists; none where it is not given."""
    return [] if text is None else [_size(option, word) for word in _listed(option, text)]


def _size(option: str, word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= MOST_GPUS:
        raise UsageError(f"{option}: expected whole numbers from 1 to {MOST_GPUS:,}; got {word!r}")
    return int(word)
