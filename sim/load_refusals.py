"""Refuses to look for the load of a fleet that is scaled, fails or is steered, or is given up on.

It says why there is no such load, and what to ask instead. Times in seconds.
"""

from __future__ import annotations

from sim.errors import UsageError
from sim.scenario import Scenario
from sim.units import show_load, show_time


def check_undisturbed(scenario: Scenario) -> None:
    """Raise the UsageError of a scenario whose replicas come and go, fail or are steered, or whose
    clients do not wait: what a fleet holds depends on when that happens. It says why, and what to
    ask instead."""
    if any(pool.scales is not None for pool in scenario.pools):
        raise UsageError(
            "fleet: `replicas: {min, max}` is simulated by `run`, `compare` and `sweep`; give "
            "a number here"
        )
    if scenario.disturbed:
        raise UsageError(
            f"{_disturbance(scenario)}; failures, steering and scheduler.client_timeout are "
            "simulated by `run`, `compare` and `sweep`; leave them out here"
        )


FAILURES_SEEN = 20
"""Failures in a run for whose mean effect chance is a fifth or so: 1 / sqrt(20)."""


def _disturbance(scenario: Scenario) -> str:
    """Why no load can be found, and what to ask instead."""
    failures, replicas = scenario.failures, scenario.replicas
    instead = "`infersim plan --survive 1` finds a fleet that holds while one replica is gone"
    if failures is not None and failures.mtbf is not None:
        lasts = FAILURES_SEEN * failures.mtbf / replicas
        rate = getattr(scenario.workload.arrivals, "rate", None)
        come = f", {show_load(rate * lasts, 3)} requests at {show_load(rate)}/s" if rate else ""
        count = "one replica fails" if replicas == 1 else f"one of {replicas:,} replicas fails"
        return (
            f"failures.mtbf: {count} every {show_time(failures.mtbf / replicas)}, so that runs "
            f"which see {FAILURES_SEEN} failures last {show_time(lasts)}{come}, and the load that "
            f"shorter ones hold is that of the failures they happen to have; {instead}"
        )
    if failures is not None or scenario.steering is not None:
        what = "failures.outages" if failures is not None else "steering.steps"
        return (
            f"{what}: they come at given times, of which a run at another load has more or less; "
            f"{instead}"
        )
    return (
        "scheduler.client_timeout: clients that give up relieve the fleet that was too slow for "
        "them, and those that try again may keep it too slow for ever; without it the answer is "
        "the load at which hardly any client has a reason to, which `run` with it can confirm"
    )
