"""Provides the rules of a scenario for clients that give up and replicas that fail, and draws when.

Each replica has a random stream of its own, so that neither the traffic nor the policy, nor how
many replicas there are, changes when one of them fails. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from sim.loop.client_rules import Outage, Retry, Rules
from sim.pools import PreparedPool, cold_start_of
from sim.rng import stream
from sim.scenario import Scenario
from sim.scenario.sections.autoscaling import Autoscaling
from sim.scenario.sections.failures import Cancel, Failures, Lose, Retrying


def rules_of(scenario: Scenario, pools: Sequence[PreparedPool]) -> Rules | None:
    """The rules by which the clients of ``scenario`` and the replicas of ``pools`` are played; None
    where no client gives up and no replica fails."""
    patience, failures = scenario.patience, scenario.failures
    if patience.client_timeout is None and failures is None:
        return None
    return Rules(
        timeout=inf if patience.client_timeout is None else patience.client_timeout,
        after_timeout=_retry(patience.on_timeout),
        after_loss=None if failures is None else _retry(failures.in_flight),
        outages=() if failures is None else outages_of(pools, failures, scenario),
    )


def _retry(rule: Cancel | Lose | Retrying) -> Retry | None:
    return Retry(rule.attempts, rule.backoff) if rule.kind == "retry" else None


def outages_of(
    pools: Sequence[PreparedPool], failures: Failures, scenario: Scenario
) -> tuple[Iterator[Outage], ...]:
    """Outages of each replica of ``pools`` in order of time, without end where a law rules. Of a
    pool that is scaled they come whether the replica serves then or not."""
    found: list[Iterator[Outage]] = []
    for pool in pools:
        for place in range(pool.replicas):
            if failures.mtbf is not None:
                repair, scaled = (
                    repair_of(pool, failures, scenario),
                    pool.settings.scales is not None,
                )
                rng = stream(scenario.seed, f"failures/{pool.settings.name}/{place}")
                found.append(drawn(rng, failures.mtbf, repair, always=scaled))
            else:
                found.append(iter(_given(failures, pool, place, alone=len(pools) == 1)))
    return tuple(found)


def repair_of(pool: PreparedPool, failures: Failures, scenario: Scenario) -> float:
    """Seconds for which a replica of ``pool`` is gone that failed by the law."""
    if failures.repair is not None:
        return failures.repair
    scaled = pool.settings.scales is not None and scenario.autoscaling
    return cold_start_of(pool, scaled or Autoscaling())


def drawn(
    rng: np.random.Generator, mtbf: float, repair: float, *, always: bool = False
) -> Iterator[Outage]:
    """Endless outages of ``repair`` s each, with exponential times of ``mtbf`` s between them; or
    ``always``, from the beginning of one to that of the next. Failures during an outage are
    dropped; the exponential law is memoryless, so that a replica in service fails at the same
    rate."""
    back = 0.0
    while True:
        since = back + rng.exponential(mtbf)
        back = since if always else since + repair
        yield Outage(since, since + repair)


def _given(failures: Failures, pool: PreparedPool, place: int, *, alone: bool) -> list[Outage]:
    mine = [
        outage
        for outage in failures.outages or ()
        if outage.replica == place and (alone or outage.pool == pool.settings.name)
    ]
    return sorted(
        Outage(each.at, inf if each.lasts is None else each.at + each.lasts) for each in mine
    )
