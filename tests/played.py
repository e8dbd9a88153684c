"""Runs of one scenario under many seeds, without what a result makes of them."""

from __future__ import annotations

from collections.abc import Iterable

from sim.loop.clock import Stop
from sim.scenario import Scenario
from sim.setup import prepare
from sim.simulation import play
from sim.workload import build


def mean_ttfts(scenario: Scenario, seeds: Iterable[int]) -> list[float]:
    """The mean TTFT in milliseconds of each run, of the requests that are no warmup."""
    setup = prepare(scenario)
    found = []
    for seed in seeds:
        own = scenario.model_copy(update={"seed": seed})
        run = play(setup.under(own), build(own, seed), leap=own.run.leap, stop=Stop())
        found.append(1e3 * float(run.ttft[run.completed & ~run.warmup].mean()))
    return found
