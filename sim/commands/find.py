"""Provides the ``infersim find`` command, on top of ``sim.planning.load.find``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sim.commands.answer import deliver, telling
from sim.commands.answering import Answering, with_records
from sim.commands.exits import plain_errors
from sim.commands.options import Overrides, PriceFile, Prices, ScaleTrace, check_jobs
from sim.commands.refused import explained
from sim.errors import UsageError
from sim.units import show_load

if TYPE_CHECKING:
    from sim.planning.load.probe import Probe


@with_records
def find(
    scenario: Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")],
    what: Annotated[
        Literal["rate", "concurrency"],
        typer.Option("--max", help="The load: requests per second, or users of a closed loop."),
    ] = "rate",
    overrides: Overrides = [],
    price: Prices = [],
    prices: PriceFile = None,
    tolerance: Annotated[
        float,
        typer.Option(
            help="How close together the highest load that holds and the lowest that fails must be."
        ),
    ] = 0.02,
    scale: ScaleTrace = "compress",
    *,
    how: Answering,
) -> None:
    """Find the highest load that meets the SLO, and what breaks first above it."""
    with plain_errors():
        from sim.planning.load.find import find as search
        from sim.planning.load.find_document import document
        from sim.scenario import load_scenario
        from sim.scenario.given_prices import with_prices

        check_jobs(how.jobs)
        if not 0.001 <= tolerance <= 0.5:
            raise UsageError(f"--tolerance {tolerance:g}: expected 0.001 to 0.5")
        loaded = load_scenario(scenario, overrides)
        loaded = with_prices(loaded, price, prices, [pool.gpu for pool in loaded.pools])
        directory = how.directory(f"{loaded.name}-find")
        with explained(loaded, directory if how.report else None), telling("find") as told:
            found = search(
                loaded,
                what,
                tolerance=tolerance,
                tell=_probes(told.say),
                scale=scale,
                jobs=how.jobs,
                progress=told.count,
            )
        deliver(document(found), directory, page="find", how=how)


def _probes(say: Callable[[str], None]) -> Callable[[Probe], None]:
    """A function that says of each load that was tried what came of it."""
    tried = count(1)

    def tell(probe: Probe) -> None:
        from sim.planning.points.wording import counted

        breaks = probe.breaks if probe.attained else probe.state
        word = "holds" if probe.holds else f"fails ({breaks})"
        word += "" if probe.sure else ", not sure"
        runs = f"{counted(probe.runs, 'run')} of {probe.per_run:,} requests"
        say(f"load {next(tried)}: {show_load(probe.load)}: {word}, {runs}")

    return tell
