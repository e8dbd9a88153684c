"""Prepares a scenario: looks everything up, does the memory arithmetic, loads a user's own
parts.

What it finds, a ``Setup``, serves any number of runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sim.errors import UsageError
from sim.load_refusals import check_undisturbed
from sim.metrics.own import load_metrics
from sim.plugins import is_own
from sim.pools import PreparedPool, prepare_pool
from sim.routers import router_class
from sim.scenario import Scenario
from sim.scenario.checks.table import check_models, check_policies, check_router
from sim.scenario.pools import only
from sim.schedulers import scheduler_class
from sim.schedulers.orders import make_order


@dataclass(frozen=True, slots=True)
class Setup:
    """A scenario prepared for simulation, before any request arrives."""

    scenario: Scenario
    pools: tuple[PreparedPool, ...]

    @property
    def only(self) -> PreparedPool:
        """The pool of a fleet that has one; UsageError where there are several, or where it is
        scaled while it serves."""
        only(self.pools)
        (pool,) = self.steady
        return pool

    @property
    def steady(self) -> tuple[PreparedPool, ...]:
        """The pools of a fleet that stays as it is, and whose clients wait; UsageError of any
        other: what it holds depends on how long it is watched."""
        check_undisturbed(self.scenario)
        return self.pools

    def under(self, scenario: Scenario) -> Setup:
        """The replicas for another scenario of them: in seed, traffic, or their number."""
        changed = self.each(lambda pool: replace(pool, settings=pool.settings.of(scenario)))
        return replace(changed, scenario=scenario)

    def each(self, change: Callable[[PreparedPool], PreparedPool]) -> Setup:
        """The setup with every pool changed."""
        return replace(self, pools=tuple(change(pool) for pool in self.pools))


def prepare(scenario: Scenario) -> Setup:
    """Look everything up and do the memory arithmetic.

    Raises UsageError for names that do not exist, parts of one's own that cannot be loaded, or
    repetitions without anything random to repeat, and InfeasibleError if the model does not fit.
    """
    if scenario.run.repetitions > 1 and not is_random(scenario):
        raise UsageError(
            f"run.repetitions: nothing in this scenario is drawn at random, so all "
            f"{scenario.run.repetitions} repetitions would be the same run; leave them at 1, or "
            "vary the traffic (for a trace: workload.trace.spread)"
        )
    _check_own_parts(scenario)
    found: list[PreparedPool] = []
    for pool in scenario.pools:
        alike = next((each for each in found if pool.like(each.settings)), None)
        if alike is None:
            found.append(prepare_pool(scenario, pool))
        else:
            found.append(replace(alike, settings=pool))
    check_models(
        {
            pool.deployment.model.name: bool(
                pool.deployment.model.windows or pool.capacity.state_blocks
            )
            for pool in found
        }
    )
    return Setup(scenario, tuple(found))


def _check_own_parts(scenario: Scenario) -> None:
    """UsageError, before any work, for a part that cannot be loaded, and where it is asked for."""
    folders = scenario.folders
    for pool in scenario.pools:
        with scenario.blamed("scheduler.batching", pool.index):
            scheduler_class(pool.scheduler.batching, folders=folders)
        with scenario.blamed("scheduler.order", pool.index):
            make_order(pool.scheduler.order, folders)
    check_policies(scenario)
    with scenario.blamed("router"):
        kind = router_class(scenario.router, folders)
    check_router(scenario, kind)
    with scenario.blamed("metrics"):
        load_metrics(scenario.metrics or (), folders)


def is_random(scenario: Scenario) -> bool:  # noqa: PLR0911 - one question after the other
    """Whether anything in a run depends on the seed."""
    workload = scenario.workload
    if scenario.replicas > 1 and router_class(scenario.router, scenario.folders).draws:
        return True
    failures, patience = scenario.failures, scenario.patience
    if failures is not None and (failures.mtbf is not None or failures.in_flight.kind == "retry"):
        return True
    if patience.on_timeout.kind == "retry":
        return True
    if scenario.speculative is not None and any(0 < r < 1 for r in scenario.speculative.rates):
        return True
    if sum(item.share is not None for item in workload.classes or ()) > 1:
        return True
    if workload.trace is not None:
        return workload.trace.spread is not None or not workload.trace.overlay.is_integer()
    laws: list[Any] = [workload.arrivals, workload.prompt_tokens, workload.output_tokens]
    laws += [workload.lengths]
    if (sessions := workload.sessions) is not None:
        laws += [sessions.turns, sessions.think_time, sessions.tool_delay, sessions.branches]
        if sessions.tool_share not in (None, 1.0):
            return True
    kinds = {law.kind for law in laws if law is not None}
    return not kinds <= {"constant", "burst", "closed", "fixed"}


def own_parts(scenario: Scenario) -> dict[str, str]:
    """The user's own parts that take part in a run of ``scenario``: what each is, by its text."""
    found = {scenario.router: "router"}
    for pool in scenario.pools:
        found |= {pool.scheduler.batching: "scheduler", pool.scheduler.order: "order"}
    return {text: noun for text, noun in found.items() if is_own(text)}


def own_code(scenario: Scenario) -> dict[str, str]:
    """All that ``scenario`` names of a user's own, metrics included, and what each is: preparing it
    imports their files, and so runs their code. Reading a scenario does not."""
    return own_parts(scenario) | dict.fromkeys(scenario.metrics or (), "metric")
